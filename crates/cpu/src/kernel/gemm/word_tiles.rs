//! Tiles over words of fewer than 32 bits a step: pairs of bf16 (AVX-512 BF16), pairs of i16 and fours of bytes
//! (AVX-512 VNNI; pairs of i16 with AVX2, too, which has no sum of fours that cannot saturate).
//!
//! The floor is the units: on Zen 4 pairs of bf16 give 234.7 GFLOP/s of a core where f32 gives 117, both from registers
//! only. The loop of a 14×32 tile gives 233 with panels in L2, 229 with panels from memory on large pages (220 on small
//! ones). Products of BERT-base (128 rows) give 222 without their epilogues, 210 with them.

#![allow(unsafe_code)]
// Rows index registers: the loops over them are unrolled.
#![allow(clippy::needless_range_loop)]

use super::{Tiles, Word};
use crate::isa::Isa;

/// The vector tiles over words, if the processor has their instructions.
#[cfg(target_arch = "x86_64")]
pub fn word_tiles(isa: Isa, word: Word) -> Option<&'static Tiles> {
    let bf16 = is_x86_feature_detected!("avx512bf16");
    let vnni = is_x86_feature_detected!("avx512vnni");
    match (isa, word) {
        (Isa::Avx512, Word::Bf16) if bf16 => Some(&x86::BF16),
        (Isa::Avx512, Word::I16) if vnni => Some(&x86::I16),
        (Isa::Avx512, Word::I8) if vnni => Some(&x86::I8),
        (Isa::Avx512 | Isa::Avx2, Word::I16) => Some(&x86::I16_AVX2),
        _ => None,
    }
}

#[cfg(not(target_arch = "x86_64"))]
pub fn word_tiles(_isa: Isa, _word: Word) -> Option<&'static Tiles> {
    None
}

/// Tiles over fours of bytes that lie as words of 32 bits on both sides already: i8 on the left, u8 on the right.
#[cfg(target_arch = "x86_64")]
pub fn window_tiles(isa: Isa) -> Option<&'static Tiles> {
    (isa == Isa::Avx512 && is_x86_feature_detected!("avx512vnni")).then_some(&x86::I8_WINDOWS)
}

