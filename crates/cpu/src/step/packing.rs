//! Packing of constant sides of products, run while planning and shared by all plans of a model.

#![allow(unsafe_code)]

use super::gemm::{Matrix, Shared};
use super::{Step, conv};
use crate::exec::Run;
use crate::kernel::gemm::{pack_a, pack_b, split_rows};
use crate::view::Strides;

pub enum Packing {
    Left { matrix: Matrix, batch: usize, m: usize, k: usize, rows: usize },
    Right { matrix: Matrix, k: usize, n: usize, columns: usize },
    Conv(conv::pack::Packing),
}

impl Packing {
    /// What tells packings of one view apart: the side, sizes and strides.
    pub fn key(&self) -> ([usize; 5], Strides) {
        let (sizes, matrix) = match self {
            Packing::Conv(packing) => return (packing.key(), Strides::new()),
            Packing::Left { batch, m, k, rows, matrix } => ([0, *batch, *m, *k, *rows], matrix),
            Packing::Right { k, n, columns, matrix } => ([1, *k, *n, *columns, 0], matrix),
        };
        let strides = matrix.batch_strides.iter().chain([&matrix.row, &matrix.column]);
        (sizes, strides.copied().collect())
    }
}

pub fn run(packing: &Packing, step: &Step, run: &mut Run) {
    let memory = run.memory;
    let to = Shared(memory.address(&step.outputs[0]).cast::<f32>());
    match *packing {
        Packing::Conv(ref packing) => {
            let from = memory.address(&step.inputs[0]).cast::<f32>();
            // SAFETY: the weights are dense, the output was made for the packing.
            unsafe { packing.run(from, to.address()) };
        }
        Packing::Left { ref matrix, batch, m, k, rows } => {
            let split = split_rows(m, rows);
            run.pool.run(batch * split.tiles, &|task| {
                let (batch, tile) = (task / split.tiles, task % split.tiles);
                let begin = split.begin(tile);
                let source = matrix.source(memory, &step.inputs[0], batch);
                let target = to.address().wrapping_add((batch * m + begin) * k);
                // SAFETY: the tile lies in the operand; tasks write disjoint tiles.
                unsafe { pack_a(source.at(begin, 0), split.height(tile), k, target) };
            });
        }
        Packing::Right { ref matrix, k, n, columns } => {
            run.pool.run(n.div_ceil(columns), &|panel| {
                let first = panel * columns;
                let source = matrix.source(memory, &step.inputs[0], 0);
                let target = to.address().wrapping_add(first * k);
                // SAFETY: the panel lies in the operand; tasks write disjoint panels.
                unsafe { pack_b(source.at(0, first), k, columns.min(n - first), columns, target) };
            });
        }
    }
}
