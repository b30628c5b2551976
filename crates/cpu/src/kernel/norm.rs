//! Sums of batch normalization over pixels of one block of channels, forward and backward, and the pass that makes
//! the gradient of its operand. The floor is memory bandwidth.

#![allow(unsafe_code)]
// Arrays of registers: the loops over them are unrolled.
#![allow(clippy::needless_range_loop)]

#[cfg(target_arch = "x86_64")]
use super::lanes::{Avx2, Avx512};
use super::lanes::{LANES, Lanes, Portable};
use crate::isa::Isa;

/// Partial sums, so that additions do not wait for each other.
const SUMS: usize = 4;

/// What loops over pixels read and write.
pub struct Pixels {
    pub count: usize,
    pub x: *const f32,
    pub gradient: *const f32,
    /// Numbers of the channels: means; or the factors of the gradient and of x, and the offset.
    pub channels: [*const f32; 3],
    /// Two sums of the channels, or a pixel for each of x.
    pub to: *mut f32,
}

/// # Safety
/// What the pixels name lies in memory, `to` is the caller's alone, and the processor has the level.
pub type PixelLoop = unsafe fn(&Pixels);

/// The loops of a level.
pub struct Loops {
    /// The sum of x, and that of the squares of its distances from these pixels' own mean.
    pub moments: PixelLoop,
    /// The sum of the gradient, and that of its products with x less the mean.
    pub products: PixelLoop,
    /// `gradient · channels[0] + x · channels[1] + channels[2]`
    pub combine: PixelLoop,
}

/// The sum of `f` over the pixels.
///
/// # Safety
/// See [`PixelLoop`].
#[inline(always)]
unsafe fn total<L: Lanes>(count: usize, f: impl Fn(usize) -> L) -> L {
    // SAFETY: the level is there.
    unsafe {
        let mut sums = [L::splat(0.0); SUMS];
        let mut pixel = 0;
        while pixel + SUMS <= count {
            for i in 0..SUMS {
                sums[i] = sums[i].add(f((pixel + i) * LANES));
            }
            pixel += SUMS;
        }
        for pixel in pixel..count {
            sums[0] = sums[0].add(f(pixel * LANES));
        }
        sums[0].add(sums[1]).add(sums[2].add(sums[3]))
    }
}

/// # Safety
/// See [`PixelLoop`].
#[inline(always)]
unsafe fn moments<L: Lanes>(p: &Pixels) {
    // SAFETY: pixels are below the count.
    unsafe {
        let sum = total(p.count, |at| L::load(p.x.add(at)));
        let mean = sum.mul(L::splat(1.0 / p.count as f32));
        let square = |at: usize| {
            let centred = L::load(p.x.add(at)).sub(mean);
            centred.mul(centred)
        };
        sum.store(p.to);
        total(p.count, square).store(p.to.add(LANES));
    }
}

/// # Safety
/// See [`PixelLoop`].
#[inline(always)]
unsafe fn products<L: Lanes>(p: &Pixels) {
    // SAFETY: pixels are below the count.
    unsafe {
        let mean = L::load(p.channels[0]);
        let mut sums = [[L::splat(0.0); 2]; SUMS];
        for pixel in 0..p.count {
            let at = pixel * LANES;
            let gradient = L::load(p.gradient.add(at));
            let sums = &mut sums[pixel % SUMS];
            sums[0] = sums[0].add(gradient);
            sums[1] = gradient.mul_add(L::load(p.x.add(at)).sub(mean), sums[1]);
        }
        for which in 0..2 {
            let [a, b, c, d] = [0, 1, 2, 3].map(|i| sums[i][which]);
            a.add(b).add(c.add(d)).store(p.to.add(which * LANES));
        }
    }
}

/// # Safety
/// See [`PixelLoop`].
#[inline(always)]
unsafe fn combine<L: Lanes>(p: &Pixels) {
    // SAFETY: pixels are below the count.
    unsafe {
        let [a, b, c] = p.channels.map(|channels| L::load(channels));
        for at in (0..p.count * LANES).step_by(LANES) {
            let moved = L::load(p.x.add(at)).mul_add(b, c);
            L::load(p.gradient.add(at)).mul_add(a, moved).store(p.to.add(at));
        }
    }
}

/// The loops of a level. `$level` is a module: names of generated functions.
macro_rules! level {
    ($name:ident, $level:ident, $lanes:ty, $(#[$feature:meta])?) => {
        mod $level {
            use super::*;

            /// # Safety
            /// See [`PixelLoop`].
            $(#[$feature])?
            pub unsafe fn moments(p: &Pixels) {
                // SAFETY: passed on.
                unsafe { super::moments::<$lanes>(p) }
            }

            /// # Safety
            /// See [`PixelLoop`].
            $(#[$feature])?
            pub unsafe fn products(p: &Pixels) {
                // SAFETY: passed on.
                unsafe { super::products::<$lanes>(p) }
            }

            /// # Safety
            /// See [`PixelLoop`].
            $(#[$feature])?
            pub unsafe fn combine(p: &Pixels) {
                // SAFETY: passed on.
                unsafe { super::combine::<$lanes>(p) }
            }
        }

        static $name: Loops =
            Loops { moments: $level::moments, products: $level::products, combine: $level::combine };
    };
}
level!(PORTABLE, portable, Portable,);
#[cfg(target_arch = "x86_64")]
level!(AVX2, avx2, Avx2, #[target_feature(enable = "avx2,fma")]);
#[cfg(target_arch = "x86_64")]
level!(
    AVX512,
    avx512,
    Avx512,
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
);

#[cfg(target_arch = "x86_64")]
pub fn loops(isa: Isa) -> &'static Loops {
    match isa {
        Isa::Portable => &PORTABLE,
        Isa::Avx2 => &AVX2,
        Isa::Avx512 => &AVX512,
    }
}

#[cfg(not(target_arch = "x86_64"))]
pub fn loops(_isa: Isa) -> &'static Loops {
    &PORTABLE
}
