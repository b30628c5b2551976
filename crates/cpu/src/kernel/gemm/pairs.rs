//! Tiles over pairs of 16-bit numbers: an element of either side is two neighbouring steps of k, the first in
//! its lower half. Bits of floats are bf16, products of whose pairs are added to sums of f32; integers are
//! i16, summed exactly in i32 (wrapping).
//!
//! The floor is the units again: on Zen 4 pairs of bf16 give 208 GFLOP/s of a core where f32 gives 118.

#![allow(unsafe_code)]

use super::{Source, Tiles};
use crate::isa::Isa;
use crate::kernel::half::{BF16, Half};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pairs {
    Bf16,
    I16,
}

/// The tiles over pairs, if the processor has their instructions.
#[cfg(target_arch = "x86_64")]
pub fn pair_tiles(isa: Isa, pairs: Pairs) -> Option<&'static Tiles> {
    let (there, tiles) = match pairs {
        Pairs::Bf16 => (is_x86_feature_detected!("avx512bf16"), &x86::BF16_TILES),
        Pairs::I16 => (is_x86_feature_detected!("avx512vnni"), &x86::I16_TILES),
    };
    (isa == Isa::Avx512 && there).then_some(tiles)
}

#[cfg(not(target_arch = "x86_64"))]
pub fn pair_tiles(_isa: Isa, _pairs: Pairs) -> Option<&'static Tiles> {
    None
}

fn pair(from: &Source, pairs: Pairs, steps: [Option<(usize, usize)>; 2]) -> u32 {
    let half = |place: Option<(usize, usize)>| -> u16 {
        let Some((row, column)) = place else { return 0 };
        // SAFETY: callers name elements that lie in memory.
        unsafe {
            match pairs {
                Pairs::Bf16 => BF16::narrow(from.read(row, column)),
                Pairs::I16 => from.read_int(row, column) as u16,
            }
        }
    };
    u32::from(half(steps[0])) | u32::from(half(steps[1])) << 16
}

/// Packs a panel of B: `k` rows of `columns` columns, as `[k / 2 pairs][width]` with zeros behind.
///
/// # Safety
/// The elements lie in memory; `to` has room for them, and `columns` is at most `width`.
pub unsafe fn pack_pairs(from: Source, pairs: Pairs, k: usize, columns: usize, width: usize, to: *mut f32) {
    for step in 0..k.div_ceil(2) {
        for column in 0..width {
            let place = |row: usize| (row < k && column < columns).then_some((row, column));
            let value = pair(&from, pairs, [place(2 * step), place(2 * step + 1)]);
            // SAFETY: steps and columns are inside the panel.
            unsafe { *to.add(step * width + column).cast::<u32>() = value };
        }
    }
}

/// Copies rows of A as pairs, `distance` pairs apart.
///
/// # Safety
/// The elements lie in memory; `to` has room for them. The processor has the instructions of the pairs.
pub unsafe fn copy_pairs(from: Source, pairs: Pairs, height: usize, k: usize, to: *mut f32, distance: usize) {
    for row in 0..height {
        // SAFETY: rows are below the height.
        let to = unsafe { to.add(row * distance) };
        // SAFETY: the row is the source's.
        let done = unsafe { x86_row(&from, pairs, row, k, to) };
        for step in done / 2..k.div_ceil(2) {
            let place = |column: usize| (column < k).then_some((row, column));
            let value = pair(&from, pairs, [place(2 * step), place(2 * step + 1)]);
            // SAFETY: steps are inside the row.
            unsafe { *to.add(step).cast::<u32>() = value };
        }
    }
}

/// Converts as many elements of a row as go by vectors; returns how many.
///
/// # Safety
/// As [`copy_pairs`].
#[cfg(target_arch = "x86_64")]
unsafe fn x86_row(from: &Source, pairs: Pairs, row: usize, k: usize, to: *mut f32) -> usize {
    use pando_base::DType;
    // SAFETY: the row lies in memory, so its first element does.
    let address = unsafe { from.at(row, 0).address };
    // SAFETY: passed on.
    unsafe {
        match (pairs, from.dtype, from.column) {
            (Pairs::Bf16, DType::F32, 1) => x86::row_bf16(address.cast(), k, to.cast()),
            (Pairs::I16, DType::I32, 1) => x86::row_i16(address.cast(), k, to.cast()),
            _ => 0,
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
unsafe fn x86_row(_from: &Source, _pairs: Pairs, _row: usize, _k: usize, _to: *mut f32) -> usize {
    0
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::super::{Tile, TileLoop, Tiles};
    use super::Pairs;
    use std::arch::x86_64::*;

    /// # Safety
    /// `k` elements lie at `from`, `to` has room for them; the processor has AVX-512 BF16.
    #[target_feature(enable = "avx512f,avx512bf16")]
    pub unsafe fn row_bf16(from: *const f32, k: usize, to: *mut u16) -> usize {
        for at in (0..k / 16 * 16).step_by(16) {
            // SAFETY: so many elements lie there.
            unsafe {
                let halves: __m256i = std::mem::transmute(_mm512_cvtneps_pbh(_mm512_loadu_ps(from.add(at))));
                _mm256_storeu_si256(to.add(at).cast(), halves);
            }
        }
        k / 16 * 16
    }

    /// # Safety
    /// As [`row_bf16`]; the processor has AVX-512.
    #[target_feature(enable = "avx512f")]
    pub unsafe fn row_i16(from: *const i32, k: usize, to: *mut u16) -> usize {
        for at in (0..k / 16 * 16).step_by(16) {
            // SAFETY: so many elements lie there.
            unsafe {
                let halves = _mm512_cvtepi32_epi16(_mm512_loadu_si512(from.add(at).cast()));
                _mm256_storeu_si256(to.add(at).cast(), halves);
            }
        }
        k / 16 * 16
    }

    /// A tile's loop over 32-bit lanes and the functions that call it for narrow and wide panels: `$dot` adds
    /// the products of two vectors of pairs to sums.
    macro_rules! tile_of_pairs {
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
                let Tile { k, mut a, a_row, a_step, mut b, b_step, c, c_row, columns, add } = *tile;
                let lanes = ((1u64 << columns) - 1) as u32;
                let masks: [__mmask16; V] = std::array::from_fn(|vector| (lanes >> (16 * vector)) as u16);
                let mut sums = [[_mm512_setzero_si512(); V]; M];
                for _ in 0..k {
                    // SAFETY: each of the k steps reads M pairs of a and, by the masks, `columns` of b.
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
    tile_of_pairs!(
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
    tile_of_pairs!(
        i16,
        i16_tile,
        "avx512f,avx512vnni",
        |sums, x, y| _mm512_dpwssd_epi32(sums, x, y),
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

    pub static BF16_TILES: Tiles =
        Tiles { rows: 14, columns: 32, kernels: &by_rows!(bf16), pairs: Some(Pairs::Bf16) };
    pub static I16_TILES: Tiles =
        Tiles { rows: 14, columns: 32, kernels: &by_rows!(i16), pairs: Some(Pairs::I16) };
}
