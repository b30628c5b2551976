//! Products of matrices: dot and convolution. Left and right sides come packed (constants), strided, or (right
//! side of convolutions) as windows. Results are made in blocks that stay in the L2 cache, and the
//! elementwise work that follows is done there ([`Gemm::epilogue`]).
//!
//! First all threads pack what is strided on the left, then they share blocks of results. Sums run over k in
//! the same order whatever the number of threads: blocks of [`K_BLOCK`], each summed in registers.
//!
//! The floor is the multiply-add units (see `kernel/gemm.rs`); with few rows it is reading the right side
//! from memory once.

#![allow(unsafe_code)]

use super::Step;
use super::program::{Access, Program};
use super::windows::Windows;
use crate::exec::{Line, Memory, Run};
use crate::kernel::gemm::{RowSplit, Source, Tiles, copy_row, pack_a, pack_b, prefetch, split_rows};
use crate::view::{Sizes, Strides, View};
use pando_base::DType;
use smallvec::SmallVec;
use std::cell::RefCell;

/// Steps of k per pass: a tile of A (14 × 384 f32, 21 KiB) stays in L1 while panels of B pass by.
pub const K_BLOCK: usize = 384;
/// As [`K_BLOCK`], for integers: 256 products of 8-bit numbers (255 × 255 at most) stay below 2^24.
pub const INTEGER_BLOCK: usize = 256;
/// Rows between asking for memory and using it: some 500 ns.
const PREFETCH_ROWS: usize = 4;
/// Columns of a block: its part of B (384 × 320 f32, 480 KiB) stays in L2.
const COLUMNS: usize = 320;
/// Rows of a block where B is packed already, so that a block of results stays in L2 too.
const ROWS: usize = 252;

/// Where a side of the product is: strides of its matrices, and of the batch they form.
#[derive(Clone, Debug)]
pub struct Matrix {
    pub dtype: DType,
    pub batch_sizes: Sizes,
    pub batch_strides: Strides,
    pub row: isize,
    pub column: isize,
}

pub enum Left {
    /// Packed before, so many matrices in turn.
    Packed(usize),
    Strided(Matrix),
}

pub enum Right {
    /// Packed before: one matrix for all.
    Packed,
    Strided(Matrix),
    Windows(Windows),
}

pub struct Gemm {
    pub batch: usize,
    pub m: usize,
    /// Columns of the result.
    pub n: usize,
    pub k: usize,
    pub left: Left,
    pub right: Right,
    pub tiles: &'static Tiles,
    /// Operands are integers of 8 bits: each block of k is summed in f32, where it is exact
    /// ([`INTEGER_BLOCK`]), and blocks are added as i32. The epilogue's first input is then i32.
    pub integers: bool,
    /// Its first input is the product, `f32[batch, m, n]`; the others are the step's from the third on.
    pub epilogue: Option<Program>,
}

impl Gemm {
    fn k_block(&self) -> usize {
        if self.integers { INTEGER_BLOCK } else { K_BLOCK }
    }

    pub fn split(&self) -> RowSplit {
        split_rows(self.m, self.tiles.rows)
    }

    /// Scratch: the packed left side, then padded planes; elements.
    pub fn scratch_elements(&self) -> [usize; 2] {
        let left = match &self.left {
            Left::Packed(_) => 0,
            Left::Strided(_) => (self.batch * self.m * self.k).max(16),
        };
        let planes = match &self.right {
            Right::Windows(Windows { planes: Some(planes), .. }) => planes.channels * planes.channel_size(),
            _ => 0,
        };
        // A panel may be read up to its end behind the last window.
        [left.next_multiple_of(16), if planes > 0 { planes + 64 } else { 0 }]
    }
}

impl Matrix {
    pub fn source(&self, memory: Memory, view: &View, batch: usize) -> Source {
        let (mut rest, mut offset) = (batch, 0);
        for (&size, &stride) in self.batch_sizes.iter().zip(&self.batch_strides).rev() {
            offset += (rest % size.max(1)) as isize * stride;
            rest /= size.max(1);
        }
        let address = memory.address(view).wrapping_offset(offset * self.dtype.size_bytes() as isize);
        Source { address, dtype: self.dtype, row: self.row, column: self.column }
    }
}

