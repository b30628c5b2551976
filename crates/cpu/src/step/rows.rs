//! Recognised composites over rows: softmax and the norms, each row in one go. Inputs are dense: rows, then
//! scale and bias where the composite has them. Results may
//! lie where the rows do.

#![allow(unsafe_code)]

use super::Step;
use crate::exec::Run;
use crate::kernel::rows::RowLoop;

pub struct Rows {
    pub kernel: RowLoop,
    pub length: usize,
    pub epsilon: f32,
    pub name: &'static str,
}

/// Elements below which a second thread is not worth it.
const ALONE: usize = 8 << 10;

pub fn run(rows: &Rows, step: &Step, run: &mut Run) {
    let memory = run.memory;
    let (input, output) = (&step.inputs[0], &step.outputs[0]);
    let count = input.num_elements().checked_div(rows.length).unwrap_or(0);
    let parts = if input.num_elements() <= ALONE { 1 } else { (run.pool.threads() * 4).min(count.max(1)) };
    let vector = |index: usize| match step.inputs.get(index) {
        // SAFETY: dense f32, and nothing writes it while this step runs.
        Some(view) => unsafe {
            std::slice::from_raw_parts(memory.address(view).cast::<f32>(), view.num_elements())
        },
        None => &[],
    };
    let overwrites = memory.address(input) == memory.address(output);
    run.pool.run(parts, &|part| {
        let (scale, bias) = (vector(1), vector(2));
        let mut room = if overwrites { vec![0f32; rows.length] } else { Vec::new() };
        for row in part * count / parts..(part + 1) * count / parts {
            let at = row * rows.length;
            // SAFETY: each row is written by one task; the level is one the processor has.
            unsafe {
                let mut x = std::slice::from_raw_parts(
                    memory.address(input).cast::<f32>().wrapping_add(at),
                    rows.length,
                );
                if overwrites {
                    room.copy_from_slice(x);
                    x = &room;
                }
                let y = memory.address(output).cast::<f32>().wrapping_add(at);
                (rows.kernel)(x, scale, bias, std::slice::from_raw_parts_mut(y, rows.length), rows.epsilon);
            }
        }
    });
}
