//! Normalisations.

use crate::ctx::Ctx;
use crate::errors;
use crate::import::{Value, product};
use pando_base::{BinaryFn, DType, ReduceFn, Result, UnaryFn};
use pando_graph::{Dim, ReduceWindow, ValueId};

pub(super) fn mean_keep(c: &mut Ctx, x: ValueId, axes: &[usize]) -> Result<ValueId> {
    let count = super::reduce::count_of(c, x, axes)?;
    let sum = c.reduce_keep(ReduceFn::Sum, x, axes)?;
    c.over(sum, count)
}

/// `x - mean` and the variance along axes.
fn centred(c: &mut Ctx, x: ValueId, axes: &[usize]) -> Result<(ValueId, ValueId, ValueId)> {
    let mean = mean_keep(c, x, axes)?;
    let centred = c.minus(x, mean)?;
    let square = c.b.mul(centred, centred)?;
    let variance = mean_keep(c, square, axes)?;
    Ok((centred, mean, variance))
}

/// `1 / √(x + epsilon)`
fn inverse_root(c: &mut Ctx, x: ValueId, epsilon: f64) -> Result<ValueId> {
    let raised = c.plus_n(x, epsilon)?;
    let root = c.b.sqrt(raised)?;
    c.n_over(1.0, root)
}

/// A number per channel in the dimensions of `x`.
fn per_channel(c: &mut Ctx, value: ValueId, x: ValueId) -> Result<ValueId> {
    let axis = 1.min(c.rank(x).saturating_sub(1));
    c.b.broadcast(value, c.dims(x), &[axis])
}

/// Inference folds everything into one scale and offset per channel.
pub(super) fn batch_normalization(c: &mut Ctx) -> Result<Vec<Value>> {
    let [x, scale, bias, mean, variance] = [c.x(0)?, c.x(1)?, c.x(2)?, c.x(3)?, c.x(4)?];
    let epsilon = c.float("epsilon", 1e-5);
    if c.flag("training_mode", false) {
        return batch_normalization_training(c, [x, scale, bias, mean, variance], epsilon);
    }
    let dtype = c.dtype(x);
    let inverse = inverse_root(c, variance, epsilon)?;
    let scale = c.b.convert(scale, c.dtype(inverse))?;
    let factor = c.b.mul(scale, inverse)?;
    let moved = c.b.mul(mean, factor)?;
    let bias = c.b.convert(bias, c.dtype(moved))?;
    let offset = c.b.sub(bias, moved)?;
    let (factor, offset) = (c.b.convert(factor, dtype)?, c.b.convert(offset, dtype)?);
    let factor = per_channel(c, factor, x)?;
    let scaled = c.b.mul(x, factor)?;
    let offset = per_channel(c, offset, x)?;
    Ok(vec![Value::typed(c.b.add(scaled, offset)?, c.elem(0)?)])
}

fn batch_normalization_training(c: &mut Ctx, all: [ValueId; 5], epsilon: f64) -> Result<Vec<Value>> {
    let [x, scale, bias, mean, variance] = all;
    let momentum = c.float("momentum", 0.9);
    let axes: Vec<usize> = (0..c.rank(x)).filter(|&axis| axis != 1).collect();
    let (centred, own_mean, own_variance) = centred(c, x, &axes)?;
    let inverse = inverse_root(c, own_variance, epsilon)?;
    let normal = c.times(centred, inverse)?;
    let scale = per_channel(c, scale, x)?;
    let scaled = c.b.mul(normal, scale)?;
    let bias = per_channel(c, bias, x)?;
    let result = c.b.add(scaled, bias)?;
    let mut results = vec![Value::tensor(c.b, result)];
    for (running, own) in [(mean, own_mean), (variance, own_variance)] {
        let own = c.squeeze(own, &axes)?;
        let (old, new) = (c.times_n(running, momentum)?, c.times_n(own, 1.0 - momentum)?);
        let id = c.b.add(old, new)?;
        results.push(Value::tensor(c.b, id));
    }
    Ok(results)
}

