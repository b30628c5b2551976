//! Activation functions and the softmax family.

use crate::ctx::Ctx;
use crate::errors;
use crate::import::Value;
use pando_base::{BinaryFn, CompareFn, DType, ReduceFn, Result, UnaryFn};
use pando_graph::{Builder, TensorType, ValueId};

pub(super) fn relu(c: &mut Ctx) -> Result<ValueId> {
    let x = c.x(0)?;
    c.b.relu(x)
}

pub(super) fn sigmoid(c: &mut Ctx) -> Result<ValueId> {
    let x = c.x(0)?;
    c.b.sigmoid(x)
}

/// `x` where positive, `f(x)` elsewhere.
fn below_zero(c: &mut Ctx, x: ValueId, low: ValueId) -> Result<ValueId> {
    let positive = c.cmp_n(CompareFn::Ge, x, 0.0)?;
    c.b.select(positive, x, low)
}

pub(super) fn leaky_relu(c: &mut Ctx) -> Result<ValueId> {
    let x = c.x(0)?;
    leaky(c, x, c.float("alpha", 0.01))
}

fn leaky(c: &mut Ctx, x: ValueId, alpha: f64) -> Result<ValueId> {
    let low = c.times_n(x, alpha)?;
    below_zero(c, x, low)
}

pub(super) fn prelu(c: &mut Ctx) -> Result<ValueId> {
    let (x, slope) = (c.x(0)?, c.x(1)?);
    let low = c.times(x, slope)?;
    below_zero(c, x, low)
}

pub(super) fn thresholded_relu(c: &mut Ctx) -> Result<ValueId> {
    let x = c.x(0)?;
    let above = c.cmp_n(CompareFn::Gt, x, c.float("alpha", 1.0))?;
    let zero = c.b.splat_like(x, 0.0)?;
    c.b.select(above, x, zero)
}

/// `alpha · expm1(x)` below zero.
fn elu_of(c: &mut Ctx, x: ValueId, alpha: f64) -> Result<ValueId> {
    let power = c.un(UnaryFn::Expm1, x)?;
    let low = c.times_n(power, alpha)?;
    below_zero(c, x, low)
}

pub(super) fn elu(c: &mut Ctx) -> Result<ValueId> {
    let x = c.x(0)?;
    elu_of(c, x, c.float("alpha", 1.0))
}

pub(super) fn selu(c: &mut Ctx) -> Result<ValueId> {
    let x = c.x(0)?;
    let (alpha, gamma) =
        (c.float("alpha", 1.673_263_192_176_818_8), c.float("gamma", 1.050_701_022_148_132_3));
    let elu = elu_of(c, x, alpha)?;
    c.times_n(elu, gamma)
}

/// `max(0, x) + min(0, alpha · expm1(x / alpha))`
pub(super) fn celu(c: &mut Ctx) -> Result<ValueId> {
    let x = c.x(0)?;
    let alpha = c.float("alpha", 1.0);
    let scaled = c.over_n(x, alpha)?;
    let power = c.un(UnaryFn::Expm1, scaled)?;
    let low = c.times_n(power, alpha)?;
    below_zero(c, x, low)
}

fn hard_sigmoid_of(c: &mut Ctx, x: ValueId, alpha: f64, beta: f64) -> Result<ValueId> {
    let scaled = c.times_n(x, alpha)?;
    let moved = c.plus_n(scaled, beta)?;
    let above = c.max_n(moved, 0.0)?;
    c.min_n(above, 1.0)
}

pub(super) fn hard_sigmoid(c: &mut Ctx) -> Result<ValueId> {
    let x = c.x(0)?;
    hard_sigmoid_of(c, x, c.float("alpha", 0.2), c.float("beta", 0.5))
}

pub(super) fn hard_swish(c: &mut Ctx) -> Result<ValueId> {
    let x = c.x(0)?;
    let gate = hard_sigmoid_of(c, x, 1.0 / 6.0, 0.5)?;
    c.b.mul(x, gate)
}

/// `log1p(exp(-|x|)) + max(x, 0)`: no overflow.
fn softplus_of(c: &mut Ctx, x: ValueId) -> Result<ValueId> {
    let magnitude = c.b.abs(x)?;
    let negative = c.b.neg(magnitude)?;
    let power = c.b.exp(negative)?;
    let log = c.un(UnaryFn::Log1p, power)?;
    let positive = c.b.relu(x)?;
    c.b.add(log, positive)
}

