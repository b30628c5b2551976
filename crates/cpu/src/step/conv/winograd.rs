//! Convolutions with 3 × 3 windows and unit strides by Winograd's F(2×2, 3×3): less than half the
//! multiplications of the direct kernels. A task takes some rows of tiles: it transforms their inputs once,
//! then makes its output blocks one or two at a time: a product of matrices per point, the transform back, and
//! all that follows.
//!
//! Errors are those of sums of as many products as there are input channels, not nine times as many, and a few
//! additions: no larger than the direct sums' (`tests/winograd.rs` measures both). Like them they are relative
//! to the largest inputs near, here of a tile of 4 × 4. An infinite input makes all results of its tiles NaN.
//!
//! The floor is 16/36 of the direct kernels' multiply-adds. Transforms add some 12 % with 64 channels, less
//! with more.

#![allow(unsafe_code)]

use super::TASK_BYTES;
use super::finish::FinishSpec;
use super::pack::Weights;
use crate::allocation::Line;
use crate::exec::{Memory, Run};
use crate::kernel::conv::{Tap, Tile, Tiles};
use crate::kernel::finish::Finish;
use crate::kernel::gemm::split_rows;
use crate::kernel::lanes::LANES;
use crate::kernel::winograd::{Area, POINTS, Transforms};
use crate::pool::Pool;
use crate::step::Step;
use crate::step::gemm::Shared;
use crate::step::program::Program;
use std::cell::RefCell;
use std::ops::Range;

pub struct Winograd {
    pub images: usize,
    /// Input and output channels.
    pub inputs: usize,
    pub outputs: usize,
    pub from: [usize; 2],
    pub to: [usize; 2],
    pub low: [i64; 2],
    pub tiles: &'static Tiles,
    pub transforms: Transforms,
    /// Of the sums as the convolution is defined.
    pub multiply_adds: u64,
    pub finish: FinishSpec,
    /// As of [`super::Conv`].
    pub epilogue: Option<Program>,
}

/// How weights `[outputs, inputs, 3, 3]` are transformed and packed: `[piece][point][input][block][LANES]`.
#[derive(Clone, Debug)]
pub struct Packing {
    pub outputs: usize,
    pub inputs: usize,
    pub blocks: usize,
}

impl Packing {
    pub fn elements(&self) -> usize {
        POINTS * self.inputs * self.outputs.next_multiple_of(LANES)
    }

    pub fn key(&self) -> [usize; 5] {
        [1, self.outputs, self.inputs, self.blocks, usize::MAX]
    }

    /// # Safety
    /// The weights lie in memory; `to` has room for [`Packing::elements`].
    pub unsafe fn run(&self, from: Weights, to: Shared, pool: &Pool) {
        let pieces: Vec<Range<usize>> = pieces(self.outputs, self.blocks).collect();
        pool.run(pieces.len(), &|index| {
            let piece = &pieces[index];
            let lanes = piece.len() * LANES;
            let base = to.address().wrapping_add(piece.start * LANES * POINTS * self.inputs);
            for input in 0..self.inputs {
                let taps = self.taps(&from, piece.start * LANES, input);
                // Together, because the places of different points may share their set of the cache.
                let rows = transformed(&taps);
                for (point, row) in rows.iter().enumerate() {
                    // SAFETY: the piece's part of the packed weights, and a row of at most two blocks.
                    unsafe {
                        let to = base.add((point * self.inputs + input) * lanes);
                        std::ptr::copy_nonoverlapping(row.as_ptr(), to, lanes);
                    }
                }
            }
        });
    }
}

/// A number for each output of a piece.
type Outputs<T> = [T; 2 * LANES];

impl Packing {
    /// The taps of an input, of outputs from `first` on; zeros behind the last output.
    fn taps(&self, from: &Weights, first: usize, input: usize) -> [Outputs<f64>; 9] {
        let mut taps = [[0.0; 2 * LANES]; 9];
        for lane in 0..(2 * LANES).min(self.outputs - first) {
            let weights = from.window(first + lane, input);
            for (tap, outputs) in taps.iter_mut().enumerate() {
                // SAFETY: the weights of an output and an input channel have nine taps.
                outputs[lane] = f64::from(unsafe { *weights(tap / 3, tap % 3) });
            }
        }
        taps
    }
}

