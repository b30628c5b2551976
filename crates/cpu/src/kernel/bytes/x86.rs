//! Tiles of bytes with AVX-512 VNNI, and with AVX2, where fours are two pairs of i16: sums of pairs of bytes would
//! saturate.

#![allow(unsafe_code)]
// Rows index registers: the loops over them are unrolled.
#![allow(clippy::needless_range_loop)]

use super::{Depthwise, Finish, HALF_PANEL, Output, PANEL, Residual, Tile, TileLoop, Tiles};
use std::arch::x86_64::*;
use std::mem::MaybeUninit;

/// # Safety
/// See [`TileLoop`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
unsafe fn vnni<const M: usize>(tile: &Tile) {
    // SAFETY: passed on.
    unsafe {
        match tile.width {
            HALF_PANEL => vnni_tile::<M, 1>(tile),
            _ => vnni_tile::<M, 2>(tile),
        }
    }
}

/// # Safety
/// See [`TileLoop`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
unsafe fn vnni_tile<const M: usize, const V: usize>(tile: &Tile) {
    let mut sums = [[_mm512_setzero_si512(); V]; M];
    for vector in 0..V {
        // SAFETY: the finish has room for a panel's columns.
        let first = unsafe { _mm512_loadu_si512(tile.finish.sums.as_ptr().add(16 * vector).cast()) };
        for row in 0..M {
            sums[row][vector] = first;
        }
    }
    let (mut w, pixel) = (tile.w, tile.pixel);
    for run in tile.runs {
        let mut x = tile.x.wrapping_add(run.offset);
        for _ in 0..run.words {
            // SAFETY: a word of each pixel, and one of each column.
            unsafe {
                let mut right = [_mm512_setzero_si512(); V];
                for vector in 0..V {
                    right[vector] = _mm512_loadu_si512(w.add(64 * vector).cast());
                }
                for row in 0..M {
                    let x = _mm512_set1_epi32(x.add(row * pixel).cast::<i32>().read_unaligned());
                    for vector in 0..V {
                        sums[row][vector] = _mm512_dpbusd_epi32(sums[row][vector], x, right[vector]);
                    }
                }
                x = x.wrapping_add(4);
                w = w.wrapping_add(64 * V);
            }
        }
    }
    // Written out by rows, in a loop that is unrolled: what follows takes them by index, which registers are not.
    let mut room: [MaybeUninit<Sums>; M] = [const { MaybeUninit::uninit() }; M];
    for row in 0..M {
        for vector in 0..V {
            // SAFETY: the row has room for two vectors.
            unsafe {
                _mm512_store_si512(
                    room[row].as_mut_ptr().cast::<i32>().add(16 * vector).cast(),
                    sums[row][vector],
                )
            };
        }
    }
    // SAFETY: passed on.
    unsafe { finish_rows(tile, &room) };
}

/// Room for a pixel's sums.
#[repr(align(64))]
struct Sums {
    _sums: [i32; PANEL],
}

/// # Safety
/// As [`TileLoop`]; the rows are the tile's pixels.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn finish_rows(tile: &Tile, rows: &[MaybeUninit<Sums>]) {
    for column in (0..tile.columns).step_by(16) {
        // SAFETY: the panel's columns have their parts of the finish; masked ones are not touched.
        unsafe {
            let lanes = Lanes::of(tile.finish, column, tile.columns - column);
            for (row, sums) in rows.iter().enumerate() {
                let sums = _mm512_load_si512(sums.as_ptr().cast::<i32>().add(column).cast());
                lanes.store(tile.finish, sums, tile.y, row * tile.y_pixel + column, tile.residual);
            }
        }
    }
}

/// Sixteen columns of a finish.
struct Lanes {
    mask: __mmask16,
    scale: __m512,
    shift: __m512,
}

