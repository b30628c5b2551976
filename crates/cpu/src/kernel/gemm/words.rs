//! What 32 bits of an operand hold: an f32, or neighbouring steps of k in fewer bits each, the first lowest. A word
//! of one side times a word of the other adds the products of all its steps to a sum of 32 bits.
//!
//! An f32 may also come as a sum of bf16 (`parts`): the nearest, then the nearest of what is left, and so on. Two have
//! 16 bits, three all 24. That holds for numbers that are tame ([`is_tame`]): neither the parts nor their products
//! then leave the range of normal numbers.

#![allow(unsafe_code)]

use super::{Source, Tiles, copy_rows, pack_b};
use crate::kernel::half::{BF16, Half};
use pando_base::DType;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Word {
    F32,
    /// Pairs, summed in f32.
    Bf16,
    /// Pairs, summed exactly in i32 (wrapping).
    I16,
    /// Fours, u8 on the left and i8 on the right, summed as those. i8 on the left gets 128 more.
    I8,
}

impl Word {
    /// Steps of k.
    pub fn steps(self) -> usize {
        match self {
            Word::F32 => 1,
            Word::Bf16 | Word::I16 => 2,
            Word::I8 => 4,
        }
    }
}

/// Bits of 2^-48 and 2^48.
pub(super) const TAME: std::ops::RangeInclusive<u32> = (127 - 48) << 23..=(127 + 48) << 23;

/// Whether a number, its parts, and products with other such numbers are far from the ends of f32's range.
pub fn is_tame(value: f32) -> bool {
    let magnitude = value.to_bits() & 0x7fff_ffff;
    // Without branches, for the vectoriser.
    (magnitude == 0) | (magnitude.wrapping_sub(*TAME.start()) <= TAME.end() - TAME.start())
}

/// The bits of one of the bf16 whose sum is the value.
fn bf16_part(value: f32, part: usize) -> u16 {
    let mut rest = value;
    for _ in 0..part {
        rest -= BF16::widen(BF16::narrow(rest));
    }
    // Nothing is left of infinity, and of a number that rounds to it.
    if part > 0 && !rest.is_finite() { 0 } else { BF16::narrow(rest) }
}

/// A word of steps, `None` beyond the last.
///
/// # Safety
/// The elements lie in memory.
#[inline(always)]
unsafe fn word_of(
    from: &Source,
    (word, part): (Word, usize),
    place: impl Fn(usize) -> Option<(usize, usize)>,
) -> u32 {
    let (steps, mut bits) = (word.steps(), 0);
    for step in 0..steps {
        let Some((row, column)) = place(step) else { continue };
        // SAFETY: as stated.
        let element = unsafe {
            match word {
                Word::F32 => from.read(row, column).to_bits(),
                Word::Bf16 => bf16_part(from.read(row, column), part).into(),
                Word::I16 => (from.read_int(row, column) as u16).into(),
                Word::I8 => (from.read_int(row, column) as u8).into(),
            }
        };
        bits |= element << (32 / steps * step);
    }
    bits
}

/// Packs a panel of B: `k` rows of `columns` columns, as `[parts][words][panel]` with zeros behind both.
///
/// # Safety
/// The elements lie in memory; `to` has room for them, and `columns` is at most a panel's.
pub unsafe fn pack_words(from: Source, tiles: &Tiles, k: usize, columns: usize, to: *mut f32) {
    let (word, width, words) = (tiles.word, tiles.columns, tiles.words(k));
    if tiles.half {
        // SAFETY: passed on.
        return unsafe { pack_halves(from, k, columns, width, to.cast()) };
    }
    if word == Word::F32 {
        // SAFETY: passed on.
        return unsafe { pack_b(from, k, columns, width, to) };
    }
    for index in 0..words {
        let place = to.wrapping_add(index * width).cast::<u32>();
        // SAFETY: rows below k and their columns lie in memory; a word of each part and column has room.
        unsafe {
            match word {
                Word::Bf16 => pack_pairs(from, (2 * index, k), columns, tiles, place, words * width),
                _ => pack_integers(from, (word.steps() * index, k), columns, tiles, place),
            }
        }
    }
}