/// How the results are cut into tasks.
struct Blocks {
    row_blocks: RowSplit,
    /// Units (columns, or rows of windows) per block.
    units: usize,
    column_blocks: usize,
}

pub fn run(gemm: &Gemm, step: &Step, run: &mut Run) {
    if gemm.batch * gemm.m * gemm.n == 0 {
        return;
    }
    let [left_elements, _] = gemm.scratch_elements();
    let memory = run.memory;
    let scratch = step.scratch.as_ref().map(|view| memory.address(view).cast::<f32>());
    let blocks = blocks(gemm, run.pool.threads());
    let packed = match &gemm.left {
        Left::Packed(_) => memory.address(&step.inputs[0]).cast::<f32>(),
        // Rows that only one block uses are packed there, tile by tile, and never leave the L1 cache.
        Left::Strided(_) if blocks.column_blocks == 1 => std::ptr::null_mut(),
        Left::Strided(matrix) => {
            let to = scratch.expect("a strided left side has scratch");
            pack_left(gemm, matrix, step, to, run);
            to
        }
    };
    let mut planes = memory.address(&step.inputs[1]).cast::<f32>().cast_const();
    if let (Right::Windows(Windows { planes: Some(spec), .. }), Some(view)) = (&gemm.right, &step.scratch) {
        let to = View { offset: view.offset + left_elements as isize * 4, ..view.clone() };
        spec.fill(memory, &step.inputs[1], &to, run.pool);
        planes = memory.address(&to).cast::<f32>().cast_const();
    }
    let task = Task { gemm, step, memory, packed: Shared(packed), planes: Shared(planes.cast_mut()), blocks };
    let (rows, columns) = (task.blocks.row_blocks.tiles, task.blocks.column_blocks);
    run.pool.run(gemm.batch * rows * columns, &|index| {
        // Neighbouring tasks share columns: the right side is in the cache already.
        let (rest, row) = (index / rows, index % rows);
        task.run(rest / columns, row, rest % columns);
    });
}

/// An address that tasks share.
#[derive(Clone, Copy)]
pub struct Shared(pub *mut f32);

impl Shared {
    pub fn address(self) -> *mut f32 {
        self.0
    }
}

// SAFETY: only an address; what may be done with it is said where it is used.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

fn pack_left(gemm: &Gemm, matrix: &Matrix, step: &Step, to: *mut f32, run: &Run) {
    let split = gemm.split();
    let to = Shared(to);
    let memory = run.memory;
    let tasks = gemm.batch * split.tiles;
    // A tile is some microseconds of work: hand out several at a time.
    let parts = if tasks * gemm.k < 4096 { 1 } else { tasks.min(run.pool.threads() * 4) };
    run.pool.run(parts, &|part| {
        for task in part * tasks / parts..(part + 1) * tasks / parts {
            let (batch, tile) = (task / split.tiles, task % split.tiles);
            let begin = split.begin(tile);
            let source = matrix.source(memory, &step.inputs[0], batch);
            let target = to.address().wrapping_add((batch * gemm.m + begin) * gemm.k);
            // SAFETY: the tile lies in the operand; each task writes its own part of the scratch.
            unsafe { pack_a(source.at(begin, 0), split.height(tile), gemm.k, target) };
        }
    });
}

/// Columns in blocks that fill whole panels as well as they can, enough blocks for all threads.
fn blocks(gemm: &Gemm, threads: usize) -> Blocks {
    let panel = gemm.tiles.columns;
    let (units, width_of): (usize, &dyn Fn(usize) -> usize) = match &gemm.right {
        Right::Windows(windows) => (windows.runs.len(), &|units: usize| {
            windows.runs[units.min(windows.runs.len()) - 1] + windows.run_length
        }),
        _ => (gemm.n.div_ceil(panel), &|units: usize| units * panel),
    };
    let row_blocks = match gemm.right {
        Right::Packed => split_rows(gemm.split().tiles, ROWS / gemm.tiles.rows),
        _ => split_rows(gemm.split().tiles, usize::MAX),
    };
    let others = gemm.batch * row_blocks.tiles;
    let wanted = if threads == 1 { 1 } else { (threads * 4).div_ceil(others) };
    let most = units.div_ceil(wanted.min(units)).max(1);
    // The least half panels in all; of equals the largest block.
    let cost = |per: usize| units.div_ceil(per) * width_of(per).div_ceil(panel / 2);
    let fits = |per: &usize| *per == 1 || width_of(*per) <= COLUMNS;
    let best = (1..=most).rev().filter(fits).min_by_key(|&per| cost(per)).unwrap_or(1);
    Blocks { row_blocks, units: best, column_blocks: units.div_ceil(best) }
}