impl Lanes {
    /// # Safety
    /// The finish has 16 columns from `column` on.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    unsafe fn of(finish: &Finish, column: usize, columns: usize) -> Lanes {
        // SAFETY: passed on.
        unsafe {
            Lanes {
                mask: if columns >= 16 { !0 } else { (1 << columns) - 1 },
                scale: _mm512_loadu_ps(finish.scale.as_ptr().add(column)),
                shift: _mm512_loadu_ps(finish.shift.as_ptr().add(column)),
            }
        }
    }

    /// # Safety
    /// As [`Finish::run`], for the lanes of the mask; what is added to sums is in them.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    unsafe fn store(&self, finish: &Finish, sums: __m512i, y: *mut u8, at: usize, residual: *const u8) {
        let value = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums), self.scale, self.shift);
        let mut value = cut(value, finish.low, finish.high);
        // SAFETY: passed on.
        unsafe {
            if let Some(added) = finish.residual {
                let bytes = _mm_maskz_loadu_epi8(self.mask, residual.add(at).cast());
                value = add(added, value, bytes);
            }
            match finish.output {
                Output::U8(zero) => {
                    let whole = _mm512_add_epi32(_mm512_cvtps_epi32(value), _mm512_set1_epi32(zero.into()));
                    _mm_mask_storeu_epi8(y.add(at).cast(), self.mask, _mm512_cvtepi32_epi8(whole));
                }
                Output::F32 => _mm512_mask_storeu_ps(y.cast::<f32>().add(at), self.mask, value),
                Output::I32 => _mm512_mask_storeu_epi32(y.cast::<i32>().add(at), self.mask, sums),
            }
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn cut(value: __m512, low: f32, high: f32) -> __m512 {
    _mm512_min_ps(_mm512_max_ps(value, _mm512_set1_ps(low)), _mm512_set1_ps(high))
}

#[inline]
#[target_feature(enable = "avx512f")]
fn add(added: &Residual, before: __m512, bytes: __m128i) -> __m512 {
    let rounded = _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(before);
    let before = if added.rounds { rounded } else { before };
    let bytes = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes));
    let other = _mm512_fmadd_ps(bytes, _mm512_set1_ps(added.other), _mm512_set1_ps(added.shift));
    let sum = _mm512_fmadd_ps(before, _mm512_set1_ps(added.factor), other);
    cut(sum, added.low, added.high)
}

/// # Safety
/// See [`super::DepthwiseLoop`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
unsafe fn vnni_depthwise(d: &Depthwise) {
    const TOGETHER: usize = 4;
    // SAFETY: the finish has room for a panel's columns.
    let (lanes, first) =
        unsafe { (Lanes::of(d.finish, 0, d.channels), _mm512_loadu_si512(d.finish.sums.as_ptr().cast())) };
    let mut pixel = 0;
    while pixel < d.pixels {
        let count = TOGETHER.min(d.pixels - pixel);
        let mut sums = [first; TOGETHER];
        for (element, &offset) in d.offsets.iter().enumerate() {
            // SAFETY: 16 bytes lie wherever operand and weights are read.
            unsafe {
                let w = _mm512_cvtepi8_epi32(_mm_loadu_si128(d.w.add(element * d.w_step).cast()));
                for index in 0..TOGETHER {
                    // The last pixel again, where there are no more.
                    let at = (pixel + index.min(count - 1)) * d.pixel + offset;
                    let x = _mm512_cvtepu8_epi32(_mm_loadu_si128(d.x.add(at).cast()));
                    // The upper halves of words are zero, or multiplied with zero.
                    sums[index] = _mm512_dpwssd_epi32(sums[index], x, w);
                }
            }
        }
        for index in 0..count {
            let at = (pixel + index) * d.y_pixel;
            // SAFETY: the pixel's results.
            unsafe { lanes.store(d.finish, sums[index], d.y, at, d.residual) };
        }
        pixel += count;
    }
}