/// Most columns of a panel.
const WIDTH: usize = 32;

/// Words of bf16 of two rows from `first` on, in all parts, which are `distance` words apart.
///
/// # Safety
/// Columns of rows below `k` lie in memory; `to` has room for a panel's columns in each part.
unsafe fn pack_pairs(
    from: Source,
    (first, k): (usize, usize),
    columns: usize,
    tiles: &Tiles,
    to: *mut u32,
    distance: usize,
) {
    let mut lanes = [[0f32; WIDTH]; 2];
    for (step, lanes) in lanes.iter_mut().enumerate().take(k - first.min(k)) {
        // SAFETY: the row is below k.
        unsafe { from.read_row(first + step, &mut lanes[..columns]) };
    }
    for part in 0..tiles.parts {
        // SAFETY: as stated.
        let to = unsafe { std::slice::from_raw_parts_mut(to.add(part * distance), tiles.columns) };
        let [low, high] = &mut lanes;
        for ((to, low), high) in to.iter_mut().zip(low).zip(high) {
            let pair = [*low, *high].map(BF16::narrow);
            *to = u32::from(pair[0]) | u32::from(pair[1]) << 16;
            // What is left. Nothing is of an infinity, but those have one part.
            *low -= BF16::widen(pair[0]);
            *high -= BF16::widen(pair[1]);
        }
    }
}

/// Words of integers of some rows from `first` on.
///
/// # Safety
/// As [`pack_pairs`], for one part.
unsafe fn pack_integers(
    from: Source,
    (first, k): (usize, usize),
    columns: usize,
    tiles: &Tiles,
    to: *mut u32,
) {
    let steps = tiles.word.steps();
    let mask = u32::MAX >> (32 - 32 / steps);
    // SAFETY: as stated.
    let to = unsafe { std::slice::from_raw_parts_mut(to, tiles.columns) };
    to.fill(0);
    for step in 0..steps.min(k - first.min(k)) {
        for (column, to) in to.iter_mut().enumerate().take(columns) {
            // SAFETY: the row is below k.
            let value = unsafe { from.read_int(first + step, column) };
            *to |= (value as u32 & mask) << (32 / steps * step);
        }
    }
}

/// As f16, which `from` is.
///
/// # Safety
/// As [`pack_words`].
unsafe fn pack_halves(from: Source, k: usize, columns: usize, width: usize, to: *mut u16) {
    for step in 0..k {
        // SAFETY: steps and columns are inside the panel.
        unsafe {
            let to = to.add(step * width);
            for column in 0..columns {
                *to.add(column) = from.at(step, column).address.cast::<u16>().read();
            }
            std::slice::from_raw_parts_mut(to.add(columns), width - columns).fill(0);
        }
    }
}

/// Makes f32 of a panel of bf16: `words` words of each part, as `[steps][panel]`.
///
/// # Safety
/// The panel lies in memory, its parts `distance` words apart; `to` has room for two steps a word.
pub unsafe fn unpack_words(panel: *const f32, tiles: &Tiles, words: usize, distance: usize, to: *mut f32) {
    let width = tiles.columns;
    for at in 0..words * width {
        let (index, column) = (at / width, at % width);
        let mut pair = [0f32; 2];
        for part in (0..tiles.parts).rev() {
            // SAFETY: a word of the panel.
            let bits = unsafe { panel.add(part * distance + at).cast::<u32>().read() };
            pair[0] += BF16::widen(bits as u16);
            pair[1] += BF16::widen((bits >> 16) as u16);
        }
        for (half, value) in pair.into_iter().enumerate() {
            // SAFETY: steps and columns have room.
            unsafe { *to.add((2 * index + half) * width + column) = value };
        }
    }
}

