//! Gradients of functions of whole rows of f32: of softmax and the norms, a few passes over a row that stays in the
//! caches. Sums are made as in `rows.rs`.
//!
//! The floor is the bandwidth of the caches; of a logarithm of softmax the exponential.

#![allow(unsafe_code)]

use super::math;
use super::rows::{LANES, total};
use crate::isa::Isa;

/// What a function of rows is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Gradient {
    /// Of the result and its gradient.
    Softmax,
    LogSoftmax,
    /// Of the operand, the scale and the gradient of the result; adds to the sums for scale and bias.
    LayerNorm {
        epsilon: f32,
    },
    /// As above, without a bias.
    RmsNorm {
        epsilon: f32,
    },
}

/// Rows of one length; `scale` and the sums are there where the function has them.
pub struct Row<'a> {
    pub kept: &'a [f32],
    pub scale: &'a [f32],
    pub gradient: &'a [f32],
    pub result: &'a mut [f32],
    /// Products of the gradient with the normal form, then the gradient itself.
    pub sums: &'a mut [f32],
    pub epsilon: f32,
}

pub type GradientLoop = unsafe fn(Row);

macro_rules! levels {
    ($($name:ident, $avx2:ident, $avx512:ident;)*) => { $(
        /// # Safety
        /// The processor has AVX2 and FMA.
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma")]
        unsafe fn $avx2(row: Row) {
            $name(row);
        }

        /// # Safety
        /// The processor has AVX-512 F, BW, DQ and VL.
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
        unsafe fn $avx512(row: Row) {
            $name(row);
        }
    )* };
}
levels! {
    softmax, softmax_avx2, softmax_avx512;
    log_softmax, log_softmax_avx2, log_softmax_avx512;
    layer_norm, layer_norm_avx2, layer_norm_avx512;
    rms_norm, rms_norm_avx2, rms_norm_avx512;
}

#[cfg(target_arch = "x86_64")]
pub fn gradient_loop(isa: Isa, gradient: Gradient) -> GradientLoop {
    let [portable, avx2, avx512]: [GradientLoop; 3] = match gradient {
        Gradient::Softmax => [softmax, softmax_avx2, softmax_avx512],
        Gradient::LogSoftmax => [log_softmax, log_softmax_avx2, log_softmax_avx512],
        Gradient::LayerNorm { .. } => [layer_norm, layer_norm_avx2, layer_norm_avx512],
        Gradient::RmsNorm { .. } => [rms_norm, rms_norm_avx2, rms_norm_avx512],
    };
    match isa {
        Isa::Portable => portable,
        Isa::Avx2 => avx2,
        Isa::Avx512 => avx512,
    }
}

#[cfg(not(target_arch = "x86_64"))]
pub fn gradient_loop(_isa: Isa, gradient: Gradient) -> GradientLoop {
    match gradient {
        Gradient::Softmax => softmax,
        Gradient::LogSoftmax => log_softmax,
        Gradient::LayerNorm { .. } => layer_norm,
        Gradient::RmsNorm { .. } => rms_norm,
    }
}

/// The sum of `f` over three rows of one length.
#[inline(always)]
fn sum(x: &[f32], y: &[f32], z: &[f32], f: impl Fn(f32, f32, f32) -> f32) -> f32 {
    let mut lanes = [0f32; LANES];
    let (xs, ys, zs) = (x.chunks_exact(LANES), y.chunks_exact(LANES), z.chunks_exact(LANES));
    let rest = (xs.remainder(), ys.remainder(), zs.remainder());
    for ((x, y), z) in xs.zip(ys).zip(zs) {
        for i in 0..LANES {
            lanes[i] += f(x[i], y[i], z[i]);
        }
    }
    let rest = rest.0.iter().zip(rest.1).zip(rest.2);
    rest.fold(total(lanes), |sum, ((&x, &y), &z)| sum + f(x, y, z))
}

#[inline(always)]
fn softmax(row: Row) {
    let (y, gradient) = (row.kept, row.gradient);
    let projection = sum(y, gradient, y, |y, gradient, _| y * gradient);
    for ((dx, &y), &gradient) in row.result.iter_mut().zip(y).zip(gradient) {
        *dx = y * (gradient - projection);
    }
}

#[inline(always)]
fn log_softmax(row: Row) {
    let (y, gradient) = (row.kept, row.gradient);
    let share = sum(gradient, gradient, gradient, |gradient, _, _| gradient);
    for ((dx, &y), &gradient) in row.result.iter_mut().zip(y).zip(gradient) {
        *dx = gradient - math::exp(y) * share;
    }
}

#[inline(always)]
fn layer_norm(row: Row) {
    let (x, scale, gradient) = (row.kept, row.scale, row.gradient);
    let count = x.len() as f32;
    let mean = sum(x, x, x, |x, _, _| x) / count;
    let variance = sum(x, x, x, |x, _, _| (x - mean) * (x - mean)) / count;
    let factor = 1.0 / (variance + row.epsilon).sqrt();
    let share = sum(gradient, scale, x, |gradient, scale, _| gradient * scale) / count;
    let projection =
        sum(gradient, scale, x, |gradient, scale, x| gradient * scale * ((x - mean) * factor)) / count;
    let (of_scale, of_bias) = row.sums.split_at_mut(x.len());
    let rows = row.result.iter_mut().zip(x).zip(scale).zip(gradient);
    for ((((dx, &x), &scale), &gradient), (to_scale, to_bias)) in rows.zip(of_scale.iter_mut().zip(of_bias)) {
        let normal = (x - mean) * factor;
        *dx = (gradient * scale - share - normal * projection) * factor;
        *to_scale += gradient * normal;
        *to_bias += gradient;
    }
}

#[inline(always)]
fn rms_norm(row: Row) {
    let (x, scale, gradient) = (row.kept, row.scale, row.gradient);
    let count = x.len() as f32;
    let factor = 1.0 / (sum(x, x, x, |x, _, _| x * x) / count + row.epsilon).sqrt();
    let projection = sum(gradient, scale, x, |gradient, scale, x| gradient * scale * (x * factor)) / count;
    let rows = row.result.iter_mut().zip(x).zip(scale).zip(gradient);
    for ((((dx, &x), &scale), &gradient), to_scale) in rows.zip(row.sums.iter_mut()) {
        let normal = x * factor;
        *dx = (gradient * scale - normal * projection) * factor;
        *to_scale += gradient * normal;
    }
}
