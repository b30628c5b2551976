//! Packing of constant sides of products, run while planning and shared by all plans of a model.

#![allow(unsafe_code)]

use super::conv::pack::Weights;
use super::gemm::{Matrix, Shared};
use super::{Step, conv};
use crate::exec::{Memory, Run};
use crate::kernel::gemm::{Tiles, pack_a, pack_words, split_rows};
use crate::pool::Pool;
use crate::view::{Strides, View};

pub enum Packing {
    Left { matrix: Matrix, batch: usize, m: usize, k: usize, rows: usize },
    Right { matrix: Matrix, k: usize, n: usize, tiles: &'static Tiles },
    Conv(conv::pack::Packing),
    Winograd(conv::winograd::Packing),
    UnitConv(conv::unit::Packing),
    Bytes(super::bytes::pack::Pack),
}

impl Packing {
    /// What tells packings of one view apart: the side, sizes and strides.
    pub fn key(&self) -> ([usize; 5], Strides) {
        let (sizes, matrix) = match self {
            Packing::Conv(packing) => return (packing.key(), Strides::new()),
            Packing::Bytes(packing) => return (packing.key(), Strides::new()),
            Packing::Winograd(packing) => return (packing.key(), Strides::new()),
            Packing::UnitConv(packing) => return (packing.key(), Strides::new()),
            Packing::Left { batch, m, k, rows, matrix } => ([0, *batch, *m, *k, *rows], matrix),
            Packing::Right { k, n, tiles, matrix } => {
                let form = ((tiles.word as usize * 4 + tiles.parts) * 32 + tiles.granule) * 2
                    + usize::from(tiles.half);
                ([1, *k, *n, tiles.columns, form], matrix)
            }
        };
        let strides = matrix.batch_strides.iter().chain([&matrix.row, &matrix.column]);
        (sizes, strides.copied().collect())
    }
}

pub fn run(packing: &Packing, step: &Step, run: &mut Run) {
    let to = run.memory.address(&step.outputs[0]).cast::<f32>();
    // SAFETY: the view is the step's operand, the output was made for the packing.
    unsafe { pack(packing, run.memory, &step.inputs[0], to, run.pool) };
}

/// Packs a view to `to`.
///
/// # Safety
/// The packing was made for the view, which lies in memory; `to` has room and is the caller's alone.
pub unsafe fn pack(packing: &Packing, memory: Memory, view: &View, to: *mut f32, pool: &Pool) {
    let to = Shared(to);
    match *packing {
        Packing::Conv(ref packing) => {
            let from = Weights::new(memory.address(view), view);
            // SAFETY: the view has the weights, the output was made for the packing.
            unsafe { packing.run(from, to, pool) };
        }
        Packing::Bytes(ref packing) => {
            // SAFETY: as above.
            unsafe { packing.run(memory.address(view), view, to, pool) };
        }
        Packing::Winograd(ref packing) => {
            let from = Weights::new(memory.address(view), view);
            // SAFETY: as above.
            unsafe { packing.run(from, to, pool) };
        }
        Packing::UnitConv(ref packing) => {
            let from = Weights::new(memory.address(view), view);
            // SAFETY: as above.
            unsafe { packing.run(from, to, pool) };
        }
        Packing::Left { ref matrix, batch, m, k, rows } => {
            let split = split_rows(m, rows);
            pool.run(batch * split.tiles, &|task| {
                let (batch, tile) = (task / split.tiles, task % split.tiles);
                let begin = split.begin(tile);
                let source = matrix.source(memory, view, batch);
                let target = to.address().wrapping_add((batch * m + begin) * k);
                // SAFETY: the tile lies in the operand; tasks write disjoint tiles.
                unsafe { pack_a(source.at(begin, 0), split.height(tile), k, target) };
            });
        }
        Packing::Right { ref matrix, k, n, tiles } => {
            pool.run(n.div_ceil(tiles.columns), &|panel| {
                let first = panel * tiles.columns;
                let source = matrix.source(memory, view, 0);
                let target = to.address().wrapping_add(panel * tiles.panel_words(k));
                // SAFETY: the panel lies in the operand; tasks write disjoint panels.
                unsafe { pack_words(source.at(0, first), tiles, k, tiles.columns.min(n - first), target) };
            });
        }
    }
}
