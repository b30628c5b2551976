//! What follows the sums of a convolution, and the same as a step of its own over images in blocks.

#![allow(unsafe_code)]

use crate::exec::{Memory, Run};
use crate::kernel::elementwise::UnaryLoop;
use crate::kernel::finish::{Finish, PassLoop};
use crate::kernel::lanes::LANES;
use crate::step::Step;
use crate::step::program::Program;
use smallvec::SmallVec;
use std::ops::Range;

/// Parts of a [`Finish`] as the step's operands, then a function of each element.
#[derive(Clone, Copy, Debug, Default)]
pub struct FinishSpec {
    pub scale: Option<PerChannel>,
    pub shift: Option<PerChannel>,
    pub residual: Option<usize>,
    pub low: Option<f32>,
    pub high: Option<f32>,
    pub activation: Option<UnaryLoop>,
}

/// A number per channel.
#[derive(Clone, Copy, Debug)]
pub struct PerChannel {
    /// The step's operand.
    pub index: usize,
    /// From one image's numbers to the next's; zero if all share them.
    pub image: usize,
}

impl FinishSpec {
    pub fn operands(&self) -> usize {
        let parts = [self.scale.is_some(), self.shift.is_some(), self.residual.is_some()];
        parts.into_iter().filter(|&there| there).count()
    }

    /// For an image's output block whose results begin at `at`.
    pub fn finish(&self, step: &Step, memory: Memory, image: usize, block: usize, at: usize) -> Finish {
        let operand = |index: usize, offset: usize| {
            memory.address(&step.inputs[index]).cast::<f32>().cast_const().wrapping_add(offset)
        };
        let per_channel = |part: Option<PerChannel>| {
            part.map_or(std::ptr::null(), |part| operand(part.index, image * part.image + block * LANES))
        };
        Finish {
            scale: per_channel(self.scale),
            shift: per_channel(self.shift),
            residual: self.residual.map_or(std::ptr::null(), |index| operand(index, at)),
            low: self.low,
            high: self.high,
        }
    }

    /// Runs the activation and an epilogue over positions of the step's result, which are the caller's alone.
    /// The epilogue's operands are those of the step from `first` on.
    pub fn run_after(
        &self,
        program: Option<&Program>,
        step: &Step,
        memory: Memory,
        positions: Range<usize>,
        first: usize,
    ) {
        let output = memory.address(&step.outputs[0]);
        if let Some(activation) = self.activation {
            let at = output.wrapping_add(positions.start * 4);
            // SAFETY: positions of the f32 result, in place.
            unsafe { activation(at.cast_const(), at, positions.len()) };
        }
        let Some(program) = program else { return };
        let mut inputs: SmallVec<[*const u8; 8]> = SmallVec::from_elem(output.cast_const(), 1);
        inputs.extend(step.inputs[first..].iter().map(|view| memory.address(view).cast_const()));
        // SAFETY: the program was made for these inputs; positions are this task's alone, and the first input
        // is the output itself, of four bytes an element.
        unsafe { program.run(&inputs, output, positions.start, positions.len()) };
    }
}

/// A finish over images that lie there already: the step's first operand.
pub struct Pass {
    pub finish: FinishSpec,
    pub pass: PassLoop,
    /// Of an image.
    pub blocks: usize,
    pub pixels: usize,
}

/// Pixels of a task: 64 KiB, so that the activation finds them in the cache.
const TASK_PIXELS: usize = 1024;

pub fn run(pass: &Pass, step: &Step, run: &mut Run) {
    let memory = run.memory;
    let planes = step.outputs[0].num_elements().checked_div(pass.pixels * LANES).unwrap_or(0);
    let parts = pass.pixels.div_ceil(TASK_PIXELS);
    // Small passes are not worth a second thread.
    let tasks = if planes * pass.pixels <= TASK_PIXELS { 1 } else { planes };
    run.pool.run(tasks, &|task| {
        for plane in task * planes / tasks..(task + 1) * planes / tasks {
            for part in 0..parts {
                let begin = plane * pass.pixels + part * TASK_PIXELS;
                let pixels = TASK_PIXELS.min((plane + 1) * pass.pixels - begin);
                let at = begin * LANES;
                let x = memory.address(&step.inputs[0]).cast::<f32>().cast_const().wrapping_add(at);
                let y = memory.address(&step.outputs[0]).cast::<f32>().wrapping_add(at);
                let finish = pass.finish.finish(step, memory, plane / pass.blocks, plane % pass.blocks, at);
                // SAFETY: pixels of the dense operand and of the result, which are this task's alone; the
                // level is one the processor has.
                unsafe { (pass.pass)(x, y, pixels, &finish) };
                pass.finish.run_after(None, step, memory, at..at + pixels * LANES, 0);
            }
        }
    });
}
