//! Exponentials, sigmoids, tanh, erf and GELU of many elements, in registers of the level: the steps of `math.rs`
//! with fused multiply-adds, so that bits differ from it, and from level to level, in the last place. A function has the
//! same bits wherever it is computed at a level: alone, or as a part of an activation.
//!
//! The floor is some 10 multiply-adds, 8 other steps and a division: 16 cycles per 16 elements on Zen 4, where
//! the vectoriser's own code for `math::exp` takes 60.

#![allow(unsafe_code)]

use super::elementwise::UnaryLoop;
use super::lanes::{LANES, Lanes};
use super::math::{self, Ratio};
use crate::isa::Isa;
use std::f32::consts::{FRAC_1_SQRT_2, LOG2_E};

/// A function of one element.
pub(super) trait Smooth {
    /// # Safety
    /// See [`Lanes`].
    unsafe fn lanes<L: Lanes>(x: L) -> L;
}

pub struct Exp;
pub struct Sigmoid;
pub struct Silu;
pub struct Tanh;
pub struct Erf;
pub struct Gelu;
pub struct GeluTanh;

impl Smooth for Exp {
    /// As [`math::exp`], step by step; NaN passes through every one.
    #[inline(always)]
    unsafe fn lanes<L: Lanes>(x: L) -> L {
        // SAFETY: passed on.
        unsafe {
            let x = x.clamp(-105.0, 89.0);
            let n = x.mul(L::splat(LOG2_E)).round();
            let r = n.mul_add(L::splat(-0.693_359_4), x);
            let r = n.mul_add(L::splat(2.121_944_4e-4), r);
            let p = L::splat(1.987_569_1e-4);
            let p = p.mul_add(r, L::splat(1.398_199_9e-3));
            let p = p.mul_add(r, L::splat(8.333_452e-3));
            let p = p.mul_add(r, L::splat(4.166_579_6e-2));
            let p = p.mul_add(r, L::splat(1.666_666_5e-1));
            let p = p.mul_add(r, L::splat(5e-1));
            p.mul_add(r.mul(r), r).add(L::splat(1.0)).times_power_of_two(n)
        }
    }
}

impl Smooth for Sigmoid {
    #[inline(always)]
    unsafe fn lanes<L: Lanes>(x: L) -> L {
        // SAFETY: passed on.
        unsafe {
            let below = Exp::lanes(L::splat(-0.0).sub(x)).add(L::splat(1.0));
            L::splat(1.0).div(below)
        }
    }
}

impl Smooth for Silu {
    #[inline(always)]
    unsafe fn lanes<L: Lanes>(x: L) -> L {
        // SAFETY: passed on.
        unsafe { x.mul(Sigmoid::lanes(x)) }
    }
}

/// NaN passes through every step.
///
/// # Safety
/// See [`Lanes`].
#[inline(always)]
unsafe fn odd_ratio<L: Lanes, const P: usize, const Q: usize>(x: L, ratio: &Ratio<P, Q>) -> L {
    // SAFETY: passed on.
    unsafe {
        let x = x.clamp(-ratio.limit, ratio.limit);
        let square = x.mul(x);
        let above = x.mul(polynomial(&ratio.p, square));
        above.div(polynomial(&ratio.q, square)).clamp(-1.0, 1.0)
    }
}

/// Coefficients: highest power first.
///
/// # Safety
/// See [`Lanes`].
#[inline(always)]
unsafe fn polynomial<L: Lanes, const N: usize>(coefficients: &[f32; N], x: L) -> L {
    // SAFETY: passed on.
    unsafe {
        let mut sum = L::splat(coefficients[0]);
        for &coefficient in &coefficients[1..] {
            sum = sum.mul_add(x, L::splat(coefficient));
        }
        sum
    }
}

impl Smooth for Tanh {
    #[inline(always)]
    unsafe fn lanes<L: Lanes>(x: L) -> L {
        // SAFETY: passed on.
        unsafe { odd_ratio(x, &math::TANH) }
    }
}

impl Smooth for Erf {
    #[inline(always)]
    unsafe fn lanes<L: Lanes>(x: L) -> L {
        // SAFETY: passed on.
        unsafe { odd_ratio(x, &math::ERF) }
    }
}

impl Smooth for Gelu {
    /// Op by op what the body of the composite says, so that the bits are its own; so below.
    #[inline(always)]
    unsafe fn lanes<L: Lanes>(x: L) -> L {
        // SAFETY: passed on.
        unsafe {
            let erf = Erf::lanes(x.mul(L::splat(FRAC_1_SQRT_2)));
            x.mul(L::splat(0.5)).mul(erf.add(L::splat(1.0)))
        }
    }
}

impl Smooth for GeluTanh {
    #[inline(always)]
    unsafe fn lanes<L: Lanes>(x: L) -> L {
        // SAFETY: passed on.
        unsafe {
            let sum = x.add(x.mul(x).mul(x).mul(L::splat(0.044715)));
            let tanh = Tanh::lanes(sum.mul(L::splat(0.797_884_6)));
            x.mul(L::splat(0.5)).mul(tanh.add(L::splat(1.0)))
        }
    }
}