thread_local! {
    /// A block's part of B, its results before the epilogue, and a tile of A.
    static ROOM: RefCell<[Vec<Line>; 3]> = const { RefCell::new([Vec::new(), Vec::new(), Vec::new()]) };
}

fn room(lines: &mut Vec<Line>, elements: usize) -> *mut f32 {
    let needed = (elements * 4).div_ceil(64);
    if lines.len() < needed {
        lines.resize(needed, Line::ZERO);
    }
    lines.as_mut_ptr().cast()
}

struct Task<'a> {
    gemm: &'a Gemm,
    step: &'a Step,
    memory: Memory<'a>,
    packed: Shared,
    planes: Shared,
    blocks: Blocks,
}

/// Adds `count` whole numbers in f32 to, or makes them, the i32 behind them.
///
/// # Safety
/// `sums` has room for twice as many elements.
unsafe fn add_as_integers(sums: *mut f32, count: usize, add: bool) {
    // SAFETY: as stated; the halves do not overlap.
    let (sums, totals) = unsafe {
        let totals = sums.add(count).cast::<i32>();
        (std::slice::from_raw_parts(sums, count), std::slice::from_raw_parts_mut(totals, count))
    };
    for (total, &sum) in totals.iter_mut().zip(sums) {
        *total = if add { total.wrapping_add(sum as i32) } else { sum as i32 };
    }
}

/// A block of results: tiles of rows, columns with gaps (virtual) and without.
#[derive(Clone, Copy)]
struct Block {
    batch: usize,
    tiles: (usize, usize),
    /// First row and number of rows.
    rows: (usize, usize),
    /// First column and number of columns, gaps included.
    wide: (usize, usize),
    /// First column and number of columns of the result.
    columns: (usize, usize),
}