pub(super) fn instance_normalization(c: &mut Ctx) -> Result<ValueId> {
    let (x, scale, bias) = (c.x(0)?, c.x(1)?, c.x(2)?);
    let axes: Vec<usize> = (2..c.rank(x)).collect();
    let (centred, _, variance) = centred(c, x, &axes)?;
    let inverse = inverse_root(c, variance, c.float("epsilon", 1e-5))?;
    let normal = c.times(centred, inverse)?;
    let scale = per_channel(c, scale, x)?;
    let scaled = c.b.mul(normal, scale)?;
    let bias = per_channel(c, bias, x)?;
    c.b.add(scaled, bias)
}

/// Before version 21 scale and bias have an entry per group, afterwards per channel.
pub(super) fn group_normalization(c: &mut Ctx) -> Result<ValueId> {
    let (x, mut scale, mut bias) = (c.x(0)?, c.x(1)?, c.x(2)?);
    let dims = c.dims(x);
    let (channels, groups) = (c.size(x, 1)?, u64::try_from(c.int("num_groups", 1)).unwrap_or(0));
    if groups == 0 || channels % groups != 0 {
        return Err(errors::invalid(format!("{groups} groups do not divide {channels} channels")));
    }
    let split: Vec<Dim> = [dims[0].clone(), groups.into(), (channels / groups).into()]
        .into_iter()
        .chain(dims[2..].iter().cloned())
        .collect();
    let grouped = c.b.reshape(x, split)?;
    let axes: Vec<usize> = (2..c.rank(grouped)).collect();
    let dtype = c.dtype(x);
    let precise = if c.int("stash_type", 1) == 1 { c.b.convert(grouped, DType::F32)? } else { grouped };
    let (centred, _, variance) = centred(c, precise, &axes)?;
    let inverse = inverse_root(c, variance, c.float("epsilon", 1e-5))?;
    let normal = c.times(centred, inverse)?;
    let normal = c.b.convert(normal, dtype)?;
    let normal = c.b.reshape(normal, dims)?;
    if c.version < 21 {
        let spread = |c: &mut Ctx, value: ValueId| -> Result<ValueId> {
            let ty = pando_graph::TensorType::new(dtype, [groups, channels / groups]);
            let wide = c.b.broadcast(value, ty.dims, &[0])?;
            c.reshape_to(wide, &[channels])
        };
        (scale, bias) = (spread(c, scale)?, spread(c, bias)?);
    }
    let scale = per_channel(c, scale, x)?;
    let scaled = c.b.mul(normal, scale)?;
    let bias = per_channel(c, bias, x)?;
    c.b.add(scaled, bias)
}

/// Axes from `axis` on as one, which must have a known size.
fn merged(c: &mut Ctx, x: ValueId, axis: usize) -> Result<ValueId> {
    let rank = c.rank(x);
    if axis + 1 == rank { Ok(x) } else { c.flatten(x, axis, rank) }
}

/// A scale or bias in the dimensions that are normalised, flat.
fn trailing(c: &mut Ctx, value: ValueId, dims: &[Dim], dtype: DType) -> Result<ValueId> {
    let value = c.expand(value, dims)?;
    let value = c.b.convert(value, dtype)?;
    c.b.reshape(value, [product(dims)])
}

pub(super) fn layer_normalization(c: &mut Ctx) -> Result<Vec<Value>> {
    let (x, scale, bias) = (c.x(0)?, c.x(1)?, c.opt(2)?);
    let axis = c.axis_of(c.int("axis", -1), c.rank(x))?;
    let epsilon = c.float("epsilon", 1e-5);
    layer_norm_with(c, x, Some(scale), bias, axis, epsilon)
}

/// Normalised values, mean, and inverse deviation. Computed in f32 unless the operand is.
pub(super) fn layer_norm_with(
    c: &mut Ctx,
    x: ValueId,
    scale: Option<ValueId>,
    bias: Option<ValueId>,
    axis: usize,
    epsilon: f64,
) -> Result<Vec<Value>> {
    let (dims, dtype) = (c.dims(x), c.dtype(x));
    let flat = merged(c, x, axis)?;
    let flat = c.b.convert(flat, DType::F32)?;
    let row = dims[axis..].to_vec();
    let splat = |c: &mut Ctx, value: f64| {
        c.b.splat(&pando_graph::TensorType::new(DType::F32, [product(&row)]), value)
    };
    let scale = match scale {
        Some(scale) => trailing(c, scale, &row, DType::F32)?,
        None => splat(c, 1.0)?,
    };
    let bias = match bias {
        Some(bias) => trailing(c, bias, &row, DType::F32)?,
        None => splat(c, 0.0)?,
    };
    let result = c.b.layer_norm(flat, scale, bias, epsilon)?;
    let result = c.b.convert(result, dtype)?;
    let mut results = vec![c.b.reshape(result, dims.clone())?];
    if c.has_output(1) || c.has_output(2) {
        let (_, mean, variance) = centred(c, flat, &[axis])?;
        let inverse = inverse_root(c, variance, epsilon)?;
        let mut kept = dims;
        kept[axis..].fill(Dim::Known(1));
        for value in [mean, inverse] {
            results.push(c.b.reshape(value, kept.clone())?);
        }
    }
    Ok(results.into_iter().map(|id| Value::tensor(c.b, id)).collect())
}

