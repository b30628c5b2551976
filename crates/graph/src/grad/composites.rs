//! Gradients of the standard composites that have a better one than their body's: composites `NAME.grad`
//! themselves, so that back ends may know them. Where the result says enough they take it instead of the operand,
//! which is then not needed any more.

use super::elementwise::one_minus;
use super::{Gradients, Visit, layout};
use crate::builder::Builder;
use crate::errors;
use crate::module::ValueId;
use pando_base::{BinaryFn, ReduceFn, Result};
use smallvec::smallvec;

/// The gradients of a call of a standard composite; `None` if there is no rule for it with these types. `key` is what the composite
/// was built with: of norms, epsilon.
pub(super) fn rule(b: &mut Builder, at: &Visit, name: &str, key: &str) -> Result<Option<Gradients>> {
    let (x, y) = (at.operand(0), at.result());
    if at.node.operands.len() == 3 && b.ty(at.operand(1)) != b.ty(at.operand(2)) {
        // A scale and a bias that broadcast differently.
        return Ok(None);
    }
    if name == "batch_norm_training" {
        return batch_norm_training(b, at, epsilon(key)).map(Some);
    }
    let gradient = at.gradient();
    let one =
        |gradient: Result<ValueId>| -> Result<Option<Gradients>> { Ok(Some(smallvec![Some(gradient?)])) };
    match name {
        "sigmoid" => one(b.sigmoid_grad(y, gradient)),
        "silu" => one(b.silu_grad(x, gradient)),
        "gelu" => one(b.gelu_grad(x, gradient)),
        "gelu_tanh" => one(b.gelu_tanh_grad(x, gradient)),
        "softmax" => one(b.softmax_grad(y, gradient)),
        "log_softmax" => one(b.log_softmax_grad(y, gradient)),
        "layer_norm" => {
            let gradients = b.layer_norm_grad(x, at.operand(1), gradient, epsilon(key))?;
            Ok(Some(gradients.into_iter().map(Some).collect()))
        }
        "rms_norm" => {
            let gradients = b.rms_norm_grad(x, at.operand(1), gradient, epsilon(key))?;
            Ok(Some(gradients.into_iter().map(Some).collect()))
        }
        _ => Ok(None),
    }
}

fn epsilon(key: &str) -> f64 {
    key.parse().expect("norms are built with epsilon as their key")
}

/// Statistics that something differentiable is made of have gradients as well.
fn batch_norm_training(b: &mut Builder, at: &Visit, epsilon: f64) -> Result<Gradients> {
    let (x, scale) = (at.operand(0), at.operand(1));
    let (mean, variance) = (at.node.results[1], at.node.results[2]);
    let gradient = match at.results[0] {
        Some(gradient) => gradient,
        None => b.splat_like(x, 0.0)?,
    };
    let [mut dx, dscale, dbias] = b.batch_norm_training_grad(x, scale, mean, variance, gradient, epsilon)?;
    for (statistic, slope) in [(at.results[1], Statistic::Mean), (at.results[2], Statistic::Variance(mean))] {
        if let Some(gradient) = statistic {
            let more = slope.gradient(b, x, gradient)?;
            dx = b.add(dx, more)?;
        }
    }
    Ok(smallvec![Some(dx), Some(dscale), Some(dbias)])
}

enum Statistic {
    Mean,
    /// Around this mean.
    Variance(ValueId),
}

impl Statistic {
    /// `gradient / n`, for a variance times `2 (x - mean)`.
    fn gradient(&self, b: &mut Builder, x: ValueId, gradient: ValueId) -> Result<ValueId> {
        let (dims, dtype) = (b.ty(x).dims.clone(), b.ty(x).dtype);
        let (count, _) = batch_axes(b, x)?;
        let share = b.binary_scalar(BinaryFn::Div, gradient, count)?;
        let share = b.broadcast(share, dims.clone(), &[1])?;
        let share = b.convert(share, dtype)?;
        let Statistic::Variance(mean) = self else { return Ok(share) };
        let mean = b.broadcast(*mean, dims, &[1])?;
        let mean = b.convert(mean, dtype)?;
        let centred = b.sub(x, mean)?;
        let twice = b.add(centred, centred)?;
        b.mul(share, twice)
    }
}

/// How many elements a channel has, and the axes they lie along.
pub(crate) fn batch_axes(b: &Builder, x: ValueId) -> Result<(f64, Vec<usize>)> {
    let shape = b.ty(x).require_shape()?;
    if shape.rank() < 2 {
        return Err(errors::no_channels(b.ty(x)));
    }
    let count = shape.num_elements() / shape[1].max(1);
    Ok((count as f64, (0..shape.rank()).filter(|&axis| axis != 1).collect()))
}

