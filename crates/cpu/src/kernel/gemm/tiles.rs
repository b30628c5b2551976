//! The tiles' loops, one per level, made for each number of rows.

#![allow(unsafe_code)]
// Rows index registers: the loops over them are unrolled.
#![allow(clippy::needless_range_loop)]

use super::{Tile, Tiles, Word};

/// Words of k in a pass. A tile of A (14 × 768 f32, 42 KiB) streams from L2 well enough, and results are read
/// and written once for every 768 steps: 114 GFLOP/s where 384 steps gave 111.
const PASS_WORDS: usize = 768;

pub const PORTABLE: Tiles = Tiles {
    rows: 4,
    columns: 8,
    kernels: &[portable::<1>, portable::<2>, portable::<3>, portable::<4>],
    word: Word::F32,
    half: false,
    parts: 1,
    granule: 1,
    pass_words: PASS_WORDS,
    session: None,
};

#[cfg(target_arch = "x86_64")]
macro_rules! avx2_kernels {
    ($half:literal) => {
        &[
            avx2::<1, $half>,
            avx2::<2, $half>,
            avx2::<3, $half>,
            avx2::<4, $half>,
            avx2::<5, $half>,
            avx2::<6, $half>,
        ]
    };
}

#[cfg(target_arch = "x86_64")]
pub const AVX2: Tiles = Tiles {
    rows: 6,
    columns: 16,
    kernels: avx2_kernels!(false),
    word: Word::F32,
    half: false,
    parts: 1,
    granule: 1,
    pass_words: PASS_WORDS,
    session: None,
};

#[cfg(target_arch = "x86_64")]
macro_rules! avx512_kernels {
    ($half:literal) => {
        &[
            avx512::<1, $half>,
            avx512::<2, $half>,
            avx512::<3, $half>,
            avx512::<4, $half>,
            avx512::<5, $half>,
            avx512::<6, $half>,
            avx512::<7, $half>,
            avx512::<8, $half>,
            avx512::<9, $half>,
            avx512::<10, $half>,
            avx512::<11, $half>,
            avx512::<12, $half>,
            avx512::<13, $half>,
            avx512::<14, $half>,
        ]
    };
}

#[cfg(target_arch = "x86_64")]
pub const AVX512: Tiles = Tiles {
    rows: 14,
    columns: 32,
    kernels: avx512_kernels!(false),
    word: Word::F32,
    half: false,
    parts: 1,
    granule: 1,
    pass_words: PASS_WORDS,
    session: None,
};

/// Tiles of f32 whose panels are f16: half the memory to read, for two conversions a step.
#[cfg(target_arch = "x86_64")]
pub static AVX512_F16: Tiles = Tiles { kernels: avx512_kernels!(true), half: true, ..AVX512 };
#[cfg(target_arch = "x86_64")]
pub static AVX2_F16: Tiles = Tiles { kernels: avx2_kernels!(true), half: true, ..AVX2 };

