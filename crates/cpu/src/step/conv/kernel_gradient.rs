//! The gradient of a convolution's kernel over blocks of channels: `[outputs, inputs, height, width]`, each the sum
//! over pixels of an input times a gradient. A task has the sums of some blocks of outputs and of inputs, and
//! goes through all images, some rows at a time: their gradients stay in the L1 cache for all inputs and taps.
//! Inputs are read where they lie or copied once into padded planes ([`Stage`]).
//!
//! The floor is the multiply-add units. Sums do not depend on how tasks are cut.

#![allow(unsafe_code)]

use super::Input;
use super::stage::Stage;
use crate::exec::{Memory, Run};
use crate::kernel::gemm::{Source, interleave, split_rows};
use crate::kernel::kernel_gradient::{Tile, Tiles};
use crate::kernel::lanes::LANES;
use crate::step::Step;
use crate::step::gemm::{Rooms, Shared, room, with_rooms};
use pando_base::DType;
use std::ops::Range;

pub struct KernelGradient {
    pub images: usize,
    /// Output channels in all, input channels of a group.
    pub outputs: usize,
    pub inputs: usize,
    pub groups: usize,
    /// Rows and columns of the gradient; one row where rows need not be told apart.
    pub rows: usize,
    pub columns: usize,
    pub input: Input,
    pub stage: Stage,
    /// Where each tap of the window is, in channel 0 of the stage.
    pub taps: Vec<u32>,
    pub tiles: &'static Tiles,
    pub multiply_adds: u64,
}

/// Pixels whose gradients, two blocks of them, take half of the L1 cache.
pub const CHUNK_PIXELS: usize = 128;

/// Half of a usual L2 cache.
const SUMS_BYTES: usize = 512 << 10;

/// Sums of one task.
struct Task<'a> {
    of: &'a KernelGradient,
    step: &'a Step,
    memory: Memory<'a>,
    group: usize,
    /// Blocks of outputs, of all.
    outputs: Range<usize>,
    /// Blocks of inputs of the group; with planes, all channels.
    inputs: Range<usize>,
}

impl KernelGradient {
    /// Blocks of output channels of a group, and of its inputs.
    fn blocks(&self) -> (usize, usize) {
        let inputs = if self.input == Input::Blocked { self.inputs.div_ceil(LANES) } else { 1 };
        ((self.outputs / self.groups).div_ceil(LANES), inputs)
    }

    /// Parts of a group's outputs and inputs: enough for all threads, sums that stay in the L2 cache, and of such
    /// the least to read, since each part of one side reads all of the other.
    fn cut(&self, threads: usize) -> [usize; 2] {
        let (outputs, inputs) = self.blocks();
        let wanted = if threads == 1 { 1 } else { (threads * 4).div_ceil(self.groups) };
        let input_rows = if self.input == Input::Blocked { LANES } else { self.inputs };
        let sums = |part_outputs: usize, part_inputs: usize| {
            part_outputs * LANES * part_inputs * input_rows * self.taps.len() * 4
        };
        let area = |image: [usize; 2]| image[0] * image[1];
        let (x, gradient) = (inputs * area(self.stage.from), outputs * self.rows * self.columns);
        let mut best = None;
        // Pieces of one block leave half of a tile's registers empty.
        for pieces in 1..=outputs.div_ceil(self.tiles.blocks) {
            let parts = wanted.div_ceil(pieces).clamp(1, inputs);
            let least = outputs.div_ceil(pieces) <= self.tiles.blocks;
            let fits = sums(outputs.div_ceil(pieces), inputs.div_ceil(parts)) <= SUMS_BYTES || least;
            let enough = pieces * parts >= wanted || least;
            let cost = pieces * x + parts * gradient;
            if fits && enough && best.is_none_or(|(least, _)| cost < least) {
                best = Some((cost, [pieces, parts]));
            }
        }
        best.map_or([1, 1], |(_, cut)| cut)
    }

    /// Planes of the stage that a task needs at a time.
    fn channels(&self) -> usize {
        if self.input == Input::Plain { self.stage.channels } else { 1 }
    }
}