impl Builder {
    /// `sigmoid.grad` of its result: `gradient · y · (1 - y)`.
    pub fn sigmoid_grad(&mut self, y: ValueId, gradient: ValueId) -> Result<ValueId> {
        self.composite("sigmoid.grad", "", &[y, gradient], |b, args| {
            let rest = one_minus(b, args[0])?;
            let slope = b.mul(args[0], rest)?;
            b.mul(args[1], slope)
        })
    }

    /// `silu.grad` of its operand: `gradient · s · (1 + x · (1 - s))` with `s = sigmoid(x)`.
    pub fn silu_grad(&mut self, x: ValueId, gradient: ValueId) -> Result<ValueId> {
        self.composite("silu.grad", "", &[x, gradient], |b, args| {
            let gate = b.sigmoid(args[0])?;
            let rest = one_minus(b, gate)?;
            let rest = b.mul(args[0], rest)?;
            let rest = b.binary_scalar(BinaryFn::Add, rest, 1.0)?;
            let slope = b.mul(gate, rest)?;
            b.mul(args[1], slope)
        })
    }

    /// `gelu.grad` of its operand: `gradient · ((1 + erf(x/√2))/2 + x · exp(-x²/2)/√(2π))`.
    pub fn gelu_grad(&mut self, x: ValueId, gradient: ValueId) -> Result<ValueId> {
        self.composite("gelu.grad", "", &[x, gradient], |b, args| {
            let scaled = b.binary_scalar(BinaryFn::Mul, args[0], std::f64::consts::FRAC_1_SQRT_2)?;
            let erf = b.erf(scaled)?;
            let sum = b.binary_scalar(BinaryFn::Add, erf, 1.0)?;
            let share = b.binary_scalar(BinaryFn::Mul, sum, 0.5)?;
            let square = b.mul(args[0], args[0])?;
            let power = b.binary_scalar(BinaryFn::Mul, square, -0.5)?;
            let bell = b.exp(power)?;
            let density =
                b.binary_scalar(BinaryFn::Mul, bell, (2.0 * std::f64::consts::PI).sqrt().recip())?;
            let moved = b.mul(args[0], density)?;
            let slope = b.add(share, moved)?;
            b.mul(args[1], slope)
        })
    }

    /// `gelu_tanh.grad` of its operand: `gradient · (1 + t + x · (1 - t²) · √(2/π) · (1 + 0.134145 x²))/2` with the
    /// hyperbolic tangent `t` of gelu_tanh.
    pub fn gelu_tanh_grad(&mut self, x: ValueId, gradient: ValueId) -> Result<ValueId> {
        self.composite("gelu_tanh.grad", "", &[x, gradient], |b, args| {
            let factor = (2.0 / std::f64::consts::PI).sqrt();
            let square = b.mul(args[0], args[0])?;
            let inner = b.binary_scalar(BinaryFn::Mul, square, factor * 0.044715)?;
            let inner = b.binary_scalar(BinaryFn::Add, inner, factor)?;
            let inner = b.mul(args[0], inner)?;
            let tanh = b.tanh(inner)?;
            let tanh_square = b.mul(tanh, tanh)?;
            let rest = one_minus(b, tanh_square)?;
            let inner_slope = b.binary_scalar(BinaryFn::Mul, square, factor * 0.134145)?;
            let inner_slope = b.binary_scalar(BinaryFn::Add, inner_slope, factor)?;
            let rest = b.mul(rest, inner_slope)?;
            let rest = b.mul(args[0], rest)?;
            let sum = b.add(tanh, rest)?;
            let sum = b.binary_scalar(BinaryFn::Add, sum, 1.0)?;
            let slope = b.binary_scalar(BinaryFn::Mul, sum, 0.5)?;
            b.mul(args[1], slope)
        })
    }

    /// `softmax.grad` of its result, along the last axis: `y · (gradient - Σ gradient · y)`.
    pub fn softmax_grad(&mut self, y: ValueId, gradient: ValueId) -> Result<ValueId> {
        self.composite("softmax.grad", "", &[y, gradient], |b, args| {
            let product = b.mul(args[1], args[0])?;
            let sum = b.reduce_last_like(ReduceFn::Sum, product)?;
            let centred = b.sub(args[1], sum)?;
            b.mul(args[0], centred)
        })
    }

