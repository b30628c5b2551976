//! The simple operators of `ai.onnx.ml` on tensors of numbers.

use crate::ctx::Ctx;
use pando_base::{CompareFn, Result};
use pando_graph::ValueId;

/// Columns of the last axis.
pub(super) fn array_feature_extractor(c: &mut Ctx) -> Result<ValueId> {
    let (x, places) = (c.x(0)?, c.x(1)?);
    c.need_rank(x, 1..=usize::MAX)?;
    let count = crate::import::product(&c.dims(places));
    let places = c.b.reshape(places, [count])?;
    let x = if c.rank(x) == 1 { c.unsqueeze(x, &[0])? } else { x };
    let last = c.rank(x) - 1;
    c.b.gather(x, places, last)
}

/// One above the threshold, zero elsewhere.
pub(super) fn binarizer(c: &mut Ctx) -> Result<ValueId> {
    let x = c.x(0)?;
    let above = c.cmp_n(CompareFn::Gt, x, c.float("threshold", 0.0))?;
    c.b.convert(above, c.dtype(x))
}
