//! Attention by heads, and the summands that mask its scores.

use crate::net::Net;
use pando_base::{BinaryFn, CompareFn, DType, Result};
use pando_graph::{Dot, TensorType, ValueId};

impl Net<'_> {
    /// `[…, S, H·D]` to `[…, H, S, D]`.
    pub fn split_heads(&mut self, x: ValueId, heads: u64) -> Result<ValueId> {
        let mut dims = self.dims(x);
        let width = dims.pop().expect("rows have a width");
        dims.extend([heads, width / heads]);
        let split = self.reshape(x, &dims)?;
        self.swap(split, dims.len() - 3)
    }

    /// `[…, H, S, D]` to `[…, S, H·D]`.
    pub fn merge_heads(&mut self, x: ValueId) -> Result<ValueId> {
        let moved = self.swap(x, self.rank(x) - 3)?;
        let mut dims = self.dims(moved);
        let size = dims.pop().expect("heads have a size");
        *dims.last_mut().expect("there are heads") *= size;
        self.reshape(moved, &dims)
    }

    /// An axis and the one after it in each other's place.
    fn swap(&mut self, x: ValueId, axis: usize) -> Result<ValueId> {
        let mut order: Vec<usize> = (0..self.rank(x)).collect();
        order.swap(axis, axis + 1);
        self.b.transpose(x, &order)
    }

    /// `softmax(q · kᵀ / √D + biases) · v` by head, as a composite. Operands `[…, H, S, D]`; biases have the
    /// dimensions of the scores, or 1 in their place.
    pub fn attention(&mut self, [q, k, v]: [ValueId; 3], biases: &[ValueId]) -> Result<ValueId> {
        let last = self.rank(q) - 1;
        let scale = 1.0 / (self.dim(q, last) as f64).sqrt();
        let args = [&[q, k, v], biases].concat();
        let result = self.b.composite("attention", &format!("scale={scale}"), &args, |b, args| {
            let batch: Vec<(usize, usize)> = (0..last - 1).map(|axis| (axis, axis)).collect();
            let products = Dot { batch: batch.clone(), contract: vec![(last, last)], dtype: None };
            let scaled = b.binary_scalar(BinaryFn::Mul, args[0], scale)?;
            let mut scores = b.dot(scaled, args[1], products)?;
            b.name(scores, "scores");
            let axes: Vec<usize> = (0..=last).collect();
            for &bias in &args[3..] {
                let dims = b.ty(scores).dims.clone();
                let bias = b.broadcast(bias, dims, &axes)?;
                scores = b.add(scores, bias)?;
                b.name(scores, "biased");
            }
            let weights = b.softmax(scores, last)?;
            b.name(weights, "weights");
            b.dot(weights, args[2], Dot { batch, contract: vec![(last, last - 1)], dtype: None })
        })?;
        Ok(self.named("attention", result))
    }

    /// Attention of `q`, `k`, `v` whose heads lie side by side: `[…, S, H·D]` in, the same out.
    pub fn attend(&mut self, [q, k, v]: [ValueId; 3], heads: u64, biases: &[ValueId]) -> Result<ValueId> {
        let q = self.split_heads(q, heads)?;
        let k = self.split_heads(k, heads)?;
        let v = self.split_heads(v, heads)?;
        let attended = self.attention([q, k, v], biases)?;
        self.merge_heads(attended)
    }

    /// 0 where `allowed`, elsewhere so low that nothing is left after the softmax. Half of the lowest number:
    /// with a score added it is still finite.
    pub fn bias_of(&mut self, allowed: ValueId) -> Result<ValueId> {
        let ty = TensorType { dtype: self.dtype, dims: self.b.ty(allowed).dims.clone() };
        let zero = self.b.splat(&ty, 0.0)?;
        let never = self.b.splat(&ty, self.dtype.lowest() / 2.0)?;
        self.b.select(allowed, zero, never)
    }

    /// The bias of a mask `[B, T]` of integers in which 0 hides a position: `[B, 1, 1, T]`.
    pub fn padding_bias(&mut self, mask: ValueId) -> Result<ValueId> {
        let zero = self.b.splat_like(mask, 0.0)?;
        let allowed = self.b.compare(CompareFn::Ne, mask, zero)?;
        let bias = self.bias_of(allowed)?;
        let dims = self.dims(mask);
        let bias = self.reshape(bias, &[dims[0], 1, 1, dims[1]])?;
        Ok(self.named("attention_bias", bias))
    }

    /// The bias that hides later positions: `[1, 1, S, S]`.
    pub fn causal_bias(&mut self, length: u64) -> Result<ValueId> {
        let ty = TensorType::new(DType::I32, [1, 1, length, length]);
        let (rows, columns) = (self.b.iota(ty.clone(), 2)?, self.b.iota(ty, 3)?);
        let allowed = self.b.compare(CompareFn::Le, columns, rows)?;
        let bias = self.bias_of(allowed)?;
        Ok(self.named("causal_bias", bias))
    }
}
