//! Branches and loops: child plans run on this plan's values. Carried values live in the step's outputs.

#![allow(unsafe_code)]

use super::Step;
use super::movement::copy;
use crate::exec::Run;
use crate::view::View;
use pando_base::Result;

/// Numbers are positions in the plan's children.
pub enum Control {
    /// The first input is the condition.
    If {
        then: usize,
        otherwise: usize,
    },
    While {
        cond: usize,
        body: usize,
    },
    /// Scratch holds the iteration number. Outputs are the carried values, by their positions among the inputs;
    /// the others stay the same.
    Repeat {
        count: u64,
        body: usize,
        carried: Vec<usize>,
    },
    /// The body on every part of the first `parts` inputs along axis 0; the others are state and constants.
    Images {
        count: usize,
        parts: usize,
        body: usize,
    },
}

pub fn run(control: &Control, step: &Step, run: &mut Run) -> Result<()> {
    match *control {
        Control::Repeat { count, body, ref carried } => repeat(count, body, carried, step, run),
        Control::If { then, otherwise } => {
            let taken = if read_flag(&step.inputs[0], run) { then } else { otherwise };
            run.child(taken, &step.inputs[1..])?;
            copy_results(taken, step, run);
            Ok(())
        }
        Control::While { cond, body } => {
            carry(step, run);
            loop {
                run.child(cond, &step.outputs)?;
                let flag = step.scratch.as_ref().expect("a while has room for its flag");
                run.copy_child_result(cond, 0, flag);
                if !read_flag(flag, run) {
                    return Ok(());
                }
                run.child(body, &step.outputs)?;
                copy_results(body, step, run);
            }
        }
        Control::Images { count, parts, body } => {
            for index in 0..count {
                let cut = |(position, view): (usize, &View)| {
                    if position < parts { part(view, index, count) } else { view.clone() }
                };
                let inputs: Vec<View> = step.inputs.iter().enumerate().map(cut).collect();
                run.point_child(body, &inputs);
                if index == 0 {
                    run.prepare_child_of_state(body)?;
                }
                run.run_child(body)?;
                for (position, to) in step.outputs.iter().enumerate() {
                    run.copy_child_result(body, position, &part(to, index, count));
                }
            }
            Ok(())
        }
    }
}

fn repeat(count: u64, body: usize, carried: &[usize], step: &Step, run: &mut Run) -> Result<()> {
    let counter = step.scratch.as_ref().expect("a repeat has room for its counter");
    let mut params = step.inputs.clone();
    for (&position, output) in carried.iter().zip(&step.outputs) {
        // The first parameter counts.
        if !run.plan.children[body].overwritten.contains(&(1 + position)) {
            copy(&step.inputs[position], output, run);
        }
        params[position] = output.clone();
    }
    params.insert(0, counter.clone());
    run.bind_child(body, &params)?;
    for iteration in 0..count {
        // SAFETY: the scratch is this step's own; nothing runs beside it. The counter wraps as i32 does.
        unsafe { run.memory.bytes_mut(counter) }.copy_from_slice(&(iteration as i32).to_le_bytes());
        run.run_iteration(body, iteration)?;
    }
    Ok(())
}

/// One of `count` equal parts of a dense view along axis 0.
fn part(view: &View, index: usize, count: usize) -> View {
    let mut part = view.clone();
    part.sizes[0] /= count;
    part.offset += (index * part.num_elements()) as isize;
    part
}

fn read_flag(view: &View, run: &Run) -> bool {
    // SAFETY: conditions are dense and nothing runs beside this step.
    let bytes = unsafe { run.memory.bytes(view) };
    bytes[0] != 0
}

/// The operands become the carried values.
fn carry(step: &Step, run: &Run) {
    for (from, to) in step.inputs.iter().zip(&step.outputs) {
        // SAFETY: operands are dense, outputs have their own buffers, and nothing runs beside this step.
        unsafe { run.memory.bytes_mut(to).copy_from_slice(run.memory.bytes(from)) };
    }
}

fn copy_results(child: usize, step: &Step, run: &Run) {
    for (position, to) in step.outputs.iter().enumerate() {
        run.copy_child_result(child, position, to);
    }
}