pub fn run(of: &KernelGradient, step: &Step, run: &mut Run) {
    if step.outputs[0].num_elements() == 0 {
        return;
    }
    let memory = run.memory;
    if of.input == Input::Depthwise {
        return run.pool.run(of.outputs.div_ceil(LANES), &|block| {
            let task =
                Task { of, step, memory, group: 0, outputs: block..block + 1, inputs: block..block + 1 };
            with_rooms(|rooms| task.run(rooms));
        });
    }
    let (outputs, inputs) = of.blocks();
    let [pieces, parts] = of.cut(run.pool.threads());
    run.pool.run(of.groups * pieces * parts, &|index| {
        // Neighbouring tasks share gradients.
        let (rest, part) = (index / parts, index % parts);
        let (group, piece) = (rest / pieces, rest % pieces);
        let task = Task {
            of,
            step,
            memory,
            group,
            outputs: group * outputs + piece * outputs / pieces
                ..group * outputs + (piece + 1) * outputs / pieces,
            inputs: part * inputs / parts..(part + 1) * inputs / parts,
        };
        with_rooms(|rooms| task.run(rooms));
    });
}

impl Task<'_> {
    fn run(&self, rooms: &mut Rooms) {
        let of = self.of;
        let width = self.outputs.len() * LANES;
        let sums = room(&mut rooms.results, self.rows() * width);
        // SAFETY: the room has that many elements.
        unsafe { std::slice::from_raw_parts_mut(sums, self.rows() * width).fill(0.0) };
        let staged = room(&mut rooms.right, of.channels() * of.stage.channel_elements());
        for image in 0..of.images {
            for first in (0..of.rows).step_by(of.stage.task_rows) {
                let rows = of.stage.task_rows.min(of.rows - first);
                match of.input {
                    Input::Plain => self.planes(image, (first, rows), sums, staged),
                    _ => self.blocks(image, (first, rows), sums, staged),
                }
            }
        }
        self.store(sums);
    }

    /// Rows of sums: a row for each tap of each input, taps of an input following each other.
    fn rows(&self) -> usize {
        let taps = self.of.taps.len();
        match self.of.input {
            Input::Blocked => self.inputs.len() * LANES * taps,
            Input::Plain => self.of.inputs * taps,
            Input::Depthwise => taps,
        }
    }

    /// Rows of an image of channels in blocks.
    fn blocks(&self, image: usize, rows: (usize, usize), sums: *mut f32, staged: *mut f32) {
        let of = self.of;
        let (taps, width) = (of.taps.len(), self.outputs.len() * LANES);
        let (_, per_group) = of.blocks();
        for (index, block) in self.inputs.clone().enumerate() {
            let x = self.x(image, self.group * per_group + block, rows.0, staged);
            if of.input == Input::Depthwise {
                let split = split_rows(taps, of.tiles.rows);
                for part in 0..split.tiles {
                    let (begin, height) = (split.begin(part), split.height(part));
                    let kernel = of.tiles.depthwise[height - 1];
                    let tile = self.tile(image, rows, x, &of.taps[begin..begin + height], 0);
                    // SAFETY: see `Task::tile`; the sums are the task's.
                    unsafe { kernel(&Tile { sums: sums.add(begin * width), sum_row: width, ..tile }) };
                }
                continue;
            }
            for piece in (0..self.outputs.len()).step_by(of.tiles.blocks) {
                let count = of.tiles.blocks.min(self.outputs.len() - piece);
                let kernel = of.tiles.kernels[count - 1][of.tiles.rows - 1];
                for (tap, &at) in of.taps.iter().enumerate() {
                    for lane in (0..LANES).step_by(of.tiles.rows) {
                        let mut offsets = [0; LANES];
                        (0..of.tiles.rows).for_each(|row| offsets[row] = at + (lane + row) as u32);
                        let row = (index * LANES + lane) * taps + tap;
                        let tile = self.tile(image, rows, x, &offsets[..of.tiles.rows], piece);
                        // SAFETY: as above.
                        unsafe {
                            let sums = sums.add(row * width + piece * LANES);
                            kernel(&Tile { sums, sum_row: taps * width, ..tile });
                        }
                    }
                }
            }
        }
    }

    /// Rows of an image of planes.
    fn planes(&self, image: usize, rows: (usize, usize), sums: *mut f32, staged: *mut f32) {
        let of = self.of;
        let (taps, width) = (of.taps.len(), self.outputs.len() * LANES);
        let x = self.x(image, self.group * of.inputs, rows.0, staged);
        let split = split_rows(of.inputs * taps, of.tiles.rows);
        for part in 0..split.tiles {
            let (begin, height) = (split.begin(part), split.height(part));
            let mut offsets = [0; LANES];
            for (row, offset) in (begin..begin + height).zip(&mut offsets) {
                *offset = (row / taps * of.stage.channel_elements()) as u32 + of.taps[row % taps];
            }
            for piece in (0..self.outputs.len()).step_by(of.tiles.blocks) {
                let count = of.tiles.blocks.min(self.outputs.len() - piece);
                let kernel = of.tiles.kernels[count - 1][height - 1];
                let tile = self.tile(image, rows, x, &offsets[..height], piece);
                // SAFETY: see `Task::tile`; the sums are the task's.
                unsafe {
                    let sums = sums.add(begin * width + piece * LANES);
                    kernel(&Tile { sums, sum_row: width, ..tile });
                }
            }
        }
    }

    /// Where the taps of output row `first` are counted from, for planes from `channel` on.
    fn x(&self, image: usize, channel: usize, first: usize, staged: *mut f32) -> *const f32 {
        let stage = &self.of.stage;
        let x = self.memory.address(&self.step.inputs[0]).cast::<f32>().cast_const();
        let x = x.wrapping_add(image * stage.image_elements());
        if !stage.copies {
            return x.wrapping_add(channel * stage.channel_elements() + first * stage.row_elements());
        }
        // SAFETY: the image lies in the operand; the room holds the planes of so many channels.
        unsafe { stage.fill(x, channel..channel + self.of.channels(), first, staged) };
        staged
    }

    /// The pixels of some rows, for outputs from block `piece` of the task's on; taps and stage were made for each
    /// other (`plan/backward.rs`).
    fn tile<'t>(
        &self,
        image: usize,
        (first, rows): (usize, usize),
        x: *const f32,
        offsets: &'t [u32],
        piece: usize,
    ) -> Tile<'t> {
        let of = self.of;
        let pixels = of.rows * of.columns;
        let plane = image * self.of.outputs.div_ceil(LANES) + self.outputs.start + piece;
        let gradient = self.memory.address(&self.step.inputs[1]).cast::<f32>().cast_const();
        Tile {
            x,
            offsets,
            x_pixel: of.stage.lanes,
            x_row: of.stage.row_elements(),
            gradient: gradient.wrapping_add((plane * pixels + first * of.columns) * LANES),
            gradient_row: of.columns * LANES,
            gradient_block: pixels * LANES,
            rows,
            columns: of.columns,
            sums: std::ptr::null_mut(),
            sum_row: 0,
        }
    }

    /// Writes the sums as the kernel lies.
    fn store(&self, sums: *mut f32) {
        let of = self.of;
        let taps = of.taps.len();
        let row = of.inputs * taps;
        let first_input = if of.input == Input::Blocked { self.inputs.start * LANES } else { 0 };
        let rows = self.rows().min(row - first_input * taps);
        let first = self.outputs.start * LANES;
        let outputs = (self.outputs.len() * LANES).min(of.outputs - first);
        let width = (self.outputs.len() * LANES) as isize;
        let from = Source { address: sums.cast(), dtype: DType::F32, row: width, column: 1 };
        let to = Shared(self.memory.address(&self.step.outputs[0]).cast::<f32>()).address();
        // SAFETY: the kernel's rows of these outputs, and in them these inputs, are the task's alone.
        unsafe { interleave(from, rows, outputs, row, to.add(first * row + first_input * taps)) };
    }
}