/// # Safety
/// See [`TileLoop`].
#[target_feature(enable = "avx2,fma")]
unsafe fn avx2<const M: usize>(tile: &Tile) {
    let low = _mm256_set1_epi16(0xff);
    for first in (0..tile.width).step_by(16) {
        let mut sums = [[_mm256_setzero_si256(); 2]; M];
        let mut w = tile.w.wrapping_add(4 * first);
        for run in tile.runs {
            let mut x = tile.x.wrapping_add(run.offset);
            for _ in 0..run.words {
                // SAFETY: a word of each pixel, and one of each of 16 columns.
                unsafe {
                    let mut even = [_mm256_setzero_si256(); 2];
                    let mut odd = even;
                    for vector in 0..2 {
                        let bytes = _mm256_loadu_si256(w.add(32 * vector).cast());
                        even[vector] = _mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(bytes));
                        odd[vector] = _mm256_srai_epi16::<8>(bytes);
                    }
                    for row in 0..M {
                        let x = x.add(row * tile.pixel).cast::<i32>().read_unaligned();
                        let x = _mm256_set1_epi32(x);
                        let (x_even, x_odd) = (_mm256_and_si256(x, low), _mm256_srli_epi16::<8>(x));
                        for vector in 0..2 {
                            let products = _mm256_add_epi32(
                                _mm256_madd_epi16(x_even, even[vector]),
                                _mm256_madd_epi16(x_odd, odd[vector]),
                            );
                            sums[row][vector] = _mm256_add_epi32(sums[row][vector], products);
                        }
                    }
                    x = x.wrapping_add(4);
                    w = w.wrapping_add(4 * tile.width);
                }
            }
        }
        let columns = tile.columns.saturating_sub(first).min(16);
        for row in 0..M {
            // SAFETY: two vectors are 16 sums; the pixel's results, and the residual's.
            unsafe {
                let sums = std::mem::transmute::<[__m256i; 2], [i32; 16]>(sums[row]);
                finish_avx2(
                    tile.finish,
                    &sums[..columns],
                    first,
                    tile.y,
                    row * tile.y_pixel + first,
                    tile.residual,
                );
            }
        }
    }
}

/// [`Finish::run`], compiled for the level.
///
/// # Safety
/// As there.
#[target_feature(enable = "avx2,fma")]
unsafe fn finish_avx2(
    finish: &Finish,
    sums: &[i32],
    column: usize,
    y: *mut u8,
    at: usize,
    residual: *const u8,
) {
    // SAFETY: passed on.
    unsafe { finish.run(sums, column, y, at, residual) };
}

/// # Safety
/// See [`super::DepthwiseLoop`].
#[target_feature(enable = "avx2,fma")]
unsafe fn avx2_depthwise(d: &Depthwise) {
    for pixel in 0..d.pixels {
        let mut sums = [_mm256_setzero_si256(); 2];
        for (element, &offset) in d.offsets.iter().enumerate() {
            // SAFETY: 16 bytes lie wherever operand and weights are read.
            unsafe {
                let x = _mm_loadu_si128(d.x.add(pixel * d.pixel + offset).cast());
                let w = _mm_loadu_si128(d.w.add(element * d.w_step).cast());
                let halves = [(x, w), (_mm_srli_si128::<8>(x), _mm_srli_si128::<8>(w))];
                for (sum, (x, w)) in sums.iter_mut().zip(halves) {
                    // The upper halves of words are zero, or multiplied with zero.
                    let products = _mm256_madd_epi16(_mm256_cvtepu8_epi32(x), _mm256_cvtepi8_epi32(w));
                    *sum = _mm256_add_epi32(*sum, products);
                }
            }
        }
        // SAFETY: as for tiles.
        unsafe {
            let sums = std::mem::transmute::<[__m256i; 2], [i32; 16]>(sums);
            finish_avx2(d.finish, &sums[..d.channels], 0, d.y, pixel * d.y_pixel, d.residual);
        }
    }
}

/// Fourteen pixels of two vectors leave four registers.
pub static VNNI: Tiles = Tiles {
    kernels: &[
        vnni::<1> as TileLoop,
        vnni::<2>,
        vnni::<3>,
        vnni::<4>,
        vnni::<5>,
        vnni::<6>,
        vnni::<7>,
        vnni::<8>,
        vnni::<9>,
        vnni::<10>,
        vnni::<11>,
        vnni::<12>,
        vnni::<13>,
        vnni::<14>,
    ],
    depthwise: vnni_depthwise,
};

pub static AVX2: Tiles =
    Tiles { kernels: &[avx2::<1> as TileLoop, avx2::<2>, avx2::<3>, avx2::<4>], depthwise: avx2_depthwise };

const _: () = assert!(PANEL == 32 && HALF_PANEL == 16);