/// G g Gᵀ, rounded once.
fn transformed(g: &[Outputs<f64>; 9]) -> [Outputs<f32>; POINTS] {
    let along = |g: [f64; 3]| [g[0], (g[0] + g[1] + g[2]) * 0.5, (g[0] - g[1] + g[2]) * 0.5, g[2]];
    let mut columns = [[[0.0; 2 * LANES]; 3]; 4];
    for column in 0..3 {
        for lane in 0..2 * LANES {
            let points = along([0, 1, 2].map(|row| g[row * 3 + column][lane]));
            (0..4).for_each(|row| columns[row][column][lane] = points[row]);
        }
    }
    let mut points = [[0.0; 2 * LANES]; POINTS];
    for (row, columns) in columns.iter().enumerate() {
        for lane in 0..2 * LANES {
            let values = along([0, 1, 2].map(|column| columns[column][lane]));
            (0..4).for_each(|column| points[row * 4 + column][lane] = values[column] as f32);
        }
    }
    points
}

/// Output blocks made together.
fn pieces(outputs: usize, blocks: usize) -> impl Iterator<Item = Range<usize>> {
    let all = outputs.div_ceil(LANES);
    (0..all).step_by(blocks).map(move |first| first..(first + blocks).min(all))
}

thread_local! {
    /// Points of inputs, and of results.
    static ROOM: RefCell<[Vec<Line>; 2]> = const { RefCell::new([Vec::new(), Vec::new()]) };
}

/// Least tiles that make use of weights once they are in the L1 cache.
const LEAST_TILES: usize = 28;

impl Winograd {
    /// Rows of tiles of a task, so that the points of its inputs stay in the L2 cache.
    fn rows_per_task(&self) -> usize {
        let (rows, columns) = (self.to[0].div_ceil(2), self.to[1].div_ceil(2));
        let row_bytes = columns * POINTS * self.inputs.next_multiple_of(LANES) * 4;
        let least = LEAST_TILES.div_ceil(columns);
        let most = (TASK_BYTES / row_bytes).max(least).min(rows);
        rows.div_ceil(rows.div_ceil(most))
    }
}

fn room(lines: &mut Vec<Line>, elements: usize) -> *mut f32 {
    let needed = (elements * 4).div_ceil(64);
    if lines.len() < needed {
        lines.resize(needed, Line::ZERO);
    }
    lines.as_mut_ptr().cast()
}

pub fn run(winograd: &Winograd, step: &Step, run: &mut Run) {
    if step.outputs[0].num_elements() == 0 {
        return;
    }
    let rows = winograd.to[0].div_ceil(2);
    let per_task = winograd.rows_per_task();
    let parts = rows.div_ceil(per_task);
    let pieces: Vec<Range<usize>> = pieces(winograd.outputs, winograd.tiles.blocks).collect();
    let threads = run.pool.threads();
    let wanted = if threads == 1 { 1 } else { (threads * 2).div_ceil(winograd.images * parts) };
    let shares = wanted.clamp(1, pieces.len());
    let memory = run.memory;
    run.pool.run(winograd.images * parts * shares, &|index| {
        let (rest, share) = (index / shares, index % shares);
        let first = rest % parts * per_task;
        let own = share * pieces.len() / shares..(share + 1) * pieces.len() / shares;
        let rows = first..(first + per_task).min(rows);
        let task = Task { winograd, step, memory, image: rest / parts, rows, pieces: &pieces[own] };
        ROOM.with_borrow_mut(|[inputs, results]| task.run(inputs, results));
    });
}

struct Task<'a> {
    winograd: &'a Winograd,
    step: &'a Step,
    memory: Memory<'a>,
    image: usize,
    /// Rows of tiles.
    rows: Range<usize>,
    pieces: &'a [Range<usize>],
}

