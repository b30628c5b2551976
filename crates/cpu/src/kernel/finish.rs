//! What follows a convolution, pixel by pixel: scale and shift per channel, a residual, bounds. Also as a pass
//! of its own over images in blocks, whose floor is memory: a load and a store per register of channels.

#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
use super::lanes::{Avx2, Avx512};
use super::lanes::{LANES, Lanes, Portable};
use crate::isa::Isa;

/// What becomes of a sum `s` before it is stored, in this order: `s × scale + shift + residual`, at least
/// `low`, at most `high`. Every part may be missing: addresses are null then, bounds `None`.
#[derive(Clone, Copy)]
pub struct Finish {
    /// One per output channel.
    pub scale: *const f32,
    /// One per output channel.
    pub shift: *const f32,
    /// As the result lies.
    pub residual: *const f32,
    pub low: Option<f32>,
    pub high: Option<f32>,
}

impl Finish {
    pub const NONE: Finish = Finish {
        scale: std::ptr::null(),
        shift: std::ptr::null(),
        residual: std::ptr::null(),
        low: None,
        high: None,
    };
}

/// A pixel of the block that the finish's addresses begin with; its residual is at `at`.
///
/// # Safety
/// As the finish says.
#[inline(always)]
pub unsafe fn finished<L: Lanes>(mut x: L, finish: &Finish, at: usize) -> L {
    // SAFETY: as stated.
    unsafe {
        if !finish.scale.is_null() {
            x = x.mul(L::load(finish.scale));
        }
        if !finish.shift.is_null() {
            x = x.add(L::load(finish.shift));
        }
        if !finish.residual.is_null() {
            x = x.add(L::load(finish.residual.add(at)));
        }
        if let Some(low) = finish.low {
            x = x.at_least(L::splat(low));
        }
        if let Some(high) = finish.high {
            x = x.at_most(L::splat(high));
        }
        x
    }
}

/// `(operand, result, pixels, finish)` of one block.
///
/// # Safety
/// Operand and result have the pixels; the finish is as it says. The processor has the level.
pub type PassLoop = unsafe fn(*const f32, *mut f32, usize, &Finish);

/// # Safety
/// See [`PassLoop`].
#[inline(always)]
unsafe fn pass<L: Lanes>(x: *const f32, y: *mut f32, pixels: usize, finish: &Finish) {
    let finish = *finish;
    for at in (0..pixels * LANES).step_by(LANES) {
        // SAFETY: pixels of the operand and the result.
        unsafe { finished(L::load(x.add(at)), &finish, at).store(y.add(at)) };
    }
}

/// # Safety
/// See [`PassLoop`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn pass_avx2(x: *const f32, y: *mut f32, pixels: usize, finish: &Finish) {
    // SAFETY: passed on.
    unsafe { pass::<Avx2>(x, y, pixels, finish) }
}

/// # Safety
/// See [`PassLoop`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
unsafe fn pass_avx512(x: *const f32, y: *mut f32, pixels: usize, finish: &Finish) {
    // SAFETY: passed on.
    unsafe { pass::<Avx512>(x, y, pixels, finish) }
}

pub fn pass_loop(isa: Isa) -> PassLoop {
    match isa {
        Isa::Portable => pass::<Portable>,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => pass_avx2,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => pass_avx512,
        #[cfg(not(target_arch = "x86_64"))]
        _ => pass::<Portable>,
    }
}
