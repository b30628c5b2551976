//! Tiles of convolutions whose channels lie in blocks of [`LANES`]: neighbouring pixels of a row times one or
//! two blocks of output channels, summed in registers over all taps, then finished and stored once.
//!
//! Tiles: 14 pixels × 32 channels with AVX-512 (28 of 32 registers hold sums), 6 × 16 with AVX2 (12 of 16),
//! 3 × 16 portable. The floor is the multiply-add units: a step of a 14 × 32 tile is 28 multiply-adds, 14
//! broadcasts and 2 loads, which hide. Tiles of fewer pixels take their share of the time, down to 4.

#![allow(unsafe_code)]
// Rows index registers: the loops over them are unrolled.
#![allow(clippy::needless_range_loop)]

use super::finish::Finish;
#[cfg(target_arch = "x86_64")]
use super::lanes::{Avx2, Avx512};
use super::lanes::{LANES, Lanes, Portable};
use crate::isa::Isa;

/// Inputs whose products with weights are summed: `lanes` neighbours from `offset` on, counted from the
/// tile's first pixel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tap {
    pub offset: u32,
    pub lanes: u32,
}

/// A tile's operands and results.
pub struct Tile<'a> {
    pub x: *const f32,
    pub taps: &'a [Tap],
    /// `[step][block][LANES]`, a step for each lane of each tap. Depthwise: `[tap][LANES]`.
    pub weights: *const f32,
    /// Pixels follow one another, blocks are `block` elements apart.
    pub y: *mut f32,
    pub block: usize,
    /// Lanes to store, where blocks hold channels of several groups: the others keep what is there.
    pub mask: u16,
    pub finish: Finish,
}

/// # Safety
/// The taps of all pixels, the weights, the results and what the finish names lie in memory; the results are
/// the caller's alone. The processor has the instructions of the level.
pub type TileLoop = unsafe fn(&Tile);

/// The tiles of a level; kernels by pixels, from 1.
pub struct Tiles {
    /// Most pixels of a tile.
    pub pixels: usize,
    /// Most blocks of a tile.
    pub blocks: usize,
    /// By blocks, from 1. Inputs in blocks: pixels are [`LANES`] elements apart.
    pub blocked: &'static [&'static [TileLoop]],
    /// Inputs in planes: pixels are neighbours.
    pub plain: &'static [&'static [TileLoop]],
    /// One input channel per output channel.
    pub depthwise: &'static [TileLoop],
}

/// # Safety
/// See [`TileLoop`].
#[inline(always)]
unsafe fn product<L: Lanes, const P: usize, const V: usize, const STEP: usize>(tile: &Tile) {
    // SAFETY: the taps of P pixels, and weights for each of their lanes.
    unsafe {
        let mut sums = [[L::splat(0.0); V]; P];
        let mut weights = tile.weights;
        for tap in tile.taps {
            let mut x = tile.x.add(tap.offset as usize);
            // Taps of planes have one lane.
            for _ in 0..if STEP == 1 { 1 } else { tap.lanes } {
                let mut w = [L::splat(0.0); V];
                for v in 0..V {
                    w[v] = L::load(weights.add(v * LANES));
                }
                for p in 0..P {
                    let pixel = L::splat(*x.add(p * STEP));
                    for v in 0..V {
                        sums[p][v] = pixel.mul_add(w[v], sums[p][v]);
                    }
                }
                x = x.add(1);
                weights = weights.add(V * LANES);
            }
        }
        finish::<L, P, V>(tile, sums);
    }
}

/// # Safety
/// See [`TileLoop`].
#[inline(always)]
unsafe fn depthwise<L: Lanes, const P: usize>(tile: &Tile) {
    // SAFETY: the taps of P pixels, and weights for each.
    unsafe {
        let mut sums = [[L::splat(0.0); 1]; P];
        for (index, tap) in tile.taps.iter().enumerate() {
            let x = tile.x.add(tap.offset as usize);
            let w = L::load(tile.weights.add(index * LANES));
            for p in 0..P {
                sums[p][0] = L::load(x.add(p * LANES)).mul_add(w, sums[p][0]);
            }
        }
        finish::<L, P, 1>(tile, sums);
    }
}

