//! Clipping by the norm of all gradients together, as PyTorch's `clip_grad_norm_`.

use crate::errors;
use crate::formula::{Expr, Formula};
use pando_base::{DType, Result};
use pando_graph::{Builder, ValueId};

/// The gradients, shortened together so that their common norm is at most `max_norm` (`f32[]`), and that norm
/// before (`f32[]`). PyTorch's factor has 1e-6 beside the norm: norms just above the limit end just below it.
pub fn by_global_norm(
    b: &mut Builder,
    gradients: &[ValueId],
    max_norm: ValueId,
) -> Result<(Vec<ValueId>, ValueId)> {
    let f = Formula::new(b);
    let exprs: Vec<Expr> = gradients.iter().map(|&gradient| f.at(gradient)).collect();
    let squares = exprs.iter().map(|gradient| gradient.to(DType::F32).square().sum());
    let norm = squares.reduce(|sum, square| sum + square).ok_or_else(errors::nothing_to_clip)?.sqrt();
    let factor = (f.at(max_norm) / (norm + 1e-6)).min(1.0);
    let clipped = exprs.into_iter().map(|gradient| {
        let dtype = gradient.ty().dtype;
        f.value((gradient.to(DType::F32) * factor).to(dtype))
    });
    let clipped = clipped.collect::<Result<_>>()?;
    Ok((clipped, f.value(norm)?))
}