impl Task<'_> {
    fn columns(&self) -> usize {
        self.winograd.to[1].div_ceil(2)
    }

    fn tiles(&self) -> usize {
        self.rows.len() * self.columns()
    }

    fn area(&self, size: [usize; 2], blocks: usize) -> Area {
        Area {
            size,
            low: self.winograd.low,
            rows: self.rows.clone(),
            columns: self.columns(),
            // A line more: points a power of two apart would share the L1 cache's sets.
            pitch: (blocks * self.tiles() + 1) * LANES,
        }
    }

    fn run(&self, inputs: &mut Vec<Line>, results: &mut Vec<Line>) {
        let winograd = self.winograd;
        let blocks = winograd.inputs.div_ceil(LANES);
        let (from, to) = (self.area(winograd.from, blocks), self.area(winograd.to, winograd.tiles.blocks));
        let points = room(inputs, POINTS * from.pitch);
        let sums = room(results, POINTS * to.pitch);
        let plane = from.size[0] * from.size[1] * LANES;
        let x = self.memory.address(&self.step.inputs[1]).cast::<f32>().cast_const();
        let x = x.wrapping_add(self.image * blocks * plane);
        for block in 0..blocks {
            let to = points.wrapping_add(block * self.tiles() * LANES);
            // SAFETY: a plane of the operand; the room holds all blocks' tiles of all points.
            unsafe { (winograd.transforms.input)(&from, x.wrapping_add(block * plane), to) };
        }
        let tap = |block: usize| Tap {
            offset: (block * self.tiles() * LANES) as u32,
            lanes: LANES.min(winograd.inputs - block * LANES) as u32,
        };
        let taps: Vec<Tap> = (0..blocks).map(tap).collect();
        for piece in self.pieces {
            self.products(piece, &taps, (points, from.pitch), (sums, to.pitch));
            self.results(piece, &to, sums);
        }
    }

    fn products(&self, piece: &Range<usize>, taps: &[Tap], from: (*mut f32, usize), to: (*mut f32, usize)) {
        let winograd = self.winograd;
        let split = split_rows(self.tiles(), winograd.tiles.pixels);
        let weights = self.memory.address(&self.step.inputs[0]).cast::<f32>().cast_const();
        let weights = weights.wrapping_add(piece.start * LANES * POINTS * winograd.inputs);
        for point in 0..POINTS {
            for tile in 0..split.tiles {
                let (begin, pixels) = (split.begin(tile), split.height(tile));
                let call = Tile {
                    x: from.0.wrapping_add(point * from.1 + begin * LANES),
                    taps,
                    weights: weights.wrapping_add(point * winograd.inputs * piece.len() * LANES),
                    y: to.0.wrapping_add(point * to.1 + begin * LANES),
                    block: self.tiles() * LANES,
                    mask: u16::MAX,
                    finish: Finish::NONE,
                };
                // SAFETY: the points of the task's tiles, the packed weights of the piece and the point, and
                // room for their products; the level is one the processor has.
                unsafe { winograd.tiles.blocked[piece.len() - 1][pixels - 1](&call) };
            }
        }
    }

    fn results(&self, piece: &Range<usize>, area: &Area, sums: *mut f32) {
        let winograd = self.winograd;
        let [height, width] = winograd.to;
        let pixels = height * width;
        let output = self.memory.address(&self.step.outputs[0]).cast::<f32>();
        let all = winograd.outputs.div_ceil(LANES);
        for (index, block) in piece.clone().enumerate() {
            let at = (self.image * all + block) * pixels;
            let finish = winograd.finish.finish(self.step, self.memory, self.image, block, at * LANES);
            let from = sums.cast_const().wrapping_add(index * self.tiles() * LANES);
            // SAFETY: the block's points, its plane of the result, of which these rows are this task's alone,
            // and of the residual.
            unsafe { (winograd.transforms.output)(area, from, output.wrapping_add(at * LANES), &finish) };
            let rows = 2 * self.rows.start..(2 * self.rows.end).min(height);
            let positions = (at + rows.start * width) * LANES..(at + rows.end * width) * LANES;
            let (program, first) = (winograd.epilogue.as_ref(), 2 + winograd.finish.operands());
            winograd.finish.run_after(program, self.step, self.memory, positions, first);
        }
    }
}

/// Whether this beats the direct kernels: enough channels to share the transforms, enough tiles that are whole.
pub fn suits(conv: &pando_graph::Conv, window: [usize; 2], channels: [usize; 2], to: [usize; 2]) -> bool {
    let plain = conv.groups == 1 && conv.strides == [1, 1] && conv.kernel_dilation == [1, 1];
    window == [3, 3]
        && plain
        && channels.into_iter().all(|count| count >= 32)
        && to.into_iter().all(|size| size >= 6)
}