pub(super) fn softplus(c: &mut Ctx) -> Result<ValueId> {
    let x = c.x(0)?;
    softplus_of(c, x)
}

pub(super) fn softsign(c: &mut Ctx) -> Result<ValueId> {
    let x = c.x(0)?;
    let magnitude = c.b.abs(x)?;
    let below = c.plus_n(magnitude, 1.0)?;
    c.b.div(x, below)
}

pub(super) fn mish(c: &mut Ctx) -> Result<ValueId> {
    let x = c.x(0)?;
    let softplus = softplus_of(c, x)?;
    let gate = c.b.tanh(softplus)?;
    c.b.mul(x, gate)
}

/// `x · sigmoid(alpha · x)`
pub(super) fn swish(c: &mut Ctx) -> Result<ValueId> {
    let x = c.x(0)?;
    swish_of(c, x, c.float("alpha", 1.0))
}

pub(super) fn swish_of(c: &mut Ctx, x: ValueId, alpha: f64) -> Result<ValueId> {
    if alpha == 1.0 {
        return c.b.silu(x);
    }
    let scaled = c.times_n(x, alpha)?;
    let gate = c.b.sigmoid(scaled)?;
    c.b.mul(x, gate)
}

/// com.microsoft's Swish with another default.
pub(super) fn quick_gelu(c: &mut Ctx) -> Result<ValueId> {
    let x = c.x(0)?;
    swish_of(c, x, c.float("alpha", 1.702))
}

pub(super) fn gelu(c: &mut Ctx) -> Result<ValueId> {
    let x = c.x(0)?;
    if c.string("approximate", "none") == "tanh" { c.b.gelu_tanh(x) } else { c.b.gelu(x) }
}

pub(super) fn shrink(c: &mut Ctx) -> Result<ValueId> {
    let x = c.x(0)?;
    let (bias, lambda) = (c.float("bias", 0.0), c.float("lambd", 0.5));
    let dtype = c.dtype(x);
    let float = if dtype.is_float() { x } else { c.b.convert(x, DType::F32)? };
    let (up, down) = (c.plus_n(float, bias)?, c.plus_n(float, -bias)?);
    let (low, high) = (c.cmp_n(CompareFn::Lt, float, -lambda)?, c.cmp_n(CompareFn::Gt, float, lambda)?);
    let zero = c.b.splat_like(float, 0.0)?;
    let above = c.b.select(high, down, zero)?;
    let result = c.b.select(low, up, above)?;
    c.b.convert(result, dtype)
}

/// An activation of the recurrent operators, by name.
pub(super) fn by_name(
    c: &mut Ctx,
    name: &str,
    alpha: Option<f64>,
    beta: Option<f64>,
    x: ValueId,
) -> Result<ValueId> {
    match name.to_ascii_lowercase().as_str() {
        "relu" => c.b.relu(x),
        "tanh" => c.b.tanh(x),
        "sigmoid" => c.b.sigmoid(x),
        "affine" => {
            let scaled = c.times_n(x, alpha.unwrap_or(1.0))?;
            c.plus_n(scaled, beta.unwrap_or(0.0))
        }
        "leakyrelu" => leaky(c, x, alpha.unwrap_or(0.01)),
        "hardsigmoid" => hard_sigmoid_of(c, x, alpha.unwrap_or(0.2), beta.unwrap_or(0.5)),
        "elu" => elu_of(c, x, alpha.unwrap_or(1.0)),
        "softplus" => softplus_of(c, x),
        "softsign" => {
            let magnitude = c.b.abs(x)?;
            let below = c.plus_n(magnitude, 1.0)?;
            c.b.div(x, below)
        }
        "scaledtanh" => {
            let scaled = c.times_n(x, beta.unwrap_or(1.0))?;
            let tanh = c.b.tanh(scaled)?;
            c.times_n(tanh, alpha.unwrap_or(1.0))
        }
        _ => Err(errors::wrong_attribute("activations", format!("'{name}' is not known"))),
    }
}

