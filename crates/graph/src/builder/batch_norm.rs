//! Batch normalization as training does it: with the statistics of the batch itself. Its gradient is a composite,
//! too. Both compute in f32 if anything is narrower.

use super::Builder;
use crate::grad::batch_axes;
use crate::module::ValueId;
use crate::types::Dims;
use pando_base::{BinaryFn, DType, ReduceFn, Result};

impl Builder {
    /// The composite `batch_norm_training` of `x[N, C, …]`, `scale[C]` and `bias[C]`: the normalized x, and mean and
    /// variance (divided by the number of elements) of each channel, in the type of `scale`.
    pub fn batch_norm_training(
        &mut self,
        x: ValueId,
        scale: ValueId,
        bias: ValueId,
        epsilon: f64,
    ) -> Result<[ValueId; 3]> {
        let args = [x, scale, bias];
        let results =
            self.composite_of_several("batch_norm_training", &epsilon.to_string(), &args, |b, args| {
                let (of_x, of_scale) = (b.ty(args[0]).dtype, b.ty(args[1]).dtype);
                let [x, scale, bias] = in_f32(b, [args[0], args[1], args[2]])?;
                let mean = channel_mean(b, x)?;
                let centred = minus_channels(b, x, mean)?;
                let square = b.mul(centred, centred)?;
                let variance = channel_mean(b, square)?;
                let factor = factor(b, scale, variance, epsilon)?;
                let factor = channels_like(b, factor, x)?;
                let bias = channels_like(b, bias, x)?;
                let scaled = b.mul(centred, factor)?;
                let y = b.add(scaled, bias)?;
                Ok(vec![b.convert(y, of_x)?, b.convert(mean, of_scale)?, b.convert(variance, of_scale)?])
            })?;
        Ok([results[0], results[1], results[2]])
    }

    /// The composite `batch_norm_training.grad`: the gradients of x, scale and bias. With the normalized `n` that of x
    /// is `scale / √(variance + epsilon) · (gradient - mean(gradient) - n · mean(gradient · n))`.
    pub fn batch_norm_training_grad(
        &mut self,
        x: ValueId,
        scale: ValueId,
        mean: ValueId,
        variance: ValueId,
        gradient: ValueId,
        epsilon: f64,
    ) -> Result<[ValueId; 3]> {
        let args = [x, scale, mean, variance, gradient];
        let key = epsilon.to_string();
        let results = self.composite_of_several("batch_norm_training.grad", &key, &args, |b, args| {
            let (of_x, of_scale) = (b.ty(args[0]).dtype, b.ty(args[1]).dtype);
            let [x, scale, mean, variance, gradient] =
                in_f32(b, [args[0], args[1], args[2], args[3], args[4]])?;
            let (count, axes) = batch_axes(b, x)?;
            let one = b.splat_like(scale, 1.0)?;
            let inverse = factor(b, one, variance, epsilon)?;
            let centred = minus_channels(b, x, mean)?;
            let product = b.mul(gradient, centred)?;
            let sum = b.reduce(ReduceFn::Sum, product, &axes)?;
            let dscale = b.mul(sum, inverse)?;
            let dbias = b.reduce(ReduceFn::Sum, gradient, &axes)?;
            // x's gradient: factor · (gradient - mean of it - centred · slope), the last two by channel.
            let factor = b.mul(scale, inverse)?;
            let mean = b.binary_scalar(BinaryFn::Div, dbias, count)?;
            let slope = b.mul(dscale, inverse)?;
            let slope = b.binary_scalar(BinaryFn::Div, slope, count)?;
            let slope = channels_like(b, slope, x)?;
            let moved = minus_channels(b, gradient, mean)?;
            let projection = b.mul(centred, slope)?;
            let rest = b.sub(moved, projection)?;
            let factor = channels_like(b, factor, x)?;
            let dx = b.mul(rest, factor)?;
            Ok(vec![b.convert(dx, of_x)?, b.convert(dscale, of_scale)?, b.convert(dbias, of_scale)?])
        })?;
        Ok([results[0], results[1], results[2]])
    }
}

fn in_f32<const N: usize>(b: &mut Builder, values: [ValueId; N]) -> Result<[ValueId; N]> {
    let mut converted = values;
    for value in &mut converted {
        *value = b.convert(*value, DType::F32)?;
    }
    Ok(converted)
}

fn channels_like(b: &mut Builder, channels: ValueId, x: ValueId) -> Result<ValueId> {
    let dims: Dims = b.ty(x).dims.clone();
    b.broadcast(channels, dims, &[1])
}

fn channel_mean(b: &mut Builder, x: ValueId) -> Result<ValueId> {
    let (count, axes) = batch_axes(b, x)?;
    let sum = b.reduce(ReduceFn::Sum, x, &axes)?;
    b.binary_scalar(BinaryFn::Div, sum, count)
}

fn minus_channels(b: &mut Builder, x: ValueId, channels: ValueId) -> Result<ValueId> {
    let channels = channels_like(b, channels, x)?;
    b.sub(x, channels)
}

/// `scale / √(variance + epsilon)`
fn factor(b: &mut Builder, scale: ValueId, variance: ValueId, epsilon: f64) -> Result<ValueId> {
    let raised = b.binary_scalar(BinaryFn::Add, variance, epsilon)?;
    let root = b.sqrt(raised)?;
    b.div(scale, root)
}
