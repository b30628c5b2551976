//! A fused elementwise pass as a step of its own.

#![allow(unsafe_code)]

use super::Step;
use super::program::{BLOCK, Program};
use crate::exec::Run;
use smallvec::SmallVec;

/// Fewer elements are not worth a second thread.
const ALONE: usize = 16 * BLOCK;

pub fn run(program: &Program, step: &Step, run: &mut Run) {
    let memory = run.memory;
    let output = &step.outputs[0];
    let count = output.num_elements();
    let tasks = if count <= ALONE { 1 } else { (count / ALONE).min(run.pool.threads() * 4) };
    // Whole blocks: the results of a block do not depend on where tasks begin, but its cost does.
    let length = count.div_ceil(tasks.max(1)).next_multiple_of(BLOCK);
    run.pool.run(tasks, &|task| {
        let begin = (task * length).min(count);
        let end = (begin + length).min(count);
        let inputs: SmallVec<[*const u8; 8]> =
            step.inputs.iter().map(|view| memory.address(view).cast_const()).collect();
        // SAFETY: the planner made the program for these views; tasks write disjoint positions.
        unsafe { program.run(&inputs, memory.address(output), begin, end - begin) };
    });
}