/// Before version 13 the operand is taken as a matrix, split at `axis`; later `axis` itself is meant.
fn on_axis(c: &mut Ctx, f: impl FnOnce(&mut Builder, ValueId, usize) -> Result<ValueId>) -> Result<ValueId> {
    let x = c.x(0)?;
    let rank = c.rank(x);
    if rank == 0 {
        let vector = c.b.reshape(x, [1u64])?;
        let result = f(c.b, vector, 0)?;
        return c.b.reshape(result, pando_graph::Dims::new());
    }
    if c.version >= 13 {
        let axis = c.axis_of(c.int("axis", -1), rank)?;
        return f(c.b, x, axis);
    }
    let axis = c.axis_of(c.int("axis", 1), rank)?;
    let dims = c.dims(x);
    let flat = c.flatten(x, axis, rank)?;
    let result = f(c.b, flat, axis)?;
    c.b.reshape(result, dims)
}

pub(super) fn softmax(c: &mut Ctx) -> Result<ValueId> {
    on_axis(c, |b, x, axis| b.softmax(x, axis))
}

pub(super) fn log_softmax(c: &mut Ctx) -> Result<ValueId> {
    on_axis(c, |b, x, axis| b.log_softmax(x, axis))
}

/// One at the first largest element, zero elsewhere.
pub(super) fn hardmax(c: &mut Ctx) -> Result<ValueId> {
    on_axis(c, |b, x, axis| {
        let ty = b.ty(x).clone();
        let kept: Vec<usize> = (0..ty.rank()).filter(|&other| other != axis).collect();
        let max = b.reduce(ReduceFn::Max, x, &[axis])?;
        let max = b.broadcast(max, ty.dims.clone(), &kept)?;
        let at = b.compare(CompareFn::Eq, x, max)?;
        let counts = b.iota(TensorType { dtype: DType::I32, dims: ty.dims.clone() }, axis)?;
        let never = b.splat_like(counts, f64::from(i32::MAX))?;
        let places = b.select(at, counts, never)?;
        let first = b.reduce(ReduceFn::Min, places, &[axis])?;
        let first = b.broadcast(first, ty.dims.clone(), &kept)?;
        let hit = b.compare(CompareFn::Eq, counts, first)?;
        b.convert(hit, ty.dtype)
    })
}

/// `swish(x) · y`
pub(super) fn swiglu(c: &mut Ctx) -> Result<ValueId> {
    let x = c.x(0)?;
    if let Some(y) = c.opt(1)? {
        let gate = swish_of(c, x, c.float("alpha", 1.0))?;
        return c.times(gate, y);
    }
    let (alpha, axis) = (c.float("alpha", 1.0), c.axis_of(c.int("axis", -1), c.rank(x))?);
    let size = c.size(x, axis)?;
    let (gate, up) = (c.part(x, axis, 0, size / 2)?, c.part(x, axis, size / 2, size)?);
    let gate = swish_of(c, gate, alpha)?;
    c.b.mul(gate, up)
}

/// Inference passes values through; training with a ratio above zero is random.
pub(super) fn dropout(c: &mut Ctx) -> Result<Vec<Value>> {
    let x = c.tensor(0)?.clone();
    let training = c.version >= 12 && c.opt(2)?.is_some() && c.known_int(2)? != 0;
    let ratio = match c.opt(1)? {
        Some(_) if c.version >= 12 => c.known_float(1)?,
        _ => c.float("ratio", 0.5),
    };
    if training && ratio > 0.0 {
        return Err(errors::invalid("dropout in training mode draws random numbers"));
    }
    let mask_type = TensorType { dtype: DType::Bool, dims: c.dims(x.id) };
    let mask = c.b.splat(&mask_type, 1.0)?;
    let mask = if c.version >= 10 { mask } else { c.b.convert(mask, c.dtype(x.id))? };
    Ok(vec![Value::Tensor(x), Value::tensor(c.b, mask)])
}

pub(super) fn bias_gelu(c: &mut Ctx) -> Result<ValueId> {
    let (x, bias) = (c.x(0)?, c.x(1)?);
    let sum = c.plus(x, bias)?;
    c.b.gelu(sum)
}

pub(super) fn fast_gelu(c: &mut Ctx) -> Result<ValueId> {
    let mut x = c.x(0)?;
    if let Some(bias) = c.opt(1)? {
        x = c.bin(BinaryFn::Add, x, bias)?;
    }
    c.b.gelu_tanh(x)
}
