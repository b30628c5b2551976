//! Words of images that lie in blocks of [`LANES`] channels: two blocks' pixels, one beside the other, are a register's
//! row of words.

#![allow(unsafe_code)]

use super::super::is_tame;
use super::unit::SIDE;
use crate::kernel::half::{BF16, Half};
use crate::kernel::lanes::LANES;

/// Channels of a row of words.
pub const CHANNELS: usize = 2 * LANES;

/// Makes words in all parts, `distance` words apart, of some pixels: the block's at `first` and the next one's, a
/// `block` of elements further. `channels` of them are somebody's, up to [`CHANNELS`]; the others become zeros. Returns
/// whether all numbers are tame, if they have several parts; for others that does not matter.
///
/// # Safety
/// The pixels of blocks that have channels lie in memory, `to` has room for a row of words per pixel and part.
pub unsafe fn block_words(
    first: *const f32,
    block: usize,
    channels: usize,
    pixels: usize,
    parts: usize,
    to: *mut f32,
    distance: usize,
) -> bool {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx512bf16") && is_x86_feature_detected!("avx512f") {
        // SAFETY: passed on; the processor has the instructions.
        return unsafe { x86::block_words(first, block, channels, pixels, parts, to, distance) };
    }
    let mut tame = true;
    for pixel in 0..pixels {
        for word in 0..SIDE {
            let pair = [2 * word, 2 * word + 1].map(|channel| {
                let at = channel / LANES * block + pixel * LANES + channel % LANES;
                // SAFETY: the channel is somebody's.
                if channel < channels { unsafe { first.add(at).read() } } else { 0.0 }
            });
            tame &= pair.into_iter().all(is_tame);
            let mut rest = pair;
            for part in 0..parts {
                let halves = rest.map(BF16::narrow);
                rest = [0, 1].map(|half| rest[half] - BF16::widen(halves[half]));
                let bits = u32::from(halves[0]) | u32::from(halves[1]) << 16;
                // SAFETY: a word of the pixel.
                unsafe { to.add(part * distance + pixel * SIDE + word).cast::<u32>().write(bits) };
            }
        }
    }
    parts == 1 || tame
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::super::super::TAME;
    use super::{LANES, SIDE};
    use std::arch::x86_64::*;

    /// # Safety
    /// As [`super::block_words`]; the processor has AVX-512 BF16.
    #[target_feature(enable = "avx512f,avx512bf16")]
    pub unsafe fn block_words(
        first: *const f32,
        block: usize,
        channels: usize,
        pixels: usize,
        parts: usize,
        to: *mut f32,
        distance: usize,
    ) -> bool {
        let mask = |channels: usize| if channels >= LANES { !0 } else { (1u16 << channels) - 1 };
        let masks = [mask(channels), mask(channels.saturating_sub(LANES))];
        let mut wild = 0;
        for pixel in 0..pixels {
            // SAFETY: lanes of channels that are somebody's; a row of words of each part.
            unsafe {
                let mut low = _mm512_maskz_loadu_ps(masks[0], first.wrapping_add(pixel * LANES));
                let mut high = _mm512_maskz_loadu_ps(masks[1], first.wrapping_add(block + pixel * LANES));
                wild |= is_wild(low) | is_wild(high);
                for part in 0..parts {
                    let halves = _mm512_cvtne2ps_pbh(high, low);
                    let bits: __m512i = std::mem::transmute(halves);
                    _mm512_storeu_si512(to.add(part * distance + pixel * SIDE).cast(), bits);
                    if part + 1 < parts {
                        low = _mm512_sub_ps(low, widened(_mm512_castsi512_si256(bits)));
                        high = _mm512_sub_ps(high, widened(_mm512_extracti64x4_epi64::<1>(bits)));
                    }
                }
            }
        }
        parts == 1 || wild == 0
    }

    #[target_feature(enable = "avx512f")]
    fn widened(halves: __m256i) -> __m512 {
        _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(halves)))
    }

    /// The lanes that are not tame.
    #[target_feature(enable = "avx512f")]
    pub fn is_wild(x: __m512) -> __mmask16 {
        let (low, range) = (*TAME.start() as i32, (TAME.end() - TAME.start()) as i32);
        let magnitude = _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fff_ffff));
        let above = _mm512_sub_epi32(magnitude, _mm512_set1_epi32(low));
        let some = _mm512_test_epi32_mask(magnitude, magnitude);
        _mm512_mask_cmpgt_epu32_mask(some, above, _mm512_set1_epi32(range))
    }
}
