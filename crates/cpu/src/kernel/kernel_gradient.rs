//! Tiles of the gradient of a convolution's kernel, for images whose channels lie in blocks of [`LANES`]: sums over
//! pixels of input numbers times blocks of output gradients, kept in registers over all pixels of a tile.
//!
//! Tiles: 8 rows × 32 channels with AVX-512 (16 sums; 8 broadcasts and 2 loads for 16 multiply-adds hide), 4 × 16
//! with less. The floor is the multiply-add units.

#![allow(unsafe_code)]
// Rows index registers: the loops over them are unrolled.
#![allow(clippy::needless_range_loop)]

#[cfg(target_arch = "x86_64")]
use super::lanes::{Avx2, Avx512};
use super::lanes::{LANES, Lanes, Portable};
use crate::isa::Isa;

/// Pixels, and what is summed over them.
pub struct Tile<'a> {
    /// Where the first pixel's inputs are counted from.
    pub x: *const f32,
    /// The input of each row of sums.
    pub offsets: &'a [u32],
    /// Distances of pixels and of rows of pixels.
    pub x_pixel: usize,
    pub x_row: usize,
    /// Gradients: pixels follow one another.
    pub gradient: *const f32,
    pub gradient_row: usize,
    pub gradient_block: usize,
    pub rows: usize,
    pub columns: usize,
    /// Rows `sum_row` apart, their blocks one after the other: added to.
    pub sums: *mut f32,
    pub sum_row: usize,
}

/// # Safety
/// The inputs and gradients of all pixels and the sums lie in memory, the latter being the caller's alone; there are
/// as many offsets as the kernel has rows. The processor has the instructions of the level.
pub type TileLoop = unsafe fn(&Tile);

/// The tiles of a level.
pub struct Tiles {
    /// Most rows of a tile.
    pub rows: usize,
    /// Most blocks of a tile.
    pub blocks: usize,
    /// By blocks, then rows, from 1.
    pub kernels: &'static [&'static [TileLoop]],
    /// By rows: each channel's sums are of its own input.
    pub depthwise: &'static [TileLoop],
}

/// # Safety
/// See [`TileLoop`].
#[inline(always)]
unsafe fn sum<L: Lanes, const R: usize, const V: usize, const DEPTHWISE: bool>(tile: &Tile) {
    // SAFETY: rows, blocks and pixels are those of the tile.
    unsafe {
        let mut sums = [[L::splat(0.0); V]; R];
        let mut offsets = [0; R];
        for r in 0..R {
            offsets[r] = tile.offsets[r] as usize;
            for v in 0..V {
                sums[r][v] = L::load(tile.sums.add(r * tile.sum_row + v * LANES));
            }
        }
        for row in 0..tile.rows {
            let mut x = tile.x.add(row * tile.x_row);
            let mut gradient = tile.gradient.add(row * tile.gradient_row);
            for _ in 0..tile.columns {
                let mut g = [L::splat(0.0); V];
                for v in 0..V {
                    g[v] = L::load(gradient.add(v * tile.gradient_block));
                }
                for r in 0..R {
                    let input = x.add(offsets[r]);
                    let input = if DEPTHWISE { L::load(input) } else { L::splat(*input) };
                    for v in 0..V {
                        sums[r][v] = input.mul_add(g[v], sums[r][v]);
                    }
                }
                x = x.add(tile.x_pixel);
                gradient = gradient.add(LANES);
            }
        }
        for r in 0..R {
            for v in 0..V {
                sums[r][v].store(tile.sums.add(r * tile.sum_row + v * LANES));
            }
        }
    }
}

/// The kernels of a level. `$kernel` is a module: names of generated functions.
macro_rules! level {
    ($name:ident, $kernel:ident, $lanes:ty, $(#[$feature:meta])?, [$($rows:literal),*], $blocks:literal) => {
        mod $kernel {
            use super::*;

            /// # Safety
            /// See [`TileLoop`].
            $(#[$feature])?
            pub unsafe fn shared<const R: usize, const V: usize>(tile: &Tile) {
                // SAFETY: passed on.
                unsafe { sum::<$lanes, R, V, false>(tile) }
            }

            /// # Safety
            /// See [`TileLoop`].
            $(#[$feature])?
            pub unsafe fn depthwise<const R: usize>(tile: &Tile) {
                // SAFETY: passed on.
                unsafe { sum::<$lanes, R, 1, true>(tile) }
            }
        }

        static $name: Tiles = Tiles {
            rows: [$($rows),*].len(),
            blocks: $blocks,
            // Levels with one block per tile list kernels for two, which nobody asks for.
            kernels: &[&[$($kernel::shared::<$rows, 1>),*], &[$($kernel::shared::<$rows, $blocks>),*]],
            depthwise: &[$($kernel::depthwise::<$rows>),*],
        };
    };
}
level!(PORTABLE, portable, Portable, , [1, 2, 3, 4], 1);
#[cfg(target_arch = "x86_64")]
level!(AVX2, avx2, Avx2, #[target_feature(enable = "avx2,fma")], [1, 2, 3, 4], 1);
#[cfg(target_arch = "x86_64")]
level!(
    AVX512,
    avx512,
    Avx512,
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")],
    [1, 2, 3, 4, 5, 6, 7, 8],
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
