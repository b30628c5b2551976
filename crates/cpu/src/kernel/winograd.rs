//! The transforms of Winograd's F(2×2, 3×3) over blocks of channels: 4 × 4 inputs to 16 points and 16 points to
//! 2 × 2 results, one register a pixel. Between them each point is a product of matrices (`kernel/conv.rs`):
//! 16 multiplications per channel instead of 36.
//!
//! Transforms of inputs only add; those of weights are computed in f64 (`step/conv/winograd.rs`). The floor is
//! 32 and 24 additions per tile and register of channels.

#![allow(unsafe_code)]
// Tiles of registers: the loops over them are unrolled.
#![allow(clippy::needless_range_loop)]

use super::finish::{Finish, finished};
#[cfg(target_arch = "x86_64")]
use super::lanes::{Avx2, Avx512};
use super::lanes::{LANES, Lanes, Portable};
use crate::isa::Isa;
use std::ops::Range;

/// Points of a tile.
pub const POINTS: usize = 16;

/// The tiles of some rows of tiles, row by row, of one block of channels.
pub struct Area {
    /// Height and width of the operand, or of the result.
    pub size: [usize; 2],
    /// Padding before, of the operand.
    pub low: [i64; 2],
    /// Rows of tiles.
    pub rows: Range<usize>,
    /// Tiles in a row.
    pub columns: usize,
    /// From one point's tiles to the next's, in elements.
    pub pitch: usize,
}

/// `(area, plane of the operand, points)`.
///
/// # Safety
/// The plane has the area's size; the points have room for its tiles. The processor has the level.
pub type InputLoop = unsafe fn(&Area, *const f32, *mut f32);

/// `(area, points, plane of the result, what follows)`. Addresses in the finish are those of the block, and of
/// the residual's plane.
///
/// # Safety
/// As [`InputLoop`].
pub type OutputLoop = unsafe fn(&Area, *const f32, *mut f32, &Finish);

pub struct Transforms {
    pub input: InputLoop,
    pub output: OutputLoop,
}

/// # Safety
/// See [`InputLoop`].
#[inline(always)]
unsafe fn input<L: Lanes>(area: &Area, x: *const f32, mut to: *mut f32) {
    let [height, width] = area.size;
    for row in area.rows.clone() {
        let top = (2 * row) as i64 - area.low[0];
        for column in 0..area.columns {
            let left = (2 * column) as i64 - area.low[1];
            let whole = top >= 0 && left >= 0 && top + 4 <= height as i64 && left + 4 <= width as i64;
            // SAFETY: elements outside the plane are not read; the points have room for the tile.
            unsafe {
                let mut d = [[L::splat(0.0); 4]; 4];
                if whole {
                    let x = x.add((top as usize * width + left as usize) * LANES);
                    for i in 0..4 {
                        for j in 0..4 {
                            d[i][j] = L::load(x.add((i * width + j) * LANES));
                        }
                    }
                } else {
                    for i in 0..4 {
                        for j in 0..4 {
                            let (y, z) = (top + i as i64, left + j as i64);
                            if (0..height as i64).contains(&y) && (0..width as i64).contains(&z) {
                                d[i][j] = L::load(x.add((y as usize * width + z as usize) * LANES));
                            }
                        }
                    }
                }
                for j in 0..4 {
                    let column = differences([d[0][j], d[1][j], d[2][j], d[3][j]]);
                    for i in 0..4 {
                        d[i][j] = column[i];
                    }
                }
                for i in 0..4 {
                    for (j, point) in differences(d[i]).into_iter().enumerate() {
                        point.store(to.add((i * 4 + j) * area.pitch));
                    }
                }
                to = to.add(LANES);
            }
        }
    }
}

/// # Safety
/// See [`Lanes`].
#[inline(always)]
unsafe fn differences<L: Lanes>(d: [L; 4]) -> [L; 4] {
    // SAFETY: passed on.
    unsafe { [d[0].sub(d[2]), d[1].add(d[2]), d[2].sub(d[1]), d[1].sub(d[3])] }
}

/// # Safety
/// See [`Lanes`].
#[inline(always)]
unsafe fn sums<L: Lanes>(m: [L; 4]) -> [L; 2] {
    // SAFETY: passed on.
    unsafe { [m[0].add(m[1]).add(m[2]), m[1].sub(m[2]).sub(m[3])] }
}

/// # Safety
/// See [`OutputLoop`].
#[inline(always)]
unsafe fn output<L: Lanes>(area: &Area, mut from: *const f32, y: *mut f32, finish: &Finish) {
    let [height, width] = area.size;
    for row in area.rows.clone() {
        for column in 0..area.columns {
            // SAFETY: the points have the tile; results outside the plane are not written.
            unsafe {
                let mut halves = [[L::splat(0.0); 4]; 2];
                for j in 0..4 {
                    let m = [0, 1, 2, 3].map(|i| L::load(from.add((i * 4 + j) * area.pitch)));
                    let [upper, lower] = sums(m);
                    (halves[0][j], halves[1][j]) = (upper, lower);
                }
                for i in 0..2 {
                    for (j, result) in sums(halves[i]).into_iter().enumerate() {
                        let (at_row, at_column) = (2 * row + i, 2 * column + j);
                        if at_row < height && at_column < width {
                            let at = (at_row * width + at_column) * LANES;
                            finished(result, finish, at).store(y.add(at));
                        }
                    }
                }
                from = from.add(LANES);
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::*;

    macro_rules! level {
        ($input:ident, $output:ident, $lanes:ty, $features:literal) => {
            /// # Safety
            /// See [`InputLoop`].
            #[target_feature(enable = $features)]
            pub unsafe fn $input(area: &Area, x: *const f32, to: *mut f32) {
                // SAFETY: passed on.
                unsafe { input::<$lanes>(area, x, to) }
            }

            /// # Safety
            /// See [`OutputLoop`].
            #[target_feature(enable = $features)]
            pub unsafe fn $output(area: &Area, from: *const f32, y: *mut f32, finish: &Finish) {
                // SAFETY: passed on.
                unsafe { output::<$lanes>(area, from, y, finish) }
            }
        };
    }
    level!(input_avx2, output_avx2, Avx2, "avx2,fma");
    level!(input_avx512, output_avx512, Avx512, "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma");
}

pub fn transforms(isa: Isa) -> Transforms {
    match isa {
        Isa::Portable => Transforms { input: input::<Portable>, output: output::<Portable> },
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => Transforms { input: x86::input_avx2, output: x86::output_avx2 },
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => Transforms { input: x86::input_avx512, output: x86::output_avx512 },
        #[cfg(not(target_arch = "x86_64"))]
        _ => Transforms { input: input::<Portable>, output: output::<Portable> },
    }
}
