//! Packs right sides that change with every run as pairs of bf16: what `words.rs` does with constants, but fast.

#![allow(unsafe_code)]

use super::{Source, Tiles, Word, copy_words, pack_b, pack_words};
use pando_base::DType;

/// Words of room that [`pack_pairs`] needs for sides of `k` steps.
pub fn pairs_room(tiles: &Tiles, k: usize) -> usize {
    tiles.columns * (tiles.words(k) + 16)
}

/// Packs B, `k` rows of `n` columns, in panels as words of one part of bf16.
///
/// # Safety
/// The elements lie in memory; `to` has room for the panels, `spare` for what [`pairs_room`] says; both are the caller's.
/// The processor has the instructions of the tiles.
pub unsafe fn pack_pairs(from: Source, tiles: &Tiles, [k, n]: [usize; 2], mut to: *mut f32, spare: *mut f32) {
    assert!((tiles.word, tiles.parts) == (Word::Bf16, 1), "pairs are of one part of bf16");
    for first in (0..n).step_by(tiles.columns) {
        let columns = tiles.columns.min(n - first);
        // SAFETY: columns of B and their panel.
        unsafe {
            let from = from.at(0, first);
            if from.dtype == DType::F32 && from.row == 1 {
                let distance = tiles.words(k) + 16;
                copy_words(from.transposed(), tiles, columns, k, spare, distance);
                // Words are moved as f32 are.
                let words =
                    Source { address: spare.cast(), dtype: DType::F32, row: 1, column: distance as isize };
                pack_b(words, tiles.words(k), columns, tiles.columns, to);
            } else if !x86_rows(from, tiles, [k, columns], to) {
                pack_words(from, tiles, k, columns, to);
            }
            to = to.add(tiles.panel_words(k));
        }
    }
}

/// Packs a panel of rows with vectors, if there are some.
///
/// # Safety
/// As [`pack_pairs`].
#[cfg(target_arch = "x86_64")]
unsafe fn x86_rows(from: Source, tiles: &Tiles, [k, columns]: [usize; 2], to: *mut f32) -> bool {
    let fits = from.dtype == DType::F32 && from.column == 1 && tiles.columns.is_multiple_of(16);
    if !fits || !is_x86_feature_detected!("avx512bf16") {
        return false;
    }
    let row = |step: usize| from.address.cast::<f32>().wrapping_offset(step as isize * from.row);
    for word in 0..tiles.words(k) {
        let live = |step: usize| if step < k { columns } else { 0 };
        // SAFETY: rows below k, of which so many columns are read; a word of the panel.
        unsafe {
            let (low, high) = (2 * word, 2 * word + 1);
            let to = to.add(word * tiles.columns);
            pair_row([row(low), row(high)], [live(low), live(high)], to, tiles.columns);
        }
    }
    true
}

#[cfg(not(target_arch = "x86_64"))]
unsafe fn x86_rows(_: Source, _: &Tiles, _: [usize; 2], _: *mut f32) -> bool {
    false
}

/// Words of two rows, of so many live columns each; zeros behind.
///
/// # Safety
/// The live columns lie in memory, `to` has `width`, a multiple of 16. The processor has AVX-512 BF16.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bf16")]
unsafe fn pair_row(rows: [*const f32; 2], live: [usize; 2], to: *mut f32, width: usize) {
    use std::arch::x86_64::*;
    for at in (0..width).step_by(16) {
        let halves = |side: usize| {
            let mask = (1u32 << live[side].saturating_sub(at).min(16)) as u16;
            // SAFETY: lanes of live columns.
            let x = unsafe { _mm512_maskz_loadu_ps(mask.wrapping_sub(1), rows[side].wrapping_add(at)) };
            // SAFETY: 16 halves either way.
            let halves: __m256i = unsafe { std::mem::transmute(_mm512_cvtneps_pbh(x)) };
            _mm512_cvtepu16_epi32(halves)
        };
        let words = _mm512_or_si512(halves(0), _mm512_slli_epi32::<16>(halves(1)));
        // SAFETY: 16 words of the panel.
        unsafe { _mm512_storeu_si512(to.add(at).cast(), words) };
    }
}