/// # Safety
/// See [`TileLoop`].
#[inline(always)]
unsafe fn finish<L: Lanes, const P: usize, const V: usize>(tile: &Tile, mut sums: [[L; V]; P]) {
    let Finish { scale, shift, residual, low, high } = tile.finish;
    // SAFETY: as the finish says.
    unsafe {
        if !scale.is_null() {
            for v in 0..V {
                let scale = L::load(scale.add(v * LANES));
                for p in 0..P {
                    sums[p][v] = sums[p][v].mul(scale);
                }
            }
        }
        if !shift.is_null() {
            for v in 0..V {
                let shift = L::load(shift.add(v * LANES));
                for p in 0..P {
                    sums[p][v] = sums[p][v].add(shift);
                }
            }
        }
        if !residual.is_null() {
            for v in 0..V {
                for p in 0..P {
                    sums[p][v] = sums[p][v].add(L::load(residual.add(v * tile.block + p * LANES)));
                }
            }
        }
        if let Some(low) = low {
            let low = L::splat(low);
            for v in 0..V {
                for p in 0..P {
                    sums[p][v] = sums[p][v].at_least(low);
                }
            }
        }
        if let Some(high) = high {
            let high = L::splat(high);
            for v in 0..V {
                for p in 0..P {
                    sums[p][v] = sums[p][v].at_most(high);
                }
            }
        }
        for v in 0..V {
            for p in 0..P {
                let y = tile.y.add(v * tile.block + p * LANES);
                if tile.mask == u16::MAX {
                    sums[p][v].store(y);
                } else {
                    L::load(y).blend(tile.mask, sums[p][v]).store(y);
                }
            }
        }
    }
}

/// The kernels of a level. `$kernel` is a module: names of generated functions.
macro_rules! level {
    ($name:ident, $kernel:ident, $lanes:ty, $(#[$feature:meta])?, [$($pixels:literal),*], $blocks:literal) => {
        mod $kernel {
            use super::*;

            /// # Safety
            /// See [`TileLoop`].
            $(#[$feature])?
            pub unsafe fn blocked<const P: usize, const V: usize>(tile: &Tile) {
                // SAFETY: passed on.
                unsafe { product::<$lanes, P, V, LANES>(tile) }
            }

            /// # Safety
            /// See [`TileLoop`].
            $(#[$feature])?
            pub unsafe fn plain<const P: usize, const V: usize>(tile: &Tile) {
                // SAFETY: passed on.
                unsafe { product::<$lanes, P, V, 1>(tile) }
            }

            /// # Safety
            /// See [`TileLoop`].
            $(#[$feature])?
            pub unsafe fn depthwise<const P: usize>(tile: &Tile) {
                // SAFETY: passed on.
                unsafe { super::depthwise::<$lanes, P>(tile) }
            }
        }

        static $name: Tiles = Tiles {
            pixels: [$($pixels),*].len(),
            blocks: $blocks,
            // Levels with one block per tile list kernels for two, which nobody asks for.
            blocked: &[&[$($kernel::blocked::<$pixels, 1>),*], &[$($kernel::blocked::<$pixels, $blocks>),*]],
            plain: &[&[$($kernel::plain::<$pixels, 1>),*], &[$($kernel::plain::<$pixels, $blocks>),*]],
            depthwise: &[$($kernel::depthwise::<$pixels>),*],
        };
    };
}
level!(PORTABLE, portable, Portable, , [1, 2, 3], 1);
#[cfg(target_arch = "x86_64")]
level!(AVX2, avx2, Avx2, #[target_feature(enable = "avx2,fma")], [1, 2, 3, 4, 5, 6], 1);
#[cfg(target_arch = "x86_64")]
level!(
    AVX512,
    avx512,
    Avx512,
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")],
    [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14],
    2
);

#[cfg(target_arch = "x86_64")]
pub fn tiles(isa: Isa) -> &'static Tiles {
    match isa {
        Isa::Portable => &PORTABLE,
        Isa::Avx2 => &AVX2,
        Isa::Avx512 => &AVX512,
    }
}

#[cfg(not(target_arch = "x86_64"))]
pub fn tiles(_isa: Isa) -> &'static Tiles {
    &PORTABLE
}
