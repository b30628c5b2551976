//! Elementwise steps that follow each other and share operands, as the updates of a weight and its moments do, are
//! run together, some elements at a time: what they share comes from memory once.
//!
//! Before: steps in their final order. After: the same results bit for bit. Cost: linear.

use crate::step::program::{Access, Input, Program};
use crate::step::{Kind, Step};
use crate::view::{BufferId, View};

/// Smaller results are in the cache anyway.
const LEAST_BYTES: usize = 64 << 10;

/// `replaces`: the parameter that a buffer lies over.
pub(super) fn together(steps: Vec<Step>, replaces: &dyn Fn(BufferId) -> Option<BufferId>) -> Vec<Step> {
    let mut joined: Vec<Step> = Vec::with_capacity(steps.len());
    for step in steps {
        match joined.last_mut() {
            Some(last) if may_join(last, &step, replaces) => join(last, step),
            _ => joined.push(step),
        }
    }
    joined
}

fn parts(step: &Step) -> &[Step] {
    match &step.kind {
        Kind::Together(parts) => parts,
        _ => std::slice::from_ref(step),
    }
}

fn program(step: &Step) -> Option<&Program> {
    if let Kind::Elementwise(program) = &step.kind { Some(program) } else { None }
}

/// Whether a step can run on some elements as soon as the steps before have made just those.
fn may_join(first: &Step, second: &Step, replaces: &dyn Fn(BufferId) -> Option<BufferId>) -> bool {
    let Some(program_of_second) = program(second) else { return false };
    let (made, makes) = (&first.outputs, &second.outputs[0]);
    let large = makes.num_bytes() >= LEAST_BYTES;
    let alike = made.iter().all(|view| view.num_elements() == makes.num_elements());
    if !large || !alike || !parts(first).iter().all(|part| program(part).is_some()) {
        return false;
    }
    let reads = |step: &Step, buffer: BufferId| step.inputs.iter().any(|view| view.buffer == buffer);
    let made_here = |view: &View| made.iter().any(|output| output.buffer == view.buffer);
    let shares = second.inputs.iter().any(|view| {
        view.num_elements() == makes.num_elements() && (made_here(view) || reads(first, view.buffer))
    });
    // What was made of the same elements only.
    let in_step = by_element(second, program_of_second, made_here);
    // What is overwritten has been read of the same elements only.
    let overwritten = replaces(makes.buffer);
    let read_in_step = parts(first).iter().all(|part| {
        let over = |view: &View| Some(view.buffer) == overwritten;
        program(part).is_some_and(|program| by_element(part, program, over))
    });
    shares && in_step && read_in_step
}

/// Whether a step reads these operands element by element.
fn by_element(step: &Step, program: &Program, which: impl Fn(&View) -> bool) -> bool {
    let dense = |(view, input): (&View, &Input)| {
        !which(view) || matches!(input.access, Access::Dense) && view.offset == 0
    };
    step.inputs.iter().zip(&program.inputs).all(dense)
}

fn join(first: &mut Step, second: Step) {
    let mut parts = match std::mem::replace(&mut first.kind, Kind::Together(Vec::new())) {
        Kind::Together(parts) => parts,
        kind => vec![Step {
            name: first.name.clone(),
            kind,
            inputs: first.inputs.clone(),
            outputs: first.outputs.clone(),
            scratch: None,
        }],
    };
    for view in &second.inputs {
        let made = first.outputs.iter().any(|output| output.buffer == view.buffer);
        if !made && !first.inputs.contains(view) {
            first.inputs.push(view.clone());
        }
    }
    first.outputs.extend(second.outputs.iter().cloned());
    parts.push(second);
    first.kind = Kind::Together(parts);
}
