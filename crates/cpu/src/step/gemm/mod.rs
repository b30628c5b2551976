//! Products of matrices: dot and convolution. Left and right sides come packed (constants), strided, or (right
//! side of convolutions) as windows. Results are made in blocks that stay in the L2 cache ([`blocks`]), tile by
//! tile ([`product`]), and the elementwise work that follows is done there ([`Gemm::epilogue`]).
//!
//! All threads share the blocks of results; nothing is packed for all of them beforehand. Sums run over k in
//! the same order whatever the number of threads: passes ([`Tiles::pass`]), each summed in registers.
//!
//! The floor is the multiply-add units (see `kernel/gemm`); with few rows it is reading the right side from
//! memory once.

#![allow(unsafe_code)]

mod blocks;
mod finish;
mod product;
mod unit;

pub use blocks::Block;
pub use finish::Results;
pub use product::{LeftSide, RightSide, Rooms, room, run_block, with_rooms};
use product::{copied_distance, copy_left};

use super::Step;
use super::program::Program;
use super::windows::Windows;
use crate::exec::{Memory, Run};
use crate::kernel::gemm::{RowSplit, Source, Tiles, split_rows};
use crate::view::{Sizes, Strides, View};
use blocks::Blocks;
use pando_base::DType;

/// Steps of k per pass, for integers in f32: 256 products of 8-bit numbers (255 × 255 at most) stay below 2^24.
pub const INTEGER_BLOCK: usize = 256;

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
    /// Of f32, for rows that `tiles` cannot take.
    pub plain: &'static Tiles,
    /// Operands are integers of 8 bits: each block of k is summed in f32, where it is exact
    /// ([`INTEGER_BLOCK`]), and blocks are added as i32. The epilogue's first input is then i32.
    pub integers: bool,
    /// Its first input is the product, `f32[batch, m, n]`; the others are the step's from the third on.
    pub epilogue: Option<Program>,
    /// Where results go, columns being neighbours; `None`: dense.
    pub target: Option<Matrix>,
}

impl Gemm {
    pub fn k_block(&self) -> usize {
        if self.integers { INTEGER_BLOCK } else { self.tiles.pass() }
    }

    pub fn split(&self) -> RowSplit {
        split_rows(self.m, self.tiles.rows)
    }

    /// Scratch: padded planes, or a copy of the left side; elements.
    pub fn scratch_elements(&self) -> usize {
        match &self.right {
            // A panel may be read up to its end behind the last window.
            Right::Windows(Windows { planes: Some(planes), .. }) => {
                planes.channels * planes.channel_size() + 64
            }
            _ => copied_distance(self).map_or(0, |distance| self.m * distance),
        }
    }

    /// Bytes of a result in memory.
    fn output_bytes(&self) -> usize {
        self.epilogue.as_ref().map_or(4, |epilogue| epilogue.output_bytes)
    }
}

impl Matrix {
    /// Where a matrix of the batch begins, in elements.
    pub fn offset(&self, batch: usize) -> isize {
        let (mut rest, mut offset) = (batch, 0);
        for (&size, &stride) in self.batch_sizes.iter().zip(&self.batch_strides).rev() {
            offset += (rest % size.max(1)) as isize * stride;
            rest /= size.max(1);
        }
        offset
    }

    pub fn source(&self, memory: Memory, view: &View, batch: usize) -> Source {
        let bytes = self.offset(batch) * self.dtype.size_bytes() as isize;
        let address = memory.address(view).wrapping_offset(bytes);
        Source { address, dtype: self.dtype, row: self.row, column: self.column }
    }
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

pub fn run(gemm: &Gemm, step: &Step, run: &mut Run) {
    if gemm.batch * gemm.m * gemm.n == 0 {
        return;
    }
    let memory = run.memory;
    let mut planes = memory.address(&step.inputs[1]).cast::<f32>();
    if let (Right::Windows(Windows { planes: Some(spec), .. }), Some(to)) = (&gemm.right, &step.scratch) {
        spec.fill(memory, &step.inputs[1], to, run.pool);
        planes = memory.address(to).cast::<f32>();
    }
    let planes = Shared(planes);
    let copied = copied_distance(gemm).zip(step.scratch.as_ref());
    let copied = copied.map(|(distance, to)| (Shared(memory.address(to).cast()), distance));
    if let Some((to, distance)) = copied {
        // SAFETY: the left side is the operand; the scratch was made for its copy.
        unsafe { copy_left(gemm, memory, &step.inputs[0], to, distance, run.pool) };
    }
    let blocks = Blocks::of(gemm, run.pool.threads());
    let results = Results { gemm, memory, output: &step.outputs[0], extras: &step.inputs[2..] };
    let (rows, columns) = (blocks.row_blocks.tiles, blocks.column_blocks);
    run.pool.run(gemm.batch * rows * columns, &|index| {
        // Neighbouring tasks share columns: the right side is in the cache already.
        let (rest, row) = (index / rows, index % rows);
        let block = blocks.block(gemm, rest / columns, row, rest % columns);
        let left = match copied {
            Some((rows, distance)) => LeftSide::Copied(rows.address(), distance),
            None => LeftSide::of(gemm, memory, &step.inputs[0], block.batch),
        };
        let right = RightSide::of(gemm, memory, &step.inputs[1], block.batch, planes.address());
        // SAFETY: the sides are the operands; each task has results of its own.
        with_rooms(|rooms| unsafe { results.make(&block, (&left, &right), rooms) });
    });
}
