//! Random exchanges: permuted, strided, reversed, sliced, dropped dimensions, joined, flat, multicast.

use super::Generator;
use super::layouts::Kind;
use pando_base::DType;
use pando_tile::message::is_flat;
use pando_tile::{Block, Copy, CopyMap, Layout, Role, SrcIndex, VarId};
use smallvec::{SmallVec, smallvec};

impl Generator {
    pub fn exchange(&mut self) {
        let (mut copies, mut written) = (Vec::new(), Vec::new());
        for _ in 0..=self.source.below(3) {
            let src = self.pick_source();
            written.extend(match self.source.below(8) {
                0 => self.flat(src, &mut copies),
                1 => self.multicast(src, &mut copies),
                2 => self.joined(src, &mut copies),
                _ => self.affine(src, &mut copies),
            });
        }
        self.push_exchange(copies);
        self.readable.extend(written);
    }

    fn destination(&mut self, dtype: DType, shape: &[u64]) -> VarId {
        let home = self.layout(shape, Kind::Any);
        self.var(dtype, shape, home, Role::Temp)
    }

    /// A slice of the source with its dimensions in another order.
    fn affine(&mut self, src: VarId, copies: &mut Vec<Copy>) -> Vec<VarId> {
        let (dtype, shape) = (self.program.vars[src].dtype, self.program.vars[src].shape.clone());
        let mut dims: SmallVec<[SrcIndex; 4]> = smallvec![SrcIndex::At(0); shape.rank()];
        let mut dst_shape: Vec<u64> = Vec::new();
        for dim in self.source.order(shape.rank()) {
            if self.source.chance(1) {
                dims[dim] = SrcIndex::At(self.source.within(0, shape[dim] - 1));
                continue;
            }
            let (index, length) = self.slice(dst_shape.len(), shape[dim]);
            dims[dim] = index;
            dst_shape.push(length);
        }
        let dst = self.destination(dtype, &dst_shape);
        let map = CopyMap::Affine { region: Block::full(&dst_shape), dims };
        copies.push(Copy { src, dsts: smallvec![dst], map });
        vec![dst]
    }

    /// All or a part of a dimension, with a step; and how many indices that are.
    fn slice(&mut self, dst_dim: usize, size: u64) -> (SrcIndex, u64) {
        let dim = dst_dim as u8;
        if self.source.chance(4) {
            let step = *self.source.pick(&[1i64, -1, 2, -2, 3]);
            let begin = self.source.within(0, size - 1);
            let room = if step > 0 { size - 1 - begin } else { begin };
            let length = self.source.within(0, room / step.unsigned_abs()) + 1;
            return (SrcIndex::Dst { dim, step, offset: begin as i64 }, length);
        }
        (SrcIndex::Dst { dim, step: 1, offset: 0 }, size)
    }

    /// The source twice, one behind the other along its first dimension, by two copies into one variable.
    fn joined(&mut self, src: VarId, copies: &mut Vec<Copy>) -> Vec<VarId> {
        let (dtype, shape) = (self.program.vars[src].dtype, self.program.vars[src].shape.clone());
        if shape.is_empty() {
            return self.affine(src, copies);
        }
        let mut dst_shape = shape.to_vec();
        dst_shape[0] *= 2;
        let dst = self.destination(dtype, &dst_shape);
        for half in 0..2 {
            let CopyMap::Affine { mut region, mut dims } = CopyMap::identity(&dst_shape) else {
                unreachable!()
            };
            region.0[0] = (half * shape[0], (half + 1) * shape[0]);
            dims[0] = SrcIndex::Dst { dim: 0, step: 1, offset: -((half * shape[0]) as i64) };
            copies.push(Copy { src, dsts: smallvec![dst], map: CopyMap::Affine { region, dims } });
        }
        vec![dst]
    }

    /// Consecutive elements into a variable of another shape.
    fn flat(&mut self, src: VarId, copies: &mut Vec<Copy>) -> Vec<VarId> {
        let var = self.program.vars[src].clone();
        let elements = var.shape.num_elements();
        let src_begin = self.source.within(0, elements.min(9) - 1);
        let len = elements - src_begin;
        let rows = [4, 3, 2].into_iter().find(|rows| len.is_multiple_of(*rows));
        let shape = match rows {
            Some(rows) if self.source.chance(4) => vec![len / rows, rows],
            _ => vec![len],
        };
        let home = self.layout(&shape, Kind::Any);
        if !is_flat(&var.home, &var.shape) || !is_flat(&home, &shape) {
            return self.affine(src, copies);
        }
        let dst = self.var(var.dtype, &shape, home, Role::Temp);
        copies.push(Copy { src, dsts: smallvec![dst], map: CopyMap::Flat { src_begin, dst_begin: 0, len } });
        vec![dst]
    }

    /// One message to several variables on single tiles.
    fn multicast(&mut self, src: VarId, copies: &mut Vec<Copy>) -> Vec<VarId> {
        let var = self.program.vars[src].clone();
        if !var.home.grid.axes.is_empty() {
            return self.affine(src, copies);
        }
        let count = self.source.within(1, 3);
        let dsts: SmallVec<[VarId; 1]> = (0..count)
            .map(|_| {
                let tile = self.source.below(self.program.tiles as usize) as u32;
                self.var(var.dtype, &var.shape, Layout::on_tile(tile, &var.shape), Role::Temp)
            })
            .collect();
        copies.push(Copy { src, dsts: dsts.clone(), map: CopyMap::identity(&var.shape) });
        dsts.to_vec()
    }
}