/// Copies rows of A as words, `distance` words apart, parts a tile's rows apart, zeros behind. Returns whether all
/// numbers are tame, if they have several parts; for others that does not matter.
///
/// # Safety
/// The elements lie in memory; `to` has room for them and 8 words behind each row. The processor has the instructions
/// of the tiles.
pub unsafe fn copy_words(
    from: Source,
    tiles: &Tiles,
    height: usize,
    k: usize,
    to: *mut f32,
    distance: usize,
) -> bool {
    if tiles.word == Word::F32 {
        // SAFETY: passed on.
        unsafe { copy_rows(from, height, k, to, distance) };
        return true;
    }
    let mut tame = true;
    for row in 0..height {
        // SAFETY: rows are below the height.
        unsafe {
            let to = to.add(row * distance);
            let from = from.at(row, 0);
            let part_distance = tiles.rows * distance;
            let done = x86_row(from, tiles, k, to, part_distance).unwrap_or_else(|| {
                copy_row_of_any(from, tiles, k, to, part_distance);
                tiles.parts == 1 || (0..k).all(|column| is_tame(from.read(0, column)))
            });
            tame &= done;
        }
    }
    tame
}

/// # Safety
/// As [`copy_words`], for one row.
unsafe fn copy_row_of_any(from: Source, tiles: &Tiles, k: usize, to: *mut f32, part_distance: usize) {
    let word = tiles.word;
    let offset = if word == Word::I8 && from.dtype == DType::I8 { 0x8080_8080 } else { 0 };
    for part in 0..tiles.parts {
        for index in 0..tiles.words(k) {
            let place = |step: usize| {
                let column = index * word.steps() + step;
                (column < k).then_some((0, column))
            };
            // SAFETY: words are inside the row.
            unsafe {
                // Beyond the last step the other side has zeros.
                *to.add(part * part_distance + index).cast::<u32>() =
                    word_of(&from, (word, part), place) ^ offset;
            }
        }
    }
}

/// Copies a row with vectors, if its type has them; returns whether it is tame.
///
/// # Safety
/// As [`copy_words`].
#[cfg(target_arch = "x86_64")]
unsafe fn x86_row(from: Source, tiles: &Tiles, k: usize, to: *mut f32, part_distance: usize) -> Option<bool> {
    let wide = is_x86_feature_detected!("avx512bf16") && is_x86_feature_detected!("avx512bw");
    let widens = (tiles.word, from.dtype) == (Word::I16, DType::U8) && is_x86_feature_detected!("avx2");
    if from.column != 1 || !(wide || widens) {
        return None;
    }
    // SAFETY: passed on.
    let (tame, filled) = unsafe {
        match (tiles.word, from.dtype) {
            (Word::Bf16, DType::F32) => {
                (x86::split_row(from.address.cast(), tiles.parts, k, to, part_distance), k.div_ceil(16) * 8)
            }
            (Word::Bf16, DType::BF16) if tiles.parts == 1 => (true, x86::copy_bytes(from.address, 2 * k, to)),
            (Word::I8, DType::U8) => (true, x86::copy_bytes(from.address, k, to)),
            (Word::I16, DType::U8) => (true, x86::widen_row(from.address, k, to)),
            (Word::I16, DType::I32) => (true, x86::narrow_row(from.address.cast(), k, to)),
            _ => return None,
        }
    };
    let words = tiles.words(k);
    for part in 0..if filled < words { tiles.parts } else { 0 } {
        // SAFETY: words of the row.
        unsafe {
            let rest = to.add(part * part_distance + filled);
            std::slice::from_raw_parts_mut(rest, words - filled).fill(0.0);
        }
    }
    Some(tame)
}

#[cfg(not(target_arch = "x86_64"))]
unsafe fn x86_row(_: Source, _: &Tiles, _: usize, _: *mut f32, _: usize) -> Option<bool> {
    None
}

