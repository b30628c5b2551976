//! Attention by heads, and the summands that mask its scores.

use crate::net::Net;
use pando_base::{BinaryFn, CompareFn, DType, Result};
use pando_graph::{Dot, TensorType, ValueId};

impl Net<'_> {
    /// `[B, S, H·D]` to `[B, H, S, D]`.
    pub fn split_heads(&mut self, x: ValueId, heads: u64) -> Result<ValueId> {
        let dims = self.dims(x);
        let split = self.reshape(x, &[dims[0], dims[1], heads, dims[2] / heads])?;
        self.b.transpose(split, &[0, 2, 1, 3])
    }

    /// `[B, H, S, D]` to `[B, S, H·D]`.
    pub fn merge_heads(&mut self, x: ValueId) -> Result<ValueId> {
        let dims = self.dims(x);
        let moved = self.b.transpose(x, &[0, 2, 1, 3])?;
        self.reshape(moved, &[dims[0], dims[2], dims[1] * dims[3]])
    }

    /// `softmax(q · kᵀ / √D + bias) · v` by head, as a composite. Operands `[B, H, S, D]`; the bias has four
    /// dimensions, those of the scores or 1.
    pub fn attention(
        &mut self,
        q: ValueId,
        k: ValueId,
        v: ValueId,
        bias: Option<ValueId>,
    ) -> Result<ValueId> {
        let scale = 1.0 / (self.dim(q, 3) as f64).sqrt();
        let args: Vec<ValueId> = [q, k, v].into_iter().chain(bias).collect();
        let result = self.b.composite("attention", &format!("scale={scale}"), &args, |b, args| {
            let batch = vec![(0, 0), (1, 1)];
            let products = Dot { batch: batch.clone(), contract: vec![(3, 3)], dtype: None };
            let scaled = b.binary_scalar(BinaryFn::Mul, args[0], scale)?;
            let mut scores = b.dot(scaled, args[1], products)?;
            b.name(scores, "scores");
            if let Some(&bias) = args.get(3) {
                let dims = b.ty(scores).dims.clone();
                let bias = b.broadcast(bias, dims, &[0, 1, 2, 3])?;
                scores = b.add(scores, bias)?;
                b.name(scores, "biased");
            }
            let weights = b.softmax(scores, 3)?;
            b.name(weights, "weights");
            b.dot(weights, args[2], Dot { batch, contract: vec![(3, 2)], dtype: None })
        })?;
        Ok(self.named("attention", result))
    }

    /// What is added to the scores of `q`, `k`, `v` of one width: `[B, S, H·D]` in, the same out.
    pub fn attend(&mut self, [q, k, v]: [ValueId; 3], heads: u64, bias: Option<ValueId>) -> Result<ValueId> {
        let q = self.split_heads(q, heads)?;
        let k = self.split_heads(k, heads)?;
        let v = self.split_heads(v, heads)?;
        let attended = self.attention(q, k, v, bias)?;
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
