//! Losses of one number and its target at a time. Operands have equal dimensions.

use super::{Reduction, check_dims, check_floats, of_pairs, reduced};
use crate::errors;
use crate::formula::{Expr, Formula};
use pando_base::{DType, Result};
use pando_graph::{Builder, ValueId};

/// `(x - y)²`
pub fn mse(b: &mut Builder, input: ValueId, target: ValueId, reduction: Reduction) -> Result<ValueId> {
    of_pairs(b, "mse", [input, target], reduction, |x, y| (x - y).square())
}

/// `|x - y|`
pub fn l1(b: &mut Builder, input: ValueId, target: ValueId, reduction: Reduction) -> Result<ValueId> {
    of_pairs(b, "l1", [input, target], reduction, |x, y| (x - y).abs())
}

/// `(x - y)² / 2 beta` where the distance is below `beta`, `|x - y| - beta / 2` elsewhere.
pub fn smooth_l1(
    b: &mut Builder,
    input: ValueId,
    target: ValueId,
    beta: f64,
    reduction: Reduction,
) -> Result<ValueId> {
    if beta.is_nan() || beta < 0.0 {
        return Err(errors::wrong_loss_number("smooth_l1", "beta", "0 or more", beta));
    }
    if beta == 0.0 {
        return of_pairs(b, "smooth_l1", [input, target], reduction, |x, y| (x - y).abs());
    }
    of_pairs(b, "smooth_l1", [input, target], reduction, |x, y| {
        let distance = (x - y).abs();
        distance.lt(beta).pick(0.5 * distance * distance / beta, distance - 0.5 * beta)
    })
}

/// `(x - y)² / 2` up to a distance of `delta`, `delta · (|x - y| - delta / 2)` beyond.
pub fn huber(
    b: &mut Builder,
    input: ValueId,
    target: ValueId,
    delta: f64,
    reduction: Reduction,
) -> Result<ValueId> {
    if delta.is_nan() || delta <= 0.0 {
        return Err(errors::wrong_loss_number("huber", "delta", "above 0", delta));
    }
    of_pairs(b, "huber", [input, target], reduction, |x, y| {
        let distance = (x - y).abs();
        distance.le(delta).pick(0.5 * distance * distance, delta * (distance - 0.5 * delta))
    })
}

/// `-(y log x + (1 - y) log(1 - x))` of probabilities `x`; logarithms are at least -100. `weight` broadcasts to the
/// input's last dimensions. The gradient is PyTorch's, finite where `x` is 0 or 1: the value is that of a constant,
/// plus a line through it.
pub fn bce(
    b: &mut Builder,
    input: ValueId,
    target: ValueId,
    weight: Option<ValueId>,
    reduction: Reduction,
) -> Result<ValueId> {
    weighted(b, "bce", input, target, weight, reduction, |x, y| {
        let at = x.detached();
        let (log, log_rest) = (at.log().max(-100.0), (-at).log1p().max(-100.0));
        let slope = (at - y.detached()) / ((1.0 - at) * at).max(1e-12);
        (y - 1.0) * log_rest - y * log + slope * (x - at)
    })
}

/// [`bce`] of `sigmoid(x)`, without its overflow. `pos_weight` multiplies the losses of what is true; it
/// broadcasts to the input's last dimensions.
pub fn bce_with_logits(
    b: &mut Builder,
    input: ValueId,
    target: ValueId,
    weight: Option<ValueId>,
    pos_weight: Option<ValueId>,
    reduction: Reduction,
) -> Result<ValueId> {
    let dims = b.ty(input).dims.clone();
    let pos_weight = pos_weight.map(|weights| b.broadcast_trailing(weights, dims)).transpose()?;
    let pos_weight = pos_weight.map(|weights| b.convert(weights, DType::F32)).transpose()?;
    weighted(b, "bce_with_logits", input, target, weight, reduction, |x, y| {
        let of_true = match pos_weight {
            Some(weights) => 1.0 + (y.sibling(weights) - 1.0) * y,
            None => y.filled(1.0),
        };
        (1.0 - y) * x - of_true * x.log_sigmoid()
    })
}

/// `y (log y - x)` of log-probabilities `x`; `log_target`: `exp(y) (y - x)`.
pub fn kl_div(
    b: &mut Builder,
    input: ValueId,
    target: ValueId,
    log_target: bool,
    reduction: Reduction,
) -> Result<ValueId> {
    of_pairs(b, "kl_div", [input, target], reduction, |x, y| match log_target {
        true => y.exp() * (y - x),
        false => y_log_y(y) - y * x,
    })
}

/// 0 at 0.
fn y_log_y(y: Expr<'_>) -> Expr<'_> {
    let positive = y.ne(0.0);
    positive.pick(y * positive.pick(y, 1.0).log(), 0.0)
}

/// `exp(x) - y x`; with `log_input` off `x - y log(x + eps)`. `full` adds Stirling's approximation of `log y!`
/// where `y > 1`.
pub fn poisson_nll(
    b: &mut Builder,
    input: ValueId,
    target: ValueId,
    log_input: bool,
    full: bool,
    eps: f64,
    reduction: Reduction,
) -> Result<ValueId> {
    of_pairs(b, "poisson_nll", [input, target], reduction, |x, y| {
        let loss = if log_input { x.exp() - y * x } else { x - y * (x + eps).log() };
        if !full {
            return loss;
        }
        let large = y.gt(1.0);
        let safe = large.pick(y, 1.0);
        let stirling = safe * safe.log() - safe + 0.5 * (std::f64::consts::TAU * safe).log();
        loss + large.pick(stirling, 0.0)
    })
}

/// `x` where `y` is 1, `max(0, margin - x)` where it is -1.
pub fn hinge_embedding(
    b: &mut Builder,
    input: ValueId,
    target: ValueId,
    margin: f64,
    reduction: Reduction,
) -> Result<ValueId> {
    of_pairs(b, "hinge_embedding", [input, target], reduction, |x, y| {
        y.ne(1.0).pick((margin - x).max(0.0), 0.0) + y.ne(-1.0).pick(x, 0.0)
    })
}

/// `log(1 + exp(-y x))`
pub fn soft_margin(
    b: &mut Builder,
    input: ValueId,
    target: ValueId,
    reduction: Reduction,
) -> Result<ValueId> {
    of_pairs(b, "soft_margin", [input, target], reduction, |x, y| (-y * x).exp().log1p())
}

/// As [`of_pairs`], with a factor per element.
fn weighted(
    b: &mut Builder,
    loss: &str,
    input: ValueId,
    target: ValueId,
    weight: Option<ValueId>,
    reduction: Reduction,
    formula: impl for<'f> FnOnce(Expr<'f>, Expr<'f>) -> Expr<'f>,
) -> Result<ValueId> {
    let Some(weight) = weight else { return of_pairs(b, loss, [input, target], reduction, formula) };
    let dtype = check_floats(b, loss, input)?;
    let weight = b.broadcast_trailing(weight, b.ty(input).dims.clone())?;
    check_dims(b, loss, "the weight", weight, input)?;
    let losses = of_pairs(b, loss, [input, target], Reduction::None, formula)?;
    let f = Formula::new(b);
    let [losses, weight] = f.all([losses, weight]).map(|expr| expr.to(DType::F32));
    f.value(reduced(losses * weight, reduction).to(dtype))
}
