//! Losses of pairs and triples.

use super::{Reduction, check_dims, check_floats, reduced, wrong_dims};
use crate::errors;
use crate::formula::{Expr, Formula};
use pando_base::{BinaryFn, DType, Result};
use pando_graph::{Builder, ValueId};

/// `1 - cos(x, y)` where the target is 1, `max(0, cos(x, y) - margin)` where it is -1. Vectors lie along the last
/// dimension, which the target does not have.
pub fn cosine_embedding(
    b: &mut Builder,
    [left, right]: [ValueId; 2],
    target: ValueId,
    margin: f64,
    reduction: Reduction,
) -> Result<ValueId> {
    let dtype = check_floats(b, "cosine_embedding", left)?;
    check_dims(b, "cosine_embedding", "the second input", right, left)?;
    let mut expected = b.ty(left).clone();
    if expected.dims.pop().is_none() || b.ty(target).dims != expected.dims {
        return Err(wrong_dims("cosine_embedding", "the target", b.ty(target), &expected));
    }
    let f = Formula::new(b);
    let [left, right, target] = f.all([left, right, target]).map(|expr| expr.to(DType::F32));
    let axis = left.dims().len() - 1;
    // The small number is PyTorch's.
    let [left_square, right_square] = [left, right].map(|x| x.square().sum_over(&[axis]) + 1e-12);
    let cosine = (left * right).sum_over(&[axis]) / (left_square * right_square).sqrt();
    let losses =
        target.eq(1.0).pick(1.0 - cosine, 0.0) + target.eq(-1.0).pick((cosine - margin).max(0.0), 0.0);
    f.value(reduced(losses, reduction).to(dtype))
}

/// `max(0, -target · (x - y) + margin)`; the target is 1 where `x` is to be the larger one, else -1.
pub fn margin_ranking(
    b: &mut Builder,
    [left, right]: [ValueId; 2],
    target: ValueId,
    margin: f64,
    reduction: Reduction,
) -> Result<ValueId> {
    let dtype = check_floats(b, "margin_ranking", left)?;
    check_dims(b, "margin_ranking", "the second input", right, left)?;
    check_dims(b, "margin_ranking", "the target", target, left)?;
    let f = Formula::new(b);
    let [left, right, target] = f.all([left, right, target]).map(|expr| expr.to(DType::F32));
    let losses = (-target * (left - right) + margin).max(0.0);
    f.value(reduced(losses, reduction).to(dtype))
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TripletMargin {
    pub margin: f64,
    /// Which norm measures distances: 1 or more.
    pub p: f64,
    /// Added to each difference.
    pub eps: f64,
    /// The negative's distance is from whichever of anchor and positive is nearer.
    pub swap: bool,
    pub reduction: Reduction,
}

impl Default for TripletMargin {
    fn default() -> Self {
        TripletMargin { margin: 1.0, p: 2.0, eps: 1e-6, swap: false, reduction: Reduction::default() }
    }
}

/// `max(0, d(anchor, positive) - d(anchor, negative) + margin)` of vectors along the last dimension.
pub fn triplet_margin(
    b: &mut Builder,
    [anchor, positive, negative]: [ValueId; 3],
    options: &TripletMargin,
) -> Result<ValueId> {
    let dtype = check_floats(b, "triplet_margin", anchor)?;
    if b.ty(anchor).rank() == 0 {
        return Err(errors::wrong_loss_operand("triplet_margin", "the anchor", "vectors", b.ty(anchor)));
    }
    if options.p.is_nan() || options.p < 1.0 {
        return Err(errors::wrong_loss_number("triplet_margin", "p", "1 or more", options.p));
    }
    check_dims(b, "triplet_margin", "the positive", positive, anchor)?;
    check_dims(b, "triplet_margin", "the negative", negative, anchor)?;
    let f = Formula::new(b);
    let [anchor, positive, negative] = f.all([anchor, positive, negative]).map(|expr| expr.to(DType::F32));
    let near = distance(anchor, positive, options);
    let mut far = distance(anchor, negative, options);
    if options.swap {
        far = far.min(distance(positive, negative, options));
    }
    let losses = (near - far + options.margin).max(0.0);
    f.value(reduced(losses, options.reduction).to(dtype))
}

fn distance<'f>(x: Expr<'f>, y: Expr<'f>, options: &TripletMargin) -> Expr<'f> {
    let last = x.dims().len() - 1;
    let difference = (x - y + options.eps).abs();
    let power = |x: Expr<'f>, p: f64| x.then(|b, x| b.binary_scalar(BinaryFn::Pow, x, p));
    match options.p {
        1.0 => difference.sum_over(&[last]),
        2.0 => difference.square().sum_over(&[last]).sqrt(),
        p => power(power(difference, p).sum_over(&[last]), 1.0 / p),
    }
}
