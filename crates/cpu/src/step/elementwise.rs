//! Fused elementwise passes as a step of their own. Several passes over the same elements go some at a time, so that
//! what one has read or made is in the cache for the next.

#![allow(unsafe_code)]

use super::program::BLOCK;
use super::{Kind, Step};
use crate::exec::Run;
use smallvec::SmallVec;

/// Fewer elements are not worth a second thread.
const ALONE: usize = 16 * BLOCK;
/// Elements that several passes take at a time: of ten operands 160 KiB.
const AT_ONCE: usize = 8 * BLOCK;

/// `parts`: elementwise steps with results of one size.
pub fn run(parts: &[Step], run: &mut Run) {
    let memory = run.memory;
    let count = parts[0].outputs[0].num_elements();
    let tasks = if count <= ALONE { 1 } else { (count / ALONE).min(run.pool.threads() * 4) };
    // Whole blocks: the results of a block do not depend on where tasks begin, but its cost does.
    let length = count.div_ceil(tasks.max(1)).next_multiple_of(BLOCK);
    let at_once = if parts.len() == 1 { length } else { AT_ONCE };
    run.pool.run(tasks, &|task| {
        let end = ((task + 1) * length).min(count);
        for begin in (task * length..end).step_by(at_once.max(1)) {
            for part in parts {
                let Kind::Elementwise(program) = &part.kind else { unreachable!("parts are elementwise") };
                let inputs: SmallVec<[*const u8; 8]> =
                    part.inputs.iter().map(|view| memory.address(view).cast_const()).collect();
                let output = memory.address(&part.outputs[0]);
                // SAFETY: the planner made the programs for these views; tasks write disjoint positions, and a part
                // reads what those before have made at the positions at hand only (`plan/together.rs`).
                unsafe { program.run(&inputs, output, begin, at_once.min(end - begin)) };
            }
        }
    });
}
