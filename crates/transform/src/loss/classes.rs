//! Losses of scores of classes. Classes are dimension 1 of the input, or its only one; spatial dimensions may follow.

use super::{Reduction, check_dims, check_floats, count, first_size, reduced, wrong_dims};
use crate::errors;
use crate::formula::{Expr, Formula};
use pando_base::{DType, Result};
use pando_graph::{Builder, TensorType, ValueId};

/// What `nll` and `cross_entropy` may be told beside input and target.
#[derive(Clone, Copy, Debug)]
pub struct Classes {
    /// A factor per class, in any float type.
    pub weights: Option<ValueId>,
    /// Samples of this class count for nothing.
    pub ignore_index: i64,
    /// The part of the probability that all classes share; 0 to 1. Not for `nll`.
    pub label_smoothing: f64,
    pub reduction: Reduction,
}

impl Default for Classes {
    fn default() -> Self {
        let reduction = Reduction::default();
        Classes { weights: None, ignore_index: -100, label_smoothing: 0.0, reduction }
    }
}

/// `-x[target]` of log-probabilities; the mean is weighted by the weights of the targets. The target holds classes,
/// in an integer type, and has the input's dimensions without the classes.
pub fn nll(b: &mut Builder, input: ValueId, target: ValueId, options: &Classes) -> Result<ValueId> {
    let dtype = check_floats(b, "nll", input)?;
    check_target(b, "nll", input, target)?;
    let weights = class_weights(b, "nll", input, options.weights)?;
    let f = Formula::new(b);
    let labels = Labels::new(&f, input, target, weights, options);
    let input = f.at(input).to(DType::F32);
    f.value(labels.reduced(labels.losses(input), options.reduction).to(dtype))
}

/// The negative log-likelihood of `log_softmax(x)`. Targets are classes, or probabilities: floats in the input's
/// dimensions.
pub fn cross_entropy(b: &mut Builder, input: ValueId, target: ValueId, options: &Classes) -> Result<ValueId> {
    let dtype = check_floats(b, "cross_entropy", input)?;
    let smoothing = options.label_smoothing;
    if !(0.0..=1.0).contains(&smoothing) {
        return Err(errors::wrong_loss_number("cross_entropy", "label_smoothing", "0 to 1", smoothing));
    }
    let probabilities = b.ty(target).dtype.is_float();
    match probabilities {
        true => check_dims(b, "cross_entropy", "the target", target, input)?,
        false => check_target(b, "cross_entropy", input, target)?,
    }
    let weights = class_weights(b, "cross_entropy", input, options.weights)?;
    let scores = b.convert(input, DType::F32)?;
    let logs = b.log_softmax(scores, class_axis(b.ty(input)))?;
    let f = Formula::new(b);
    let loss = match probabilities {
        true => of_probabilities(f.at(logs), f.at(target).to(DType::F32), weights, options),
        false => {
            let labels = Labels::new(&f, input, target, weights, options);
            smoothed(&labels, f.at(logs), options)
        }
    };
    f.value(loss.to(dtype))
}

/// `-(y log sigmoid(x) + (1 - y) log sigmoid(-x))`, averaged over the last dimension: the classes. `weights` are one
/// per class.
pub fn multilabel_soft_margin(
    b: &mut Builder,
    input: ValueId,
    target: ValueId,
    weights: Option<ValueId>,
    reduction: Reduction,
) -> Result<ValueId> {
    let dtype = check_floats(b, "multilabel_soft_margin", input)?;
    check_dims(b, "multilabel_soft_margin", "the target", target, input)?;
    let dims = b.ty(input).dims.clone();
    let weights = weights.map(|weights| b.broadcast_trailing(weights, dims.clone())).transpose()?;
    let f = Formula::new(b);
    let [x, y] = f.all([input, target]).map(|expr| expr.to(DType::F32));
    let mut losses = -(y * x.log_sigmoid() + (1.0 - y) * (-x).log_sigmoid());
    if let Some(weights) = weights {
        losses = losses * f.at(weights).to(DType::F32);
    }
    let last = dims.len().saturating_sub(1);
    let sums = losses.sum_over(&[last]);
    let classes = count(losses) / count(sums);
    f.value(reduced(sums / classes, reduction).to(dtype))
}

fn class_axis(input: &TensorType) -> usize {
    usize::from(input.rank() > 1)
}

fn check_target(b: &Builder, loss: &str, input: ValueId, target: ValueId) -> Result<()> {
    let (input, target) = (b.ty(input), b.ty(target));
    if input.rank() == 0 {
        return Err(errors::wrong_loss_operand(loss, "the input", "a dimension of classes", input));
    }
    let mut expected = input.clone();
    expected.dims.remove(class_axis(input));
    match (target.dtype.is_int(), target.dims == expected.dims) {
        (false, _) => Err(errors::wrong_loss_operand(loss, "the target", "integers", target)),
        (true, false) => Err(wrong_dims(loss, "the target", target, &expected)),
        (true, true) => Ok(()),
    }
}