    /// `log_softmax.grad` of its result, along the last axis: `gradient - exp(y) · Σ gradient`.
    pub fn log_softmax_grad(&mut self, y: ValueId, gradient: ValueId) -> Result<ValueId> {
        self.composite("log_softmax.grad", "", &[y, gradient], |b, args| {
            let power = b.exp(args[0])?;
            let sum = b.reduce_last_like(ReduceFn::Sum, args[1])?;
            let share = b.mul(power, sum)?;
            b.sub(args[1], share)
        })
    }

    /// `layer_norm.grad` of x, scale and the gradient: the gradients of x, scale and bias. With the normalized `n`
    /// and `g = gradient · scale`, that of x is `(g - mean(g) - n · mean(g · n)) / √(variance + epsilon)`.
    pub fn layer_norm_grad(
        &mut self,
        x: ValueId,
        scale: ValueId,
        gradient: ValueId,
        epsilon: f64,
    ) -> Result<[ValueId; 3]> {
        let results = self.composite_of_several(
            "layer_norm.grad",
            &epsilon.to_string(),
            &[x, scale, gradient],
            |b, args| {
                let mean = b.mean_last(args[0])?;
                let centred = b.sub(args[0], mean)?;
                let (normal, root) = normalized(b, centred, centred, epsilon)?;
                let scaled = scaled_gradient(b, args[2], args[1])?;
                let mean = b.mean_last(scaled)?;
                let moved = b.sub(scaled, mean)?;
                let dx = without_projection(b, moved, scaled, normal, root)?;
                let dscale = sum_of_leading_products(b, args[2], normal, args[1])?;
                let dbias = sum_leading(b, args[2], args[1])?;
                Ok(vec![dx, dscale, dbias])
            },
        )?;
        Ok([results[0], results[1], results[2]])
    }

    /// `rms_norm.grad` of x, scale and the gradient: the gradients of x and scale. With the normalized `n` and
    /// `g = gradient · scale`, that of x is `(g - n · mean(g · n)) / √(mean(x²) + epsilon)`.
    pub fn rms_norm_grad(
        &mut self,
        x: ValueId,
        scale: ValueId,
        gradient: ValueId,
        epsilon: f64,
    ) -> Result<[ValueId; 2]> {
        let results = self.composite_of_several(
            "rms_norm.grad",
            &epsilon.to_string(),
            &[x, scale, gradient],
            |b, args| {
                let (normal, root) = normalized(b, args[0], args[0], epsilon)?;
                let scaled = scaled_gradient(b, args[2], args[1])?;
                let dx = without_projection(b, scaled, scaled, normal, root)?;
                Ok(vec![dx, sum_of_leading_products(b, args[2], normal, args[1])?])
            },
        )?;
        Ok([results[0], results[1]])
    }
}

/// `x / √(mean(of²) + epsilon)`, and the root.
fn normalized(b: &mut Builder, x: ValueId, of: ValueId, epsilon: f64) -> Result<(ValueId, ValueId)> {
    let square = b.mul(of, of)?;
    let variance = b.mean_last(square)?;
    let raised = b.binary_scalar(BinaryFn::Add, variance, epsilon)?;
    let root = b.sqrt(raised)?;
    Ok((b.div(x, root)?, root))
}

fn scaled_gradient(b: &mut Builder, gradient: ValueId, scale: ValueId) -> Result<ValueId> {
    let scale = b.broadcast_trailing(scale, b.ty(gradient).dims.clone())?;
    b.mul(gradient, scale)
}

/// `(moved - normal · mean(gradient · normal)) / root`
fn without_projection(
    b: &mut Builder,
    moved: ValueId,
    gradient: ValueId,
    normal: ValueId,
    root: ValueId,
) -> Result<ValueId> {
    let product = b.mul(gradient, normal)?;
    let mean = b.mean_last(product)?;
    let projection = b.mul(normal, mean)?;
    let rest = b.sub(moved, projection)?;
    b.div(rest, root)
}

fn sum_of_leading_products(b: &mut Builder, x: ValueId, y: ValueId, like: ValueId) -> Result<ValueId> {
    let product = b.mul(x, y)?;
    sum_leading(b, product, like)
}

/// The sum over the axes along which `like` was repeated to the last dimensions of `x`.
fn sum_leading(b: &mut Builder, x: ValueId, like: ValueId) -> Result<ValueId> {
    let (rank, own) = (b.ty(x).rank(), b.ty(like).rank());
    let axes: Vec<usize> = (rank - own..rank).collect();
    layout::sum_to(b, x, like, &axes)
}