/// Rows by vectors; they may fill up to 8 words behind with zeros.
#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::TAME;
    use std::arch::x86_64::*;

    fn mask(count: usize) -> __mmask16 {
        if count >= 16 { !0 } else { (1 << count) - 1 }
    }

    /// Returns whether all numbers are tame.
    ///
    /// # Safety
    /// As for [`super::copy_words`], for one row; the processor has AVX-512 BF16.
    #[target_feature(enable = "avx512f,avx512bf16")]
    pub unsafe fn split_row(from: *const f32, parts: usize, k: usize, to: *mut f32, distance: usize) -> bool {
        let (low, range) = (*TAME.start() as i32, (TAME.end() - TAME.start()) as i32);
        let mut wild = 0;
        for at in (0..k).step_by(16) {
            // SAFETY: so many elements lie there, the room has 8 words more.
            unsafe {
                let mut x = _mm512_maskz_loadu_ps(mask(k - at), from.add(at));
                if parts == 1 {
                    let halves: __m256i = std::mem::transmute(_mm512_cvtneps_pbh(x));
                    _mm256_storeu_si256(to.add(at / 2).cast(), halves);
                    continue;
                }
                let magnitude = _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fff_ffff));
                let above = _mm512_sub_epi32(magnitude, _mm512_set1_epi32(low));
                wild |= _mm512_mask_cmpgt_epu32_mask(
                    _mm512_test_epi32_mask(magnitude, magnitude),
                    above,
                    _mm512_set1_epi32(range),
                );
                for part in 0..parts {
                    let halves: __m256i = std::mem::transmute(_mm512_cvtneps_pbh(x));
                    _mm256_storeu_si256(to.add(part * distance + at / 2).cast(), halves);
                    let wide = _mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(halves));
                    x = _mm512_sub_ps(x, _mm512_castsi512_ps(wide));
                }
            }
        }
        parts == 1 || wild == 0
    }

    /// Returns the words it has filled.
    ///
    /// # Safety
    /// As [`split_row`].
    #[target_feature(enable = "avx512f,avx512bw")]
    pub unsafe fn copy_bytes(from: *const u8, bytes: usize, to: *mut f32) -> usize {
        // SAFETY: so many bytes lie there; the room has 8 words more.
        unsafe {
            std::ptr::copy_nonoverlapping(from, to.cast(), bytes);
            to.cast::<u8>().add(bytes).write_bytes(0, bytes.next_multiple_of(4) - bytes);
        }
        bytes.div_ceil(4)
    }

    /// Returns the words it has filled.
    ///
    /// # Safety
    /// As [`split_row`].
    #[target_feature(enable = "avx512f")]
    pub unsafe fn narrow_row(from: *const i32, k: usize, to: *mut f32) -> usize {
        for at in (0..k).step_by(16) {
            // SAFETY: so many elements lie there, the room has 8 words more.
            unsafe {
                let x = _mm512_maskz_loadu_epi32(mask(k - at), from.add(at));
                _mm256_storeu_si256(to.add(at / 2).cast(), _mm512_cvtepi32_epi16(x));
            }
        }
        k.div_ceil(16) * 8
    }

    /// Returns the words it has filled.
    ///
    /// # Safety
    /// As [`split_row`], but for the level.
    #[target_feature(enable = "avx2")]
    pub unsafe fn widen_row(from: *const u8, k: usize, to: *mut f32) -> usize {
        // SAFETY: so many elements lie there, and one more has room.
        unsafe {
            let (from, to) =
                (std::slice::from_raw_parts(from, k), std::slice::from_raw_parts_mut(to.cast(), k + 1));
            to.iter_mut().zip(from).for_each(|(to, &x)| *to = u16::from(x));
            to[k] = 0;
        }
        k.div_ceil(2)
    }
}
