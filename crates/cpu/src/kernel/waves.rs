//! Sine and cosine of f32, sixteen at a time, in f64: results are the nearest f32 but for one in some thousand, which is
//! its neighbour. All levels give the same bits.
//!
//! The floor is some 30 operations of f64: 2 ns an element with AVX-512, where a call of `libm` takes 10.

#![allow(unsafe_code)]

use super::elementwise::UnaryLoop;
use crate::isa::Isa;

/// Beyond, the reduction below is not exact; there, and for infinities and NaN, `libm` computes.
const LIMIT: f32 = (1 << 20) as f32;
/// Adding it rounds to an integer, whose lowest bits are then those of the sum: 1.5 · 2^52.
const ROUNDER: f64 = 6_755_399_441_055_744.0;
/// π/2 in two parts: the first has 33 bits, so that its products with integers below 2^20 are exact.
const HALF_PI: [f64; 2] = [1.570_796_326_734_125_6, 6.077_100_506_506_192e-11];

const LANES: usize = 16;

/// The factors of Taylor's series of sin(r)/r and cos(r) in r², highest power first: for |r| ≤ π/4 what they leave out
/// is below 2^-43.
const SIN: [f64; 7] = [
    1.0 / 6_227_020_800.0,
    -1.0 / 39_916_800.0,
    1.0 / 362_880.0,
    -1.0 / 5040.0,
    1.0 / 120.0,
    -1.0 / 6.0,
    1.0,
];
const COS: [f64; 7] =
    [1.0 / 479_001_600.0, -1.0 / 3_628_800.0, 1.0 / 40_320.0, -1.0 / 720.0, 1.0 / 24.0, -0.5, 1.0];

#[inline(always)]
fn polynomial(coefficients: &[f64; 7], x: f64) -> f64 {
    let mut sum = coefficients[0];
    for &coefficient in &coefficients[1..] {
        sum = sum * x + coefficient;
    }
    sum
}

/// sin(x + quarter · π/2) for |x| ≤ [`LIMIT`], without branches.
#[inline(always)]
fn wave(x: f32, quarter: u64) -> f32 {
    let x = f64::from(x);
    let rounded = x * std::f64::consts::FRAC_2_PI + ROUNDER;
    let n = rounded - ROUNDER;
    let r = (x - n * HALF_PI[0]) - n * HALF_PI[1];
    let square = r * r;
    let (sin, cos) = (r * polynomial(&SIN, square), polynomial(&COS, square));
    let quarter = rounded.to_bits().wrapping_add(quarter);
    let value = if quarter & 1 == 0 { sin } else { cos };
    f64::from_bits(value.to_bits() ^ (quarter & 2) << 62) as f32
}

/// # Safety
/// See [`UnaryLoop`].
#[inline(always)]
unsafe fn waves<const QUARTER: u64>(x: *const u8, y: *mut u8, n: usize) {
    let exactly = |x: f32| (if QUARTER == 0 { libm::sin } else { libm::cos })(x.into()) as f32;
    let (x, y) = (x.cast::<f32>(), y.cast::<f32>());
    for at in (0..n).step_by(LANES) {
        let count = LANES.min(n - at);
        let (mut lanes, mut values) = ([0f32; LANES], [0f32; LANES]);
        // SAFETY: so many elements lie behind the pointer.
        unsafe { std::ptr::copy_nonoverlapping(x.add(at), lanes.as_mut_ptr(), count) };
        for (value, &x) in values.iter_mut().zip(&lanes) {
            *value = wave(x, QUARTER);
        }
        if !lanes.iter().all(|x| x.abs() <= LIMIT) {
            for (value, &x) in values.iter_mut().zip(&lanes) {
                *value = if x.abs() <= LIMIT { *value } else { exactly(x) };
            }
        }
        // SAFETY: as above; what lies there has been read if the result is the operand.
        unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), y.add(at), count) };
    }
}

/// # Safety
/// As [`waves`]; the processor has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn waves_avx2<const QUARTER: u64>(x: *const u8, y: *mut u8, n: usize) {
    // SAFETY: passed on.
    unsafe { waves::<QUARTER>(x, y, n) };
}

/// # Safety
/// As [`waves`]; the processor has AVX-512 F, BW, DQ and VL.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2")]
unsafe fn waves_avx512<const QUARTER: u64>(x: *const u8, y: *mut u8, n: usize) {
    // SAFETY: passed on.
    unsafe { waves::<QUARTER>(x, y, n) };
}

fn of_level<const QUARTER: u64>(isa: Isa) -> UnaryLoop {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => waves_avx512::<QUARTER>,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => waves_avx2::<QUARTER>,
        _ => waves::<QUARTER>,
    }
}

pub fn sin(isa: Isa) -> UnaryLoop {
    of_level::<0>(isa)
}

pub fn cos(isa: Isa) -> UnaryLoop {
    of_level::<1>(isa)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(kernel: UnaryLoop, x: &[f32]) -> Vec<f32> {
        let mut y = vec![0f32; x.len()];
        // SAFETY: both have so many elements; the level is one the processor has.
        unsafe { kernel(x.as_ptr().cast(), y.as_mut_ptr().cast(), x.len()) };
        y
    }

    /// Bits, all NaN alike.
    fn bits(x: f32) -> u32 {
        if x.is_nan() { f32::NAN.to_bits() } else { x.to_bits() }
    }

    #[test]
    fn all_magnitudes_are_within_an_ulp() {
        let x: Vec<f32> = (0..u32::MAX).step_by(40_009).map(f32::from_bits).collect();
        let special =
            [0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, LIMIT, 1e30, std::f32::consts::PI];
        let x = [x.as_slice(), &special].concat();
        for (kernel, exactly) in
            [(sin as fn(Isa) -> UnaryLoop, libm::sin as fn(f64) -> f64), (cos, libm::cos)]
        {
            for isa in Isa::available() {
                let (mut wrong, y) = (0, run(kernel(isa), &x));
                for (&x, &y) in x.iter().zip(&y) {
                    let expected = exactly(x.into()) as f32;
                    let distance = (i64::from(bits(y)) - i64::from(bits(expected))).abs();
                    assert!(distance <= 1, "{x:e}: {y:e}, not {expected:e}");
                    wrong += distance;
                }
                assert!(wrong * 1000 <= x.len() as i64, "{wrong} of {} are not the nearest", x.len());
            }
        }
    }
}