/// # Safety
/// See [`Tile`].
unsafe fn portable<const M: usize>(tile: &Tile) {
    const N: usize = 8;
    let mut sums = [[0f32; N]; M];
    let mut edge = [0f32; N];
    for step in 0..tile.k as isize {
        // SAFETY: step is below k.
        let (a, b) = unsafe { (tile.a.offset(step * tile.a_step), tile.b.offset(step * tile.b_step)) };
        let b = if tile.columns == N {
            // SAFETY: a full panel has N columns.
            unsafe { &*b.cast::<[f32; N]>() }
        } else {
            for column in 0..tile.columns {
                // SAFETY: a step of b has so many columns.
                edge[column] = unsafe { *b.add(column) };
            }
            &edge
        };
        for row in 0..M {
            // SAFETY: the tile has M rows.
            let x = unsafe { *a.offset(row as isize * tile.a_row) };
            for column in 0..N {
                sums[row][column] += x * b[column];
            }
        }
    }
    for (row, sums) in sums.iter().enumerate() {
        for (column, &sum) in sums.iter().enumerate().take(tile.columns) {
            // SAFETY: the tile's rows and columns lie in c.
            unsafe {
                let c = tile.c.add(row * tile.c_row + column);
                *c = if tile.add { *c + sum } else { sum };
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
use x86::{avx2, avx512};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::Tile;
    use std::arch::x86_64::*;

    /// # Safety
    /// See [`Tile`].
    #[target_feature(enable = "avx512f")]
    pub unsafe fn avx512<const M: usize, const HALF: bool>(tile: &Tile) {
        // SAFETY: passed on. The last panel is often narrow: half of it takes half the time.
        unsafe {
            match tile.columns {
                ..=16 => tile512::<M, 1, HALF>(tile),
                _ => tile512::<M, 2, HALF>(tile),
            }
        }
    }

    /// The first `V` vectors of a panel.
    ///
    /// # Safety
    /// See [`Tile`].
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn tile512<const M: usize, const V: usize, const HALF: bool>(tile: &Tile) {
        let Tile { k, mut a, a_row, a_step, mut b, b_step, c, c_row, columns, add, .. } = *tile;
        let lanes = ((1u64 << columns) - 1) as u32;
        let mut masks = [0 as __mmask16; V];
        for vector in 0..V {
            masks[vector] = (lanes >> (16 * vector)) as __mmask16;
        }
        let mut sums = [[_mm512_setzero_ps(); V]; M];
        for _ in 0..k {
            // SAFETY: each of the k steps reads M elements of a and, by the masks, `columns` of b (of f16, a panel's).
            unsafe {
                let mut right = [_mm512_setzero_ps(); V];
                for vector in 0..V {
                    right[vector] = match HALF {
                        true => _mm512_cvtph_ps(_mm256_loadu_si256(b.cast::<u16>().add(16 * vector).cast())),
                        false => _mm512_maskz_loadu_ps(masks[vector], b.wrapping_add(16 * vector)),
                    };
                }
                for row in 0..M {
                    let x = _mm512_set1_ps(*a.offset(row as isize * a_row));
                    for vector in 0..V {
                        sums[row][vector] = _mm512_fmadd_ps(x, right[vector], sums[row][vector]);
                    }
                }
                a = a.wrapping_offset(a_step);
                b = b.wrapping_offset(b_step);
            }
        }
        for (row, sums) in sums.iter().enumerate() {
            for vector in 0..V {
                // SAFETY: masked lanes are not touched; the others lie in c.
                unsafe {
                    let c = c.add(row * c_row).wrapping_add(vector * 16);
                    let mask = masks[vector];
                    let old = if add { _mm512_maskz_loadu_ps(mask, c) } else { _mm512_setzero_ps() };
                    _mm512_mask_storeu_ps(c, mask, _mm512_add_ps(old, sums[vector]));
                }
            }
        }
    }

    /// # Safety
    /// See [`Tile`].
    #[target_feature(enable = "avx2,fma,f16c")]
    pub unsafe fn avx2<const M: usize, const HALF: bool>(tile: &Tile) {
        // SAFETY: passed on; as above.
        unsafe {
            match tile.columns {
                ..=8 => tile256::<M, 1, HALF>(tile),
                _ => tile256::<M, 2, HALF>(tile),
            }
        }
    }

    /// As [`tile512`].
    ///
    /// # Safety
    /// See [`Tile`].
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn tile256<const M: usize, const V: usize, const HALF: bool>(tile: &Tile) {
        let Tile { k, mut a, a_row, a_step, mut b, b_step, c, c_row, columns, add, .. } = *tile;
        let mut masks = [_mm256_setzero_si256(); V];
        for vector in 0..V {
            let lane = |i: usize| if vector * 8 + i < columns { -1 } else { 0 };
            masks[vector] =
                _mm256_setr_epi32(lane(0), lane(1), lane(2), lane(3), lane(4), lane(5), lane(6), lane(7));
        }
        let mut sums = [[_mm256_setzero_ps(); V]; M];
        for _ in 0..k {
            // SAFETY: each of the k steps reads M elements of a and, by the masks, `columns` of b (of f16, a panel's).
            unsafe {
                let mut right = [_mm256_setzero_ps(); V];
                for vector in 0..V {
                    let halves = b.cast::<u16>().wrapping_add(8 * vector);
                    let b = b.wrapping_add(8 * vector);
                    right[vector] = if HALF {
                        _mm256_cvtph_ps(_mm_loadu_si128(halves.cast()))
                    } else if columns == 8 * V {
                        _mm256_loadu_ps(b)
                    } else {
                        _mm256_maskload_ps(b, masks[vector])
                    };
                }
                for row in 0..M {
                    let x = _mm256_set1_ps(*a.offset(row as isize * a_row));
                    for vector in 0..V {
                        sums[row][vector] = _mm256_fmadd_ps(x, right[vector], sums[row][vector]);
                    }
                }
                a = a.wrapping_offset(a_step);
                b = b.wrapping_offset(b_step);
            }
        }
        for (row, sums) in sums.iter().enumerate() {
            for vector in 0..V {
                // SAFETY: masked lanes are not touched; the others lie in c.
                unsafe {
                    let c = c.add(row * c_row).wrapping_add(vector * 8);
                    let old = if add { _mm256_maskload_ps(c, masks[vector]) } else { _mm256_setzero_ps() };
                    _mm256_maskstore_ps(c, masks[vector], _mm256_add_ps(old, sums[vector]));
                }
            }
        }
    }
}
