//! Squares of 16 × 16 f32 transposed in registers, with AVX-512: 64 shuffles for 256 elements. Copies bits, so
//! any level may use it.

#![allow(unsafe_code)]

use std::arch::x86_64::*;

pub fn is_available() -> bool {
    is_x86_feature_detected!("avx512f")
}

/// `to[step × distance + row]` becomes `from[row × line + step]` for `rows` rows of `k` steps.
///
/// # Safety
/// The elements lie in memory, and AVX-512 is there.
#[target_feature(enable = "avx512f")]
pub unsafe fn interleave(
    from: *const f32,
    line: isize,
    rows: usize,
    k: usize,
    distance: usize,
    to: *mut f32,
) {
    for first in (0..k).step_by(16) {
        let steps = (k - first).min(16);
        for row in (0..rows).step_by(16) {
            // SAFETY: the square lies in both, edges masked.
            unsafe {
                let from = from.offset(row as isize * line).add(first);
                square(from, line, (rows - row).min(16), steps, distance, to.add(first * distance + row));
            }
        }
    }
}

fn mask(count: usize) -> __mmask16 {
    ((1u32 << count) - 1) as __mmask16
}

/// # Safety
/// As [`interleave`], for at most 16 rows and steps.
#[target_feature(enable = "avx512f")]
unsafe fn square(from: *const f32, line: isize, rows: usize, steps: usize, distance: usize, to: *mut f32) {
    let mut x = [_mm512_setzero_ps(); 16];
    for (row, x) in x.iter_mut().enumerate().take(rows) {
        // SAFETY: so many elements of the row lie in memory.
        *x = unsafe { _mm512_maskz_loadu_ps(mask(steps), from.offset(row as isize * line)) };
    }
    transpose(&mut x);
    for (step, x) in x.iter().enumerate().take(steps) {
        // SAFETY: so many elements of the step have room.
        unsafe { _mm512_mask_storeu_ps(to.add(step * distance), mask(rows), *x) };
    }
}

/// First within lanes of four, then lanes among registers.
#[target_feature(enable = "avx512f")]
fn transpose(x: &mut [__m512; 16]) {
    let mut y = [_mm512_setzero_ps(); 16];
    for group in 0..4 {
        let [a, b, c, d] = [0, 1, 2, 3].map(|i| x[group * 4 + i]);
        let (ab, cd) = (_mm512_unpacklo_ps(a, b), _mm512_unpacklo_ps(c, d));
        let (ab_high, cd_high) = (_mm512_unpackhi_ps(a, b), _mm512_unpackhi_ps(c, d));
        y[group] = _mm512_shuffle_ps::<0b01_00_01_00>(ab, cd);
        y[4 + group] = _mm512_shuffle_ps::<0b11_10_11_10>(ab, cd);
        y[8 + group] = _mm512_shuffle_ps::<0b01_00_01_00>(ab_high, cd_high);
        y[12 + group] = _mm512_shuffle_ps::<0b11_10_11_10>(ab_high, cd_high);
    }
    // Lane l of y[4 i + g] holds column 4 l + i of rows 4 g …: transpose lanes among the four g.
    for i in 0..4 {
        let [a, b, c, d] = [0, 1, 2, 3].map(|g| y[4 * i + g]);
        let (even_ab, odd_ab) =
            (_mm512_shuffle_f32x4::<0b10_00_10_00>(a, b), _mm512_shuffle_f32x4::<0b11_01_11_01>(a, b));
        let (even_cd, odd_cd) =
            (_mm512_shuffle_f32x4::<0b10_00_10_00>(c, d), _mm512_shuffle_f32x4::<0b11_01_11_01>(c, d));
        x[i] = _mm512_shuffle_f32x4::<0b10_00_10_00>(even_ab, even_cd);
        x[8 + i] = _mm512_shuffle_f32x4::<0b11_01_11_01>(even_ab, even_cd);
        x[4 + i] = _mm512_shuffle_f32x4::<0b10_00_10_00>(odd_ab, odd_cd);
        x[12 + i] = _mm512_shuffle_f32x4::<0b11_01_11_01>(odd_ab, odd_cd);
    }
}
