//! Images in blocks of channels whose rows and columns come from several images in turn: the results of a convolution
//! that strides over its output (`plan/layout.rs`), a convolution for each phase of the strides.
//!
//! The floor is memory bandwidth: each pixel read and written once.

#![allow(unsafe_code)]

use crate::exec::Run;
use crate::kernel::lanes::LANES;
use crate::step::Step;

/// Operands are the phases that are not zero.
pub struct Interleave {
    pub strides: [usize; 2],
    /// By phase, rows first: the operand it is.
    pub phases: Vec<Option<usize>>,
}

/// A pixel of a block.
type Pixel = [f32; LANES];

pub fn run(interleave: &Interleave, step: &Step, run: &mut Run) {
    let output = &step.outputs[0];
    let &[images, blocks, height, width, _] = output.sizes.as_slice() else { unreachable!("in blocks") };
    let memory = run.memory;
    let [rows_apart, columns_apart] = interleave.strides;
    run.pool.run(images * blocks, &|plane| {
        for row in 0..height {
            let to = memory.address(output).cast::<Pixel>().wrapping_add((plane * height + row) * width);
            for column_phase in 0..columns_apart {
                let phase = row % rows_apart * columns_apart + column_phase;
                let from = interleave.phases[phase].map(|operand| {
                    let view = &step.inputs[operand];
                    let row = (plane * view.sizes[2] + row / rows_apart) * view.sizes[3];
                    memory.address(view).cast::<Pixel>().cast_const().wrapping_add(row)
                });
                for (index, column) in (column_phase..width).step_by(columns_apart).enumerate() {
                    // SAFETY: a phase has as many pixels as there are in the output for it; rows of the output
                    // are this task's alone.
                    unsafe {
                        let pixel = from.map_or([0.0; LANES], |from| *from.add(index));
                        to.add(column).write(pixel);
                    }
                }
            }
        }
    });
}
