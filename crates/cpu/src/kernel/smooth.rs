//! Exponentials and sigmoids of many elements: the bits of `math::exp` and of the bodies of the composites, in
//! registers of the level. The floor is some 13 additions and 13 multiplications per register, and a division:
//! 20 cycles per 16 elements on Zen 4, where the vectoriser's own code for `math::exp` takes three times as many.

#![allow(unsafe_code)]

use super::elementwise::UnaryLoop;
use super::lanes::{LANES, Lanes};
use super::math;
use crate::isa::Isa;
use std::f32::consts::LOG2_E;

/// A function of one element: in lanes, and of the last few.
trait Smooth {
    /// # Safety
    /// See [`Lanes`].
    unsafe fn lanes<L: Lanes>(x: L) -> L;
    fn one(x: f32) -> f32;
}

pub struct Exp;
pub struct Sigmoid;
pub struct Silu;

impl Smooth for Exp {
    /// As [`math::exp`], step by step; NaN passes through every one.
    #[inline(always)]
    unsafe fn lanes<L: Lanes>(x: L) -> L {
        // SAFETY: passed on.
        unsafe {
            let clamped = x.at_most(L::splat(89.0)).at_least(L::splat(-105.0));
            let n = clamped.mul(L::splat(LOG2_E)).round();
            let r = clamped.sub(n.mul(L::splat(0.693_359_4)));
            let r = r.sub(n.mul(L::splat(-2.121_944_4e-4)));
            let p = L::splat(1.987_569_1e-4);
            let p = p.mul(r).add(L::splat(1.398_199_9e-3));
            let p = p.mul(r).add(L::splat(8.333_452e-3));
            let p = p.mul(r).add(L::splat(4.166_579_6e-2));
            let p = p.mul(r).add(L::splat(1.666_666_5e-1));
            let p = p.mul(r).add(L::splat(5e-1));
            p.mul(r.mul(r)).add(r).add(L::splat(1.0)).times_power_of_two(n)
        }
    }

    #[inline(always)]
    fn one(x: f32) -> f32 {
        math::exp(x)
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

    #[inline(always)]
    fn one(x: f32) -> f32 {
        1.0 / (math::exp(-x) + 1.0)
    }
}

impl Smooth for Silu {
    #[inline(always)]
    unsafe fn lanes<L: Lanes>(x: L) -> L {
        // SAFETY: passed on.
        unsafe { x.mul(Sigmoid::lanes(x)) }
    }

    #[inline(always)]
    fn one(x: f32) -> f32 {
        x * Sigmoid::one(x)
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
        for at in whole..n {
            *y.add(at) = S::one(*x.add(at));
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

/// The loop of a level; `None` where the vectoriser's is as good.
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
