//! Losses over classes.

use crate::ctx::Ctx;
use crate::import::Value;
use pando_base::{CompareFn, DType, ReduceFn, Result};
use pando_graph::{TensorType, ValueId};

pub(super) fn negative_log_likelihood(c: &mut Ctx) -> Result<ValueId> {
    let (x, target, weight) = (c.x(0)?, c.x(1)?, c.opt(2)?);
    likelihood(c, x, target, weight)
}

/// The log-softmax over axis 1, then the likelihood; the log-probabilities too.
pub(super) fn softmax_cross_entropy(c: &mut Ctx) -> Result<Vec<Value>> {
    let (x, target, weight) = (c.x(0)?, c.x(1)?, c.opt(2)?);
    let log = c.b.log_softmax(x, 1)?;
    let loss = likelihood(c, log, target, weight)?;
    Ok(vec![Value::tensor(c.b, loss), Value::tensor(c.b, log)])
}

/// `-x[n, target, …] · weight[target]`, where the ignored target weighs nothing.
fn likelihood(c: &mut Ctx, x: ValueId, target: ValueId, weight: Option<ValueId>) -> Result<ValueId> {
    let dtype = c.dtype(x);
    let target = c.b.convert(target, DType::I64)?;
    let dims = c.dims(x);
    // One-hot over the classes: an ignored target outside of them hits none.
    let wide = c.unsqueeze(target, &[1])?;
    let classes = c.b.iota(TensorType { dtype: DType::I64, dims: dims.clone() }, 1)?;
    let hit = c.cmp(CompareFn::Eq, classes, wide)?;
    let zero = c.b.splat_like(x, 0.0)?;
    let chosen = c.b.select(hit, x, zero)?;
    let chosen = c.b.reduce(ReduceFn::Sum, chosen, &[1])?;
    let loss = c.b.neg(chosen)?;
    let mut weights = match weight {
        Some(weight) => {
            let weight = c.b.broadcast(weight, dims, &[1])?;
            let own = c.b.select(hit, weight, zero)?;
            c.b.reduce(ReduceFn::Sum, own, &[1])?
        }
        None => c.b.splat_like(loss, 1.0)?,
    };
    if let Some(ignored) = c.int_opt("ignore_index") {
        let out = c.cmp_n(CompareFn::Eq, target, ignored as f64)?;
        let zero = c.b.splat_like(weights, 0.0)?;
        weights = c.b.select(out, zero, weights)?;
    }
    let loss = c.b.mul(loss, weights)?;
    let axes: Vec<usize> = (0..c.rank(loss)).collect();
    match c.string("reduction", "mean").as_str() {
        "none" => Ok(loss),
        "sum" => c.b.reduce(ReduceFn::Sum, loss, &axes),
        _ => {
            let (sum, total) =
                (c.b.reduce(ReduceFn::Sum, loss, &axes)?, c.b.reduce(ReduceFn::Sum, weights, &axes)?);
            let mean = c.b.div(sum, total)?;
            c.b.convert(mean, dtype)
        }
    }
}
