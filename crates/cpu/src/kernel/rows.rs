//! Functions of whole rows of f32: softmax and the norms, a few passes over a row that stays in the L1 cache.
//! Sums have [`LANES`] partial sums at every level, so all levels give the same bits; but of softmax (`softmax.rs`).
//!
//! The floor is L1 for the norms: a row of 768 takes some 150 cycles to read three times and write once. One division
//! a row: a product with the reciprocal errs by one more ulp at most, and a division of 16 elements takes 18 cycles.

#![allow(unsafe_code)]

use super::lanes::Portable;
#[cfg(target_arch = "x86_64")]
use super::lanes::{Avx2, Avx512};
use super::math;
use super::softmax::softmax;
use crate::isa::Isa;
use crate::recognise::Composite;

/// Partial sums of a row.
pub const LANES: usize = 32;

/// `(row, scale, bias, result)`: scale and bias have the row's length where the composite has them.
pub type RowLoop = unsafe fn(&[f32], &[f32], &[f32], &mut [f32], f32);

macro_rules! levels {
    ($($name:ident, $avx2:ident, $avx512:ident;)*) => { $(
        /// # Safety
        /// The processor has AVX2 and FMA.
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma")]
        unsafe fn $avx2(x: &[f32], scale: &[f32], bias: &[f32], y: &mut [f32], epsilon: f32) {
            $name(x, scale, bias, y, epsilon);
        }

        /// # Safety
        /// The processor has AVX-512 F, BW, DQ and VL.
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
        unsafe fn $avx512(x: &[f32], scale: &[f32], bias: &[f32], y: &mut [f32], epsilon: f32) {
            $name(x, scale, bias, y, epsilon);
        }
    )* };
}
levels! {
    log_softmax, log_softmax_avx2, log_softmax_avx512;
    layer_norm, layer_norm_avx2, layer_norm_avx512;
    rms_norm, rms_norm_avx2, rms_norm_avx512;
}

/// # Safety
/// None: the level is everywhere.
unsafe fn softmax_portable(x: &[f32], _: &[f32], _: &[f32], y: &mut [f32], _: f32) {
    // SAFETY: as stated.
    unsafe { softmax::<Portable>(x, y) }
}

/// # Safety
/// The processor has AVX2 and FMA.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn softmax_avx2(x: &[f32], _: &[f32], _: &[f32], y: &mut [f32], _: f32) {
    // SAFETY: as stated.
    unsafe { softmax::<Avx2>(x, y) }
}

/// # Safety
/// The processor has AVX-512 F, BW, DQ and VL.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
unsafe fn softmax_avx512(x: &[f32], _: &[f32], _: &[f32], y: &mut [f32], _: f32) {
    // SAFETY: as stated.
    unsafe { softmax::<Avx512>(x, y) }
}

#[cfg(target_arch = "x86_64")]
pub fn row_loop(isa: Isa, composite: Composite) -> RowLoop {
    match (composite, isa) {
        (Composite::Activation(_), _) => unreachable!("activations are elementwise"),
        (Composite::Softmax, Isa::Portable) => softmax_portable,
        (Composite::Softmax, Isa::Avx2) => softmax_avx2,
        (Composite::Softmax, Isa::Avx512) => softmax_avx512,
        (Composite::LogSoftmax, Isa::Portable) => log_softmax,
        (Composite::LogSoftmax, Isa::Avx2) => log_softmax_avx2,
        (Composite::LogSoftmax, Isa::Avx512) => log_softmax_avx512,
        (Composite::LayerNorm { .. }, Isa::Portable) => layer_norm,
        (Composite::LayerNorm { .. }, Isa::Avx2) => layer_norm_avx2,
        (Composite::LayerNorm { .. }, Isa::Avx512) => layer_norm_avx512,
        (Composite::RmsNorm { .. }, Isa::Portable) => rms_norm,
        (Composite::RmsNorm { .. }, Isa::Avx2) => rms_norm_avx2,
        (Composite::RmsNorm { .. }, Isa::Avx512) => rms_norm_avx512,
    }
}

#[cfg(not(target_arch = "x86_64"))]
pub fn row_loop(_isa: Isa, composite: Composite) -> RowLoop {
    match composite {
        Composite::Activation(_) => unreachable!("activations are elementwise"),
        Composite::Softmax => softmax_portable,
        Composite::LogSoftmax => log_softmax,
        Composite::LayerNorm { .. } => layer_norm,
        Composite::RmsNorm { .. } => rms_norm,
    }
}

/// The sum of `f` over a row.
#[inline(always)]
fn sum(x: &[f32], f: impl Fn(f32) -> f32) -> f32 {
    let mut lanes = [0f32; LANES];
    let chunks = x.chunks_exact(LANES);
    let rest = chunks.remainder();
    for chunk in chunks {
        for (lane, &x) in lanes.iter_mut().zip(chunk) {
            *lane += f(x);
        }
    }
    rest.iter().fold(total(lanes), |sum, &x| sum + f(x))
}

#[inline(always)]
pub fn total(mut lanes: [f32; LANES]) -> f32 {
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            lanes[i] += lanes[i + width];
        }
        width /= 2;
    }
    lanes[0]
}

/// The largest element that is a number; negative infinity if none is.
#[inline(always)]
pub fn largest(x: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let chunks = x.chunks_exact(LANES);
    let rest = chunks.remainder();
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    for chunk in chunks {
        for i in 0..LANES {
            lanes[i] = larger(lanes[i], chunk[i]);
        }
    }
    lanes.iter().chain(rest).fold(f32::NEG_INFINITY, |a, &b| larger(a, b))
}

#[inline(always)]
fn log_softmax(x: &[f32], _: &[f32], _: &[f32], y: &mut [f32], _: f32) {
    let most = largest(x);
    let log = libm::log(sum(x, |x| math::exp(x - most)).into()) as f32;
    for (y, &x) in y.iter_mut().zip(x) {
        *y = x - most - log;
    }
}

#[inline(always)]
fn layer_norm(x: &[f32], scale: &[f32], bias: &[f32], y: &mut [f32], epsilon: f32) {
    let count = x.len() as f32;
    let mean = sum(x, |x| x) / count;
    let variance = sum(x, |x| (x - mean) * (x - mean)) / count;
    let factor = 1.0 / (variance + epsilon).sqrt();
    for i in 0..x.len().min(y.len()).min(scale.len()).min(bias.len()) {
        y[i] = (x[i] - mean) * factor * scale[i] + bias[i];
    }
}

#[inline(always)]
fn rms_norm(x: &[f32], scale: &[f32], _: &[f32], y: &mut [f32], epsilon: f32) {
    let factor = 1.0 / (sum(x, |x| x * x) / x.len() as f32 + epsilon).sqrt();
    for i in 0..x.len().min(y.len()).min(scale.len()) {
        y[i] = x[i] * factor * scale[i];
    }
}
