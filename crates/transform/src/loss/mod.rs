//! Losses as PyTorch defines them (`torch.nn.functional`, 2.15), over a builder. All are computed in f32 and given
//! in the type of their first operand: f16 losses do not overflow while they are summed.
//!
//! `elementwise.rs`: one number and its target at a time. `classes.rs`: scores of classes. `vectors.rs`: distances of
//! vectors. `ctc.rs`: sequences without alignment. `named.rs`: all of them by name.

mod classes;
mod ctc;
mod elementwise;
mod named;
mod vectors;

pub use classes::{Classes, cross_entropy, multilabel_soft_margin, nll};
pub use ctc::{Ctc, ctc};
pub use elementwise::{
    bce, bce_with_logits, hinge_embedding, huber, kl_div, l1, mse, poisson_nll, smooth_l1, soft_margin,
};
pub use named::{LOSSES, named};
pub use vectors::{TripletMargin, cosine_embedding, margin_ranking, triplet_margin};

use crate::errors;
use crate::formula::{Expr, Formula};
use pando_base::{DType, Result};
use pando_graph::{Builder, Dim, TensorType, ValueId};

/// From the losses of elements or samples to the loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reduction {
    None,
    #[default]
    Mean,
    Sum,
    /// The sum divided by the first dimension: `kl_div`'s `batchmean`.
    BatchMean,
}

impl Reduction {
    pub fn from_name(name: &str) -> Option<Reduction> {
        match name {
            "none" => Some(Reduction::None),
            "mean" => Some(Reduction::Mean),
            "sum" => Some(Reduction::Sum),
            "batchmean" => Some(Reduction::BatchMean),
            _ => None,
        }
    }
}

/// A loss of its own reduced: PopTorch's `identity_loss`.
pub fn reduce(b: &mut Builder, losses: ValueId, reduction: Reduction) -> Result<ValueId> {
    let dtype = b.ty(losses).dtype;
    let f = Formula::new(b);
    f.value(reduced(f.at(losses).to(DType::F32), reduction).to(dtype))
}

fn reduced(losses: Expr<'_>, reduction: Reduction) -> Expr<'_> {
    match reduction {
        Reduction::None => losses,
        Reduction::Sum => losses.sum(),
        Reduction::Mean => losses.sum() / count(losses),
        Reduction::BatchMean => losses.sum() / first_size(losses),
    }
}

/// The number of elements, `f32[]`; counted in the program where sizes have names.
fn count(x: Expr<'_>) -> Expr<'_> {
    match x.ty().shape() {
        Some(shape) => x.number(shape.num_elements() as f64),
        None => x.filled(1.0).sum(),
    }
}

fn first_size(x: Expr<'_>) -> Expr<'_> {
    match x.dims().first() {
        None => x.number(1.0),
        Some(Dim::Known(size)) => x.number(*size as f64),
        Some(_) => {
            let rest: Vec<usize> = (1..x.dims().len()).collect();
            let row = x.filled(1.0).then(|b, ones| b.reduce(pando_base::ReduceFn::Max, ones, &rest));
            row.sum()
        }
    }
}

/// A formula of two operands of the same dimensions, element by element, in f32.
fn of_pairs(
    b: &mut Builder,
    loss: &str,
    [input, target]: [ValueId; 2],
    reduction: Reduction,
    formula: impl for<'f> FnOnce(Expr<'f>, Expr<'f>) -> Expr<'f>,
) -> Result<ValueId> {
    let dtype = check_floats(b, loss, input)?;
    check_dims(b, loss, "the target", target, input)?;
    let f = Formula::new(b);
    let [input, target] = f.all([input, target]).map(|expr| expr.to(DType::F32));
    f.value(reduced(formula(input, target), reduction).to(dtype))
}

fn check_floats(b: &Builder, loss: &str, input: ValueId) -> Result<DType> {
    let ty = b.ty(input);
    match ty.dtype.is_float() {
        true => Ok(ty.dtype),
        false => Err(errors::wrong_loss_operand(loss, "the input", "floats", ty)),
    }
}

fn check_dims(b: &Builder, loss: &str, what: &str, value: ValueId, like: ValueId) -> Result<()> {
    let (found, expected) = (b.ty(value), b.ty(like));
    match found.dims == expected.dims {
        true => Ok(()),
        false => Err(wrong_dims(loss, what, found, expected)),
    }
}

fn wrong_dims(loss: &str, what: &str, found: &TensorType, expected: &TensorType) -> pando_base::Error {
    let dims: Vec<String> = expected.dims.iter().map(Dim::to_string).collect();
    errors::wrong_loss_operand(loss, what, format!("the dimensions [{}]", dims.join(",")), found)
}