/// # Safety
/// See [`UnaryLoop`].
#[inline(always)]
unsafe fn all<S: Smooth, L: Lanes>(x: *const u8, y: *mut u8, n: usize) {
    let (x, y) = (x.cast::<f32>(), y.cast::<f32>());
    let whole = n / LANES * LANES;
    // SAFETY: positions are below n.
    unsafe {
        for at in (0..whole).step_by(LANES) {
            S::lanes(L::load(x.add(at))).store(y.add(at));
        }
        if whole < n {
            let mut rest = [0f32; LANES];
            std::ptr::copy_nonoverlapping(x.add(whole), rest.as_mut_ptr(), n - whole);
            S::lanes(L::load(rest.as_ptr())).store(rest.as_mut_ptr());
            std::ptr::copy_nonoverlapping(rest.as_ptr(), y.add(whole), n - whole);
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Smooth, all};
    use crate::kernel::lanes::{Avx2, Avx512};

    /// # Safety
    /// See [`super::UnaryLoop`]; the processor has AVX2 and FMA.
    #[target_feature(enable = "avx2,fma")]
    pub unsafe fn avx2<S: Smooth>(x: *const u8, y: *mut u8, n: usize) {
        // SAFETY: passed on.
        unsafe { all::<S, Avx2>(x, y, n) }
    }

    /// # Safety
    /// See [`super::UnaryLoop`]; the processor has AVX-512 F, BW, DQ and VL.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
    pub unsafe fn avx512<S: Smooth>(x: *const u8, y: *mut u8, n: usize) {
        // SAFETY: passed on.
        unsafe { all::<S, Avx512>(x, y, n) }
    }
}

/// The loop of a level; `None` where there are no fused multiply-adds, and `math.rs` is as good.
#[allow(private_bounds)]
pub fn smooth<S: Smooth>(isa: Isa) -> Option<UnaryLoop> {
    match isa {
        Isa::Portable => None,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => Some(x86::avx2::<S>),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => Some(x86::avx512::<S>),
        #[cfg(not(target_arch = "x86_64"))]
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::f64::consts::FRAC_1_SQRT_2 as F64_ROOT;

    fn gelu_tanh(x: f64) -> f64 {
        x * 0.5 * (libm::tanh((x + x * x * x * 0.044715) * (2.0 / std::f64::consts::PI).sqrt()) + 1.0)
    }

    /// Largest error in units of the last place over all f32 in steps, of results that are at least `floor`, and
    /// in units of that for smaller ones; extremes exactly.
    fn worst(run: UnaryLoop, exact: fn(f64) -> f64, floor: f64) -> f64 {
        let x: Vec<f32> = (0..u32::MAX).step_by(4099).map(f32::from_bits).collect();
        let mut y = vec![0f32; x.len()];
        // SAFETY: both have as many elements; the caller asks only for levels that are there.
        unsafe { run(x.as_ptr().cast(), y.as_mut_ptr().cast(), x.len()) };
        let mut worst = 0f64;
        for (&x, &y) in x.iter().zip(&y) {
            let expected = exact(x.into());
            let rounded = expected as f32;
            if !rounded.is_finite() || !y.is_finite() {
                assert!(y.is_nan() && rounded.is_nan() || y == rounded, "{x}: {y}, not {rounded}");
                continue;
            }
            let ulp = expected.abs().max(floor) * f64::from(f32::EPSILON) / 1.5;
            worst = worst.max((f64::from(y) - expected).abs() / ulp);
        }
        worst
    }

    #[test]
    fn errors_are_small() {
        for isa in Isa::available() {
            let check = |name, run: Option<UnaryLoop>, exact, floor: f64, most| {
                let error = run.map_or(0.0, |run| worst(run, exact, floor));
                assert!(error <= most, "{name} at {isa:?}: {error} units of the last place");
            };
            check("exp", smooth::<Exp>(isa), libm::exp, f32::MIN_POSITIVE.into(), 2.0);
            // Below -88.7 the exponential is infinite, as the composite's body says, and the result 0.
            check("sigmoid", smooth::<Sigmoid>(isa), |x| 1.0 / (1.0 + libm::exp(-x)), 1e-30, 3.0);
            check("tanh", smooth::<Tanh>(isa), libm::tanh, f32::MIN_POSITIVE.into(), 4.0);
            check("erf", smooth::<Erf>(isa), libm::erf, f32::MIN_POSITIVE.into(), 4.0);
            // Below zero the sum with 1 cancels, as the bodies of the composites say.
            check("gelu", smooth::<Gelu>(isa), |x| x * 0.5 * (libm::erf(x * F64_ROOT) + 1.0), 4.0, 3.0);
            check("gelu_tanh", smooth::<GeluTanh>(isa), gelu_tanh, 4.0, 3.0);
        }
    }

    #[test]
    fn ends_are_exact() {
        let x = [f32::INFINITY, f32::NEG_INFINITY, 1e9, -1e9, -0.0, 1e-45, -3e-39, f32::NAN];
        for isa in Isa::available() {
            let run = |run: Option<UnaryLoop>, expected: [f32; 8]| {
                let mut y = expected;
                // SAFETY: both have eight elements.
                run.into_iter().for_each(|run| unsafe { run(x.as_ptr().cast(), y.as_mut_ptr().cast(), 8) });
                let bits = |x: [f32; 8]| x.map(|x| if x.is_nan() { 0 } else { x.to_bits() });
                assert_eq!(bits(y), bits(expected), "{y:?}, not {expected:?}");
            };
            run(smooth::<Tanh>(isa), [1.0, -1.0, 1.0, -1.0, -0.0, 1e-45, -3e-39, f32::NAN]);
            run(smooth::<Erf>(isa), [1.0, -1.0, 1.0, -1.0, -0.0, 1e-45, -3.385_138e-39, f32::NAN]);
            let gelu = [f32::INFINITY, f32::NAN, 1e9, -0.0, -0.0, 0.0, -1.5e-39, f32::NAN];
            run(smooth::<Gelu>(isa), gelu);
            run(smooth::<GeluTanh>(isa), gelu);
        }
    }
}