#[cfg(not(target_arch = "x86_64"))]
pub fn window_tiles(_isa: Isa) -> Option<&'static Tiles> {
    None
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::super::{Tile, TileLoop, Tiles, Word};
    use std::arch::x86_64::*;

    /// A tile's loop over 32-bit lanes and the functions that call it for narrow and wide panels: `$dot` adds
    /// the products of two vectors of words to sums.
    macro_rules! tile_of_words {
        ($name:ident, $inner:ident, $features:literal, $dot:expr, $add:expr) => {
            /// # Safety
            /// See [`Tile`].
            #[target_feature(enable = $features)]
            unsafe fn $name<const M: usize>(tile: &Tile) {
                // SAFETY: passed on.
                unsafe {
                    match tile.columns {
                        ..=16 => $inner::<M, 1>(tile),
                        _ => $inner::<M, 2>(tile),
                    }
                }
            }

            /// # Safety
            /// See [`Tile`].
            #[inline]
            #[target_feature(enable = $features)]
            unsafe fn $inner<const M: usize, const V: usize>(tile: &Tile) {
                let Tile { k, mut a, a_row, a_step, mut b, b_step, c, c_row, columns, add, .. } = *tile;
                let lanes = ((1u64 << columns) - 1) as u32;
                let masks: [__mmask16; V] = std::array::from_fn(|vector| (lanes >> (16 * vector)) as u16);
                let mut sums = [[_mm512_setzero_si512(); V]; M];
                for _ in 0..k {
                    // SAFETY: each of the k steps reads M words of a and, by the masks, `columns` of b.
                    unsafe {
                        let mut right = [_mm512_setzero_si512(); V];
                        for vector in 0..V {
                            let b = b.wrapping_add(16 * vector).cast::<i32>();
                            right[vector] = _mm512_maskz_loadu_epi32(masks[vector], b);
                        }
                        for row in 0..M {
                            let x = _mm512_set1_epi32(*a.offset(row as isize * a_row).cast::<i32>());
                            for vector in 0..V {
                                sums[row][vector] = $dot(sums[row][vector], x, right[vector]);
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
                            let c = c.add(row * c_row).wrapping_add(vector * 16).cast::<i32>();
                            let mask = masks[vector];
                            let old =
                                if add { _mm512_maskz_loadu_epi32(mask, c) } else { _mm512_setzero_si512() };
                            _mm512_mask_storeu_epi32(c, mask, $add(old, sums[vector]));
                        }
                    }
                }
            }
        };
    }
    tile_of_words!(
        bf16,
        bf16_tile,
        "avx512f,avx512bf16",
        |sums, x: __m512i, y: __m512i| _mm512_castps_si512(_mm512_dpbf16_ps(
            _mm512_castsi512_ps(sums),
            std::mem::transmute::<__m512i, __m512bh>(x),
            std::mem::transmute::<__m512i, __m512bh>(y),
        )),
        |a, b| _mm512_castps_si512(_mm512_add_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b)))
    );
    tile_of_words!(
        i16,
        i16_tile,
        "avx512f,avx512vnni",
        |sums, x, y| _mm512_dpwssd_epi32(sums, x, y),
        |a, b| _mm512_add_epi32(a, b)
    );
    tile_of_words!(
        i8,
        i8_tile,
        "avx512f,avx512vnni",
        |sums, x, y| _mm512_dpbusd_epi32(sums, x, y),
        |a, b| _mm512_add_epi32(a, b)
    );

    tile_of_words!(
        i8_windows,
        i8_windows_tile,
        "avx512f,avx512vnni",
        |sums, x, y| _mm512_dpbusd_epi32(sums, y, x),
        |a, b| _mm512_add_epi32(a, b)
    );

    macro_rules! by_rows {
        ($kernel:ident) => {
            [
                $kernel::<1> as TileLoop,
                $kernel::<2>,
                $kernel::<3>,
                $kernel::<4>,
                $kernel::<5>,
                $kernel::<6>,
                $kernel::<7>,
                $kernel::<8>,
                $kernel::<9>,
                $kernel::<10>,
                $kernel::<11>,
                $kernel::<12>,
                $kernel::<13>,
                $kernel::<14>,
            ]
        };
    }

    const fn tiles_of(kernels: &'static [TileLoop], word: Word) -> Tiles {
        Tiles { kernels, word, ..super::super::tiles::AVX512 }
    }
    pub static BF16: Tiles = tiles_of(&by_rows!(bf16), Word::Bf16);
    pub static I16: Tiles = tiles_of(&by_rows!(i16), Word::I16);
    pub static I8: Tiles = tiles_of(&by_rows!(i8), Word::I8);

    pub static I8_WINDOWS: Tiles = tiles_of(&by_rows!(i8_windows), Word::F32);

    /// As the tiles of f32 with AVX2; products of pairs are added to each other, then to the sums.
    ///
    /// # Safety
    /// See [`Tile`].
    #[target_feature(enable = "avx2")]
    unsafe fn i16_avx2<const M: usize>(tile: &Tile) {
        let Tile { k, mut a, a_row, a_step, mut b, b_step, c, c_row, columns, add, .. } = *tile;
        let masks: [__m256i; 2] = std::array::from_fn(|vector| {
            let lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
            _mm256_cmpgt_epi32(_mm256_set1_epi32(columns as i32 - 8 * vector as i32), lanes)
        });
        let mut sums = [[_mm256_setzero_si256(); 2]; M];
        for _ in 0..k {
            // SAFETY: each of the k steps reads M words of a and, by the masks, `columns` of b.
            unsafe {
                let mut right = [_mm256_setzero_si256(); 2];
                for vector in 0..2 {
                    let b = b.wrapping_add(8 * vector).cast::<i32>();
                    right[vector] = _mm256_maskload_epi32(b, masks[vector]);
                }
                for row in 0..M {
                    let x = _mm256_set1_epi32(*a.offset(row as isize * a_row).cast::<i32>());
                    for vector in 0..2 {
                        let products = _mm256_madd_epi16(x, right[vector]);
                        sums[row][vector] = _mm256_add_epi32(sums[row][vector], products);
                    }
                }
                a = a.wrapping_offset(a_step);
                b = b.wrapping_offset(b_step);
            }
        }
        for (row, sums) in sums.iter().enumerate() {
            for vector in 0..2 {
                // SAFETY: masked lanes are not touched; the others lie in c.
                unsafe {
                    let c = c.add(row * c_row).wrapping_add(vector * 8).cast::<i32>();
                    let mask = masks[vector];
                    let old = if add { _mm256_maskload_epi32(c, mask) } else { _mm256_setzero_si256() };
                    _mm256_maskstore_epi32(c, mask, _mm256_add_epi32(old, sums[vector]));
                }
            }
        }
    }

    pub static I16_AVX2: Tiles = Tiles {
        kernels: &[i16_avx2::<1>, i16_avx2::<2>, i16_avx2::<3>, i16_avx2::<4>, i16_avx2::<5>, i16_avx2::<6>],
        word: Word::I16,
        ..super::super::tiles::AVX2
    };
}