/// Weights of classes in the dimensions of the input.
fn class_weights(
    b: &mut Builder,
    loss: &str,
    input: ValueId,
    weights: Option<ValueId>,
) -> Result<Option<ValueId>> {
    let Some(weights) = weights else { return Ok(None) };
    let (ty, axis) = (b.ty(input).clone(), class_axis(b.ty(input)));
    let expected = TensorType { dtype: b.ty(weights).dtype, dims: ty.dims[axis..=axis].into() };
    if *b.ty(weights) != expected || !expected.dtype.is_float() {
        let expected = format!("a float per class of the input {ty}");
        return Err(errors::wrong_loss_operand(loss, "the tensor of weights", expected, b.ty(weights)));
    }
    let weights = b.convert(weights, DType::F32)?;
    b.broadcast(weights, ty.dims, &[axis]).map(Some)
}

/// Which class each sample has, as a mask over the input, and how much it counts.
struct Labels<'f> {
    mask: Expr<'f>,
    /// 1, 0 or a weight per sample.
    factors: Expr<'f>,
    /// Weights of classes over the input.
    weights: Option<Expr<'f>>,
    /// 1 for samples that are not ignored.
    counted: Expr<'f>,
    axis: usize,
}

impl<'f> Labels<'f> {
    fn new(
        f: &'f Formula<'f>,
        input: ValueId,
        target: ValueId,
        weights: Option<ValueId>,
        options: &Classes,
    ) -> Self {
        let (input, target) = (f.at(input), f.at(target));
        let (ty, axis) = (input.ty(), class_axis(&input.ty()));
        let others: Vec<usize> = (0..ty.rank()).filter(|&other| other != axis).collect();
        let dtype = target.ty().dtype;
        let spread = target.broadcast(ty.dims.clone(), &others);
        let mask = spread.then(|b, _| b.iota(ty.with_dtype(dtype), axis)).eq(spread);
        let counted = match dtype.int_range() {
            Some((low, high)) if (low..=high).contains(&i128::from(options.ignore_index)) => {
                target.ne(options.ignore_index as f64).to(DType::F32)
            }
            _ => target.to(DType::F32).filled(1.0),
        };
        let weights = weights.map(|weights| f.at(weights));
        let factors = match weights {
            Some(weights) => counted * mask.pick(weights, 0.0).sum_over(&[axis]),
            None => counted,
        };
        Labels { mask, factors, weights, counted, axis }
    }

    fn losses(&self, logs: Expr<'f>) -> Expr<'f> {
        -(self.mask.pick(logs, 0.0).sum_over(&[self.axis])) * self.factors
    }

    fn reduced(&self, losses: Expr<'f>, reduction: Reduction) -> Expr<'f> {
        match reduction {
            Reduction::Mean => losses.sum() / self.factors.sum(),
            other => reduced(losses, other),
        }
    }
}

/// The loss of labels that are right with probability `1 - smoothing` and any class otherwise.
fn smoothed<'f>(labels: &Labels<'f>, logs: Expr<'f>, options: &Classes) -> Expr<'f> {
    let losses = labels.losses(logs);
    let smoothing = options.label_smoothing;
    if smoothing == 0.0 {
        return labels.reduced(losses, options.reduction);
    }
    let weighted = labels.weights.map_or(logs, |weights| logs * weights);
    let of_all = -weighted.sum_over(&[labels.axis]) * labels.counted;
    let classes = count(logs) / count(of_all);
    let mixed = losses * (1.0 - smoothing) + of_all * (smoothing / classes);
    labels.reduced(mixed, options.reduction)
}

/// The mean is over samples, whatever their weights.
fn of_probabilities<'f>(
    logs: Expr<'f>,
    target: Expr<'f>,
    weights: Option<ValueId>,
    options: &Classes,
) -> Expr<'f> {
    let axis = class_axis(&logs.ty());
    let mut terms = logs;
    if let Some(weights) = weights {
        terms = terms * logs.sibling(weights);
    }
    let classes = count(logs) / count(logs.sum_over(&[axis]));
    let smoothing = options.label_smoothing;
    let target = match smoothing {
        0.0 => target,
        _ => target * (1.0 - smoothing) + smoothing / classes,
    };
    let losses = -(terms * target).sum_over(&[axis]);
    match options.reduction {
        Reduction::BatchMean => losses.sum() / first_size(logs),
        other => reduced(losses, other),
    }
}