pub(super) fn rms_normalization(c: &mut Ctx) -> Result<ValueId> {
    let (x, scale) = (c.x(0)?, c.x(1)?);
    let axis = c.axis_of(c.int("axis", -1), c.rank(x))?;
    let epsilon = c.float("epsilon", 1e-5);
    rms_norm_with(c, x, scale, axis, epsilon)
}

pub(super) fn rms_norm_with(
    c: &mut Ctx,
    x: ValueId,
    scale: ValueId,
    axis: usize,
    epsilon: f64,
) -> Result<ValueId> {
    let (dims, dtype) = (c.dims(x), c.dtype(x));
    let flat = merged(c, x, axis)?;
    let flat = c.b.convert(flat, DType::F32)?;
    let scale = trailing(c, scale, &dims[axis..], DType::F32)?;
    let result = c.b.rms_norm(flat, scale, epsilon)?;
    let result = c.b.convert(result, dtype)?;
    c.b.reshape(result, dims)
}

/// `x / (bias + alpha/size · Σ x²)^beta` over neighbouring channels.
pub(super) fn lrn(c: &mut Ctx) -> Result<ValueId> {
    let x = c.x(0)?;
    c.need_rank(x, 2..=usize::MAX)?;
    let size = c.int("size", 1).clamp(1, 1 << 32);
    let square = c.b.mul(x, x)?;
    let rank = c.rank(x);
    let mut window = ReduceWindow {
        func: ReduceFn::Sum,
        window: vec![1; rank],
        strides: vec![1; rank],
        padding: vec![(0, 0); rank],
        dilation: vec![1; rank],
    };
    window.window[1] = size as u64;
    window.padding[1] = ((size - 1) / 2, size / 2);
    let sum = c.b.reduce_window(square, window)?;
    let scaled = c.times_n(sum, c.float("alpha", 1e-4) / size as f64)?;
    let raised = c.plus_n(scaled, c.float("bias", 1.0))?;
    let below = c.b.binary_scalar(BinaryFn::Pow, raised, c.float("beta", 0.75))?;
    c.b.div(x, below)
}

pub(super) fn lp_normalization(c: &mut Ctx) -> Result<ValueId> {
    let x = c.x(0)?;
    let axis = c.axis_of(c.int("axis", -1), c.rank(x))?;
    let norm = if c.int("p", 2) == 1 {
        let magnitude = c.b.abs(x)?;
        c.reduce_keep(ReduceFn::Sum, magnitude, &[axis])?
    } else {
        let square = c.b.mul(x, x)?;
        let sum = c.reduce_keep(ReduceFn::Sum, square, &[axis])?;
        c.un(UnaryFn::Sqrt, sum)?
    };
    // A row of zeros stays zeros.
    let zero = c.cmp_n(pando_base::CompareFn::Eq, norm, 0.0)?;
    let one = c.b.splat_like(norm, 1.0)?;
    let norm = c.b.select(zero, one, norm)?;
    c.over(x, norm)
}

pub(super) fn mean_variance_normalization(c: &mut Ctx) -> Result<ValueId> {
    let x = c.x(0)?;
    let axes = c.axes_of(&c.ints("axes").unwrap_or_else(|| vec![0, 2, 3]), c.rank(x))?;
    let (centred, _, variance) = centred(c, x, &axes)?;
    let root = c.b.sqrt(variance)?;
    let raised = c.plus_n(root, 1e-9)?;
    c.over(centred, raised)
}
