//! Operations that only move elements: by exchange where they change tiles, on the tile for transposes.

use super::Emitter;
use crate::layouts::{flat, project};
use crate::plan::{reshaped, untransposed};
use crate::prepare::constant_scalar;
use pando_graph::{Node, Pad, Slice, ValueId};
use pando_tile::message::is_flat;
use pando_tile::{Block, Copy, CopyMap, Kernel, Region, SrcIndex, VarId};
use smallvec::SmallVec;

impl Emitter<'_> {
    /// Queues a copy from a value's home.
    fn copy_from(&mut self, value: ValueId, dst: VarId, region: Block, index: impl Fn(usize) -> (i64, i64)) {
        let dims = (0..region.rank())
            .map(|dim| {
                let (step, offset) = index(dim);
                SrcIndex::Dst { dim: dim as u8, step, offset }
            })
            .collect();
        let src = self.home(value);
        self.pending.push(Copy {
            src,
            dsts: SmallVec::from_slice(&[dst]),
            map: CopyMap::Affine { region, dims },
        });
    }

    pub(super) fn slice(&mut self, slice: &Slice, node: &Node) {
        let out = self.result(node);
        let region = Block::full(&self.shape(node.results[0]));
        self.copy_from(node.operands[0], out, region, |dim| {
            (slice.step[dim] as i64, slice.begin[dim] as i64)
        });
        self.flush(&self.label(node));
    }

    /// Fills the result, then brings the operand into its middle.
    pub(super) fn pad(&mut self, pad: &Pad, node: &Node) {
        let layout = self.layout(node.results[0]);
        let label = self.label(node);
        let mut operands = Vec::new();
        let kernel = match constant_scalar(self.module, self.scope.func, node.operands[1]) {
            Some(value) => Kernel::Fill { value },
            None => {
                let filler = self.fetch(node.operands[1], &project(&layout, &[], &[]));
                operands.push((filler, Region::new()));
                Kernel::Broadcast { dims: SmallVec::new() }
            }
        };
        let out = self.result(node);
        operands.push((out, layout.region));
        self.compute(&label, kernel, &layout.grid, operands);
        let (shape, source) = (self.shape(node.results[0]), self.shape(node.operands[0]));
        let bounds = (0..shape.rank()).map(|dim| {
            let begin = pad.low[dim].max(0) as u64;
            let end = (pad.low[dim] + source[dim] as i64).clamp(0, shape[dim] as i64) as u64;
            (begin.min(end), end)
        });
        let region = Block(bounds.collect());
        if !region.is_empty() {
            self.copy_from(node.operands[0], out, region, |dim| (1, -pad.low[dim]));
            self.flush(&label);
        }
    }

    pub(super) fn concat(&mut self, axis: usize, node: &Node) {
        let out = self.result(node);
        let mut at = 0;
        for &operand in &node.operands {
            let shape = self.shape(operand);
            let mut region = Block::full(&shape);
            region.0[axis] = (at, at + shape[axis]);
            self.copy_from(operand, out, region, |dim| (1, if dim == axis { -(at as i64) } else { 0 }));
            at += shape[axis];
        }
        self.flush(&self.label(node));
    }

    pub(super) fn reverse(&mut self, axes: &[usize], node: &Node) {
        let out = self.result(node);
        let shape = self.shape(node.results[0]);
        let index = |dim: usize| if axes.contains(&dim) { (-1, shape[dim] as i64 - 1) } else { (1, 0) };
        self.copy_from(node.operands[0], out, Block::full(&shape), index);
        self.flush(&self.label(node));
    }

    /// Row-major positions stay; a layout whose blocks are not contiguous is made so first.
    pub(super) fn reshape(&mut self, node: &Node) {
        let operand = node.operands[0];
        let shape = self.shape(operand);
        let home = self.home(operand);
        let layout = self.layout(node.results[0]);
        let source = reshaped(&layout, &self.shape(node.results[0]), &shape);
        if let Some(source) = source.filter(|source| !is_flat(source, &shape)) {
            let src = self.fetch(operand, &source);
            let out = self.result(node);
            let operands = vec![(src, source.region.clone()), (out, layout.region.clone())];
            return self.compute(&self.label(node), Kernel::Copy, &layout.grid, operands);
        }
        let src = if is_flat(&self.program.vars[home].home, &shape) {
            home
        } else {
            let layout = flat(&shape, self.dtype(operand), self.working_tiles(), self.options.min_tile_bytes);
            self.fetch(operand, &layout)
        };
        let label = self.label(node);
        self.flush(&label);
        let out = self.result(node);
        let map = CopyMap::Flat { src_begin: 0, dst_begin: 0, len: shape.num_elements() };
        self.pending.push(Copy { src, dsts: SmallVec::from_slice(&[out]), map });
        self.flush(&label);
    }

    /// Each tile transposes what it has of the result.
    pub(super) fn transpose(&mut self, perm: &[usize], node: &Node) {
        let layout = self.layout(node.results[0]);
        let source = untransposed(&layout, perm);
        let src = self.fetch(node.operands[0], &source);
        let out = self.result(node);
        let kernel = Kernel::Transpose { perm: perm.iter().map(|&dim| dim as u8).collect() };
        let operands = vec![(src, source.region), (out, layout.region)];
        self.compute(&self.label(node), kernel, &source.grid, operands);
    }
}
