//! Batch normalization over images in blocks of channels: sums of every channel over all images, and the gradient of
//! the operand. Sums are made of parts whose pixels stay in the L2 cache, in f32, and put together in f64: the
//! parts are the same for any number of threads.
//!
//! The floor is memory bandwidth: operands are read once, results written once.

#![allow(unsafe_code)]

use crate::exec::{Memory, Run};
use crate::kernel::lanes::LANES;
use crate::kernel::norm::{Loops, Pixels};
use crate::step::Step;

/// Results have a number for every lane.
pub struct Norm {
    pub what: What,
    pub loops: &'static Loops,
    pub images: usize,
    pub blocks: usize,
    /// Of an image.
    pub pixels: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Of x: means and variances.
    Moments,
    /// Of x, a gradient and means: sums of the gradient, and of it times x less the mean.
    Products,
    /// Of x, a gradient, and three numbers a channel: see [`Loops::combine`].
    Combine,
}

/// Pixels of a part of a sum: 128 KiB.
const PART_PIXELS: usize = 2048;

impl Norm {
    fn parts_of_image(&self) -> usize {
        self.pixels.div_ceil(PART_PIXELS)
    }

    /// Elements of the sums of all parts.
    pub fn scratch_elements(&self) -> usize {
        match self.what {
            What::Combine => 0,
            _ => self.blocks * self.images * self.parts_of_image() * 2 * LANES,
        }
    }

    pub fn name(&self) -> &'static str {
        match self.what {
            What::Moments => "batch norm sums",
            What::Products => "batch norm gradient sums",
            What::Combine => "batch norm gradient",
        }
    }
}

/// A part of the pixels of an image's block.
struct Part {
    block: usize,
    /// First pixel, of all.
    first: usize,
    count: usize,
}

impl Norm {
    /// Parts by number: those of a block follow each other.
    fn part(&self, index: usize) -> Part {
        let parts = self.parts_of_image();
        let (block, rest) = (index / (self.images * parts), index % (self.images * parts));
        let (image, part) = (rest / parts, rest % parts);
        let begin = part * PART_PIXELS;
        let first = (image * self.blocks + block) * self.pixels + begin;
        Part { block, first, count: PART_PIXELS.min(self.pixels - begin) }
    }
}

pub fn run(norm: &Norm, step: &Step, run: &mut Run) {
    let memory = run.memory;
    let parts = norm.blocks * norm.images * norm.parts_of_image();
    let scratch = step.scratch.as_ref().map(|view| memory.address(view).cast::<f32>());
    let scratch = crate::step::gemm::Shared(scratch.unwrap_or(std::ptr::null_mut()));
    let kernel = match norm.what {
        What::Moments => norm.loops.moments,
        What::Products => norm.loops.products,
        What::Combine => norm.loops.combine,
    };
    run.pool.run(parts, &|index| {
        let part = norm.part(index);
        let input = |operand: usize, offset: usize| match step.inputs.get(operand) {
            Some(view) => memory.address(view).cast::<f32>().cast_const().wrapping_add(offset * LANES),
            None => std::ptr::null(),
        };
        let to = match norm.what {
            What::Combine => memory.address(&step.outputs[0]).cast::<f32>().wrapping_add(part.first * LANES),
            _ => scratch.address().wrapping_add(index * 2 * LANES),
        };
        let channels = [2, 3, 4].map(|operand| input(operand, part.block));
        let (x, gradient) = (input(0, part.first), input(1, part.first));
        // SAFETY: the part's pixels of the dense operands, its channels' numbers, and a place of its own; the
        // level is one the processor has.
        unsafe { kernel(&Pixels { count: part.count, x, gradient, channels, to }) };
    });
    if norm.what != What::Combine {
        (0..norm.blocks).for_each(|block| norm.total(block, scratch.address(), step, memory));
    }
}

impl Norm {
    /// Puts the parts of a block together.
    fn total(&self, block: usize, scratch: *const f32, step: &Step, memory: Memory) {
        let of_block = self.images * self.parts_of_image();
        for lane in 0..LANES {
            let parts = (block * of_block..(block + 1) * of_block).map(|index| {
                // SAFETY: the scratch has two numbers of each lane for every part.
                let of = |which: usize| unsafe { *scratch.add((index * 2 + which) * LANES + lane) };
                (self.part(index).count as f64, f64::from(of(0)), f64::from(of(1)))
            });
            let sums = match self.what {
                What::Moments => moments(parts),
                _ => parts.fold([0.0; 2], |sums, (_, a, b)| [sums[0] + a, sums[1] + b]),
            };
            for (output, sum) in step.outputs.iter().zip(sums) {
                // SAFETY: results have a number for every lane; nothing runs beside this.
                unsafe { *memory.address(output).cast::<f32>().add(block * LANES + lane) = sum as f32 };
            }
        }
    }
}

/// Mean and variance of parts: numbers of elements, sums, and sums of squares around the parts' own means.
fn moments(parts: impl Iterator<Item = (f64, f64, f64)> + Clone) -> [f64; 2] {
    let count: f64 = parts.clone().map(|part| part.0).sum();
    let mean = parts.clone().map(|part| part.1).sum::<f64>() / count;
    let around = |(count, sum, squares): (f64, f64, f64)| {
        let distance = sum / count - mean;
        squares + count * distance * distance
    };
    [mean, parts.map(around).sum::<f64>() / count]
}