impl Task<'_> {
    fn run(&self, batch: usize, row: usize, column: usize) {
        let block = self.block(batch, row, column);
        let gemm = self.gemm;
        let direct = gemm.epilogue.is_none() && block.wide.1 == block.columns.1;
        ROOM.with_borrow_mut(|[right, results, tile]| {
            let panels = block.wide.1.div_ceil(gemm.tiles.columns);
            let right = room(right, panels * gemm.tiles.columns * gemm.k_block().min(gemm.k.max(1)));
            let (c, stride) = if direct {
                (self.output(block.batch, block.rows.0, block.columns.0), gemm.n)
            } else {
                (room(results, block.rows.1 * block.wide.1 * (1 + usize::from(gemm.integers))), block.wide.1)
            };
            let tile = room(tile, gemm.tiles.rows * K_BLOCK);
            // SAFETY: c has the block's rows and columns; right has room for its panels, tile for a tile of a
            // block of k. All are ours.
            unsafe { self.product(block, [tile, right], c, stride) };
            if !direct {
                let totals = if gemm.integers { block.rows.1 * block.wide.1 } else { 0 };
                // SAFETY: c holds the block's results; those of integers are i32, of the same size.
                unsafe { self.finish(block, c.add(totals)) };
            }
        });
    }

    fn block(&self, batch: usize, row: usize, column: usize) -> Block {
        let gemm = self.gemm;
        let split = gemm.split();
        let first = self.blocks.row_blocks.begin(row);
        let last = first + self.blocks.row_blocks.height(row);
        let rows = (split.begin(first), split.begin(last) - split.begin(first));
        let (begin, end) = (column * self.blocks.units, (column + 1) * self.blocks.units);
        let (wide, columns) = match &gemm.right {
            Right::Windows(windows) => {
                let (runs, length) = (&windows.runs, windows.run_length);
                let end = end.min(runs.len());
                let wide = (runs[begin], runs[end - 1] + length - runs[begin]);
                (wide, (begin * length, (end - begin) * length))
            }
            _ => {
                let begin = begin * gemm.tiles.columns;
                let columns = (begin, (end * gemm.tiles.columns).min(gemm.n) - begin);
                (columns, columns)
            }
        };
        Block { batch, tiles: (first, last), rows, wide, columns }
    }

    /// The address of a result.
    fn output(&self, batch: usize, row: usize, column: usize) -> *mut f32 {
        let position = (batch * self.gemm.m + row) * self.gemm.n + column;
        self.memory.address(&self.step.outputs[0]).cast::<f32>().wrapping_add(position)
    }

    /// # Safety
    /// `c` has room for the block at `stride`, the rooms for a tile and for the block's panels of a block of k.
    unsafe fn product(&self, block: Block, rooms: [*mut f32; 2], c: *mut f32, stride: usize) {
        let gemm = self.gemm;
        let (split, panel) = (gemm.split(), gemm.tiles.columns);
        let mut begin = 0;
        loop {
            let k = gemm.k_block().min(gemm.k - begin);
            // SAFETY: passed on.
            let (b, b_stride) = unsafe { self.right(block, begin, k, rooms[1]) };
            for tile in block.tiles.0..block.tiles.1 {
                let (row, height) = (split.begin(tile), split.height(tile));
                // SAFETY: passed on.
                let a = unsafe { self.left(block.batch, (row, height), (begin, k), rooms[0]) };
                let kernel = gemm.tiles.kernels[height - 1];
                for (index, first) in (0..block.wide.1).step_by(panel).enumerate() {
                    let columns = panel.min(block.wide.1 - first);
                    let c = c.wrapping_add((row - block.rows.0) * stride + first);
                    // SAFETY: a tile of the packed left side, a panel of the right one, and their results,
                    // which are this task's alone. The level is one the processor has.
                    unsafe {
                        kernel(
                            k,
                            a,
                            b.wrapping_add(index * b_stride),
                            c,
                            stride,
                            columns,
                            begin > 0 && !gemm.integers,
                        )
                    };
                }
            }
            if gemm.integers {
                // SAFETY: integers are never direct: the block's i32 totals follow its f32 sums.
                unsafe { add_as_integers(c, block.rows.1 * stride, begin > 0) };
            }
            begin += k;
            if begin >= gemm.k {
                break;
            }
        }
    }

    /// A tile of the left side for `k` steps from `begin` on: packed already, or packed now.
    ///
    /// # Safety
    /// `room` has room for the tile.
    unsafe fn left(
        &self,
        batch: usize,
        (row, height): (usize, usize),
        (begin, k): (usize, usize),
        room: *mut f32,
    ) -> *const f32 {
        let gemm = self.gemm;
        let batch_of = match &gemm.left {
            Left::Strided(matrix) if self.packed.0.is_null() => {
                let source = matrix.source(self.memory, &self.step.inputs[0], batch);
                // SAFETY: the tile lies in the operand; the room is ours.
                unsafe { pack_a(source.at(row, begin), height, k, room) };
                return room;
            }
            Left::Packed(count) => batch % count,
            Left::Strided(_) => batch,
        };
        self.packed.0.wrapping_add(batch_of * gemm.m * gemm.k + row * gemm.k + begin * height)
    }

    /// The block's panels for `k` steps from `begin` on, and the distance of panels.
    ///
    /// # Safety
    /// `room` has room for the panels.
    unsafe fn right(&self, block: Block, begin: usize, k: usize, room: *mut f32) -> (*const f32, usize) {
        let gemm = self.gemm;
        let panel = gemm.tiles.columns;
        let view = &self.step.inputs[1];
        let firsts = (0..block.wide.1).step_by(panel).enumerate();
        match &gemm.right {
            Right::Packed => {
                let packed = self.memory.address(view).cast::<f32>();
                let panels = block.wide.0 / panel;
                (packed.wrapping_add((panels * gemm.k + begin) * panel), gemm.k * panel)
            }
            Right::Strided(matrix) => {
                let source = matrix.source(self.memory, view, block.batch);
                for (index, first) in firsts {
                    let columns = panel.min(block.wide.1 - first);
                    // SAFETY: rows and columns lie in the operand; the room is ours.
                    unsafe {
                        let source = source.at(begin, block.wide.0 + first);
                        pack_b(source, k, columns, panel, room.add(index * k * panel));
                    }
                }
                (room, k * panel)
            }
            Right::Windows(windows) => {
                let (image, group) = (block.batch / windows.groups, block.batch % windows.groups);
                let base = image * windows.image_size + group * windows.group_size + block.wide.0;
                let base = self.planes.0.wrapping_add(base);
                for (index, first) in firsts {
                    let columns = panel.min(block.wide.1 - first);
                    for (step, &offset) in windows.offsets[begin..begin + k].iter().enumerate() {
                        let from = base.wrapping_add(first + offset);
                        // SAFETY: the columns of this kernel element lie in the planes (see
                        // `plan/conv.rs`); the room is ours.
                        unsafe { copy_row(from, room.add((index * k + step) * panel), columns, panel) };
                    }
                }
                (room, k * panel)
            }
        }
    }

    /// Closes the gaps of a block of results, and runs the epilogue from it into the output.
    ///
    /// # Safety
    /// `c` holds the block, gaps included.
    unsafe fn finish(&self, block: Block, c: *mut f32) {
        let (rows, wide, columns) = (block.rows.1, block.wide.1, block.columns.1);
        if wide != columns {
            // SAFETY: runs move towards the front, in order: none is overwritten before it has moved.
            unsafe { self.close_gaps(block, c) };
        }
        let Some(epilogue) = &self.gemm.epilogue else {
            for row in 0..rows {
                let to = self.output(block.batch, block.rows.0 + row, block.columns.0);
                // SAFETY: a row of the block and its place in the output, which is this task's alone.
                unsafe { std::ptr::copy_nonoverlapping(c.add(row * columns), to, columns) };
            }
            return;
        };
        let mut inputs: SmallVec<[*const u8; 8]> = SmallVec::from_elem(c.cast::<u8>().cast_const(), 1);
        inputs.extend(self.step.inputs[2..].iter().map(|view| self.memory.address(view).cast_const()));
        let output = self.memory.address(&self.step.outputs[0]);
        // Rows that follow each other in the output are one run.
        let (runs, length) = if columns == self.gemm.n { (1, rows * columns) } else { (rows, columns) };
        for run in 0..runs {
            self.prefetch(epilogue, &inputs, block, run + PREFETCH_ROWS);
            let begin = (block.batch * self.gemm.m + block.rows.0 + run) * self.gemm.n + block.columns.0;
            inputs[0] = c.cast::<u8>().wrapping_add(run * length * 4).wrapping_sub(begin * 4);
            // SAFETY: the program was made for these inputs; position `begin` of the first is the run's
            // first element. Positions are this task's alone.
            unsafe { epilogue.run(&inputs, output, begin, length) };
        }
    }

    /// Asks for the memory that the epilogue will use for a row of the block: rows are far apart and too
    /// short for the processor to see a pattern (a residual of 802,816 elements took 0.9 ms longer).
    fn prefetch(&self, epilogue: &Program, inputs: &[*const u8], block: Block, row: usize) {
        if row >= block.rows.1 || block.columns.1 == self.gemm.n {
            return;
        }
        let begin = (block.batch * self.gemm.m + block.rows.0 + row) * self.gemm.n + block.columns.0;
        for (input, &address) in epilogue.inputs.iter().zip(inputs).skip(1) {
            if matches!(input.access, Access::Dense) {
                prefetch(address.wrapping_add(begin * input.size_bytes), block.columns.1 * input.size_bytes);
            }
        }
        let output = self.memory.address(&self.step.outputs[0]).cast_const();
        prefetch(output.wrapping_add(begin * epilogue.output_bytes), block.columns.1 * epilogue.output_bytes);
    }

    /// # Safety
    /// As [`Task::finish`].
    unsafe fn close_gaps(&self, block: Block, c: *mut f32) {
        let Right::Windows(windows) = &self.gemm.right else { return };
        let length = windows.run_length;
        let first = block.columns.0 / length;
        let runs = &windows.runs[first..first + block.columns.1 / length];
        for row in 0..block.rows.1 {
            for (index, run) in runs.iter().enumerate() {
                // SAFETY: both lie in the block; the target never lies behind the source.
                unsafe {
                    let from = c.add(row * block.wide.1 + run - runs[0]);
                    std::ptr::copy(from, c.add(row * block.columns.1 + index * length), length);
                }
            }
        }
    }
}
