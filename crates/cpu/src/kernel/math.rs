//! Functions of one f32, written without branches or fused multiply-adds, so that the vectoriser takes them
//! at every level and all levels give the same bits. Errors are in units of the last place (ulp) of f32,
//! measured against `libm` in f64 by the tests below.

use std::f32::consts::{FRAC_2_SQRT_PI, LOG2_E};

/// Adding and subtracting it rounds to an integer: 1.5 · 2^23.
const ROUNDER: f32 = 12_582_912.0;

/// e^x; 2 ulp. Cody–Waite reduction by ln 2 in two parts, polynomial of degree 6 (Cephes' expf).
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    let clamped = if x > 89.0 { 89.0 } else { x };
    let clamped = if clamped < -105.0 { -105.0 } else { clamped };
    let n = (clamped * LOG2_E + ROUNDER) - ROUNDER;
    let r = clamped - n * 0.693_359_4;
    let r = r - n * -2.121_944_4e-4;
    let p = 1.987_569_1e-4;
    let p = p * r + 1.398_199_9e-3;
    let p = p * r + 8.333_452e-3;
    let p = p * r + 4.166_579_6e-2;
    let p = p * r + 1.666_666_5e-1;
    let p = p * r + 5e-1;
    let value = p * (r * r) + r + 1.0;
    let scaled = times_power_of_two(value, n);
    if x.is_nan() { x } else { scaled }
}

/// `x × 2^n` for an integer n from -252 to 254.
#[inline(always)]
pub fn times_power_of_two(x: f32, n: f32) -> f32 {
    // Two factors: 2^n alone may be below the normal numbers, or above the finite ones.
    let half = (n * 0.5 + ROUNDER) - ROUNDER;
    x * power_of_two(half) * power_of_two(n - half)
}

/// 2^n for an integer n from -126 to 127.
#[inline(always)]
fn power_of_two(n: f32) -> f32 {
    // The low mantissa bits of n + ROUNDER are n as an integer.
    let bits = (n + ROUNDER).to_bits().wrapping_sub(ROUNDER.to_bits()).wrapping_add(127);
    f32::from_bits(bits << 23)
}

/// tanh x; 4 ulp. Rational function of degree 13/6 (Eigen's and XLA's coefficients).
#[inline(always)]
pub fn tanh(x: f32) -> f32 {
    let limit = 7.905_311;
    let c = if x > limit { limit } else { x };
    let c = if c < -limit { -limit } else { c };
    let s = c * c;
    let p = -2.760_768_4e-16;
    let p = p * s + 2.000_188e-13;
    let p = p * s + -8.604_672e-11;
    let p = p * s + 5.122_297e-8;
    let p = p * s + 1.485_722_4e-5;
    let p = p * s + 6.372_619_3e-4;
    let p = p * s + 4.893_524_6e-3;
    let q = 1.198_258_4e-6;
    let q = q * s + 1.185_347_1e-4;
    let q = q * s + 2.268_434_6e-3;
    let q = q * s + 4.893_525e-3;
    let value = c * p / q;
    let value = if value > 1.0 { 1.0 } else { value };
    let value = if value < -1.0 { -1.0 } else { value };
    let tiny = x.abs() < 4e-4;
    if tiny || x.is_nan() { x } else { value }
}

/// erf x; absolute error 4e-7. Rational function of degree 13/8 (Eigen's and XLA's coefficients).
#[inline(always)]
pub fn erf(x: f32) -> f32 {
    let c = if x > 4.0 { 4.0 } else { x };
    let c = if c < -4.0 { -4.0 } else { c };
    let s = c * c;
    let p = -2.726_142_3e-10;
    let p = p * s + 2.770_681_4e-8;
    let p = p * s + -2.101_024e-6;
    let p = p * s + -5.692_506_4e-5;
    let p = p * s + -7.349_906_3e-4;
    let p = p * s + -2.954_6e-3;
    let p = p * s + -1.609_603_3e-2;
    let q = -1.456_607_2e-5;
    let q = q * s + -2.133_740_6e-4;
    let q = q * s + -1.682_827e-3;
    let q = q * s + -7.373_329e-3;
    let q = q * s + -1.426_473_9e-2;
    let value = c * p / q;
    let value = if value > 1.0 { 1.0 } else { value };
    let value = if value < -1.0 { -1.0 } else { value };
    // Keeps the sign of zero and the relative error of small arguments.
    let small = x * FRAC_2_SQRT_PI;
    let value = if x.abs() < 1e-3 { small } else { value };
    if x.is_nan() { x } else { value }
}

/// The larger; NaN if either is; -0 below +0.
#[inline(always)]
pub fn max(a: f32, b: f32) -> f32 {
    let larger = if a > b { a } else { b };
    // Equal numbers differ at most in the sign of zero.
    let equal = f32::from_bits(a.to_bits() & b.to_bits());
    let larger = if a == b { equal } else { larger };
    if a.is_nan() { a } else { larger }
}

/// The smaller; NaN if either is; -0 below +0.
#[inline(always)]
pub fn min(a: f32, b: f32) -> f32 {
    let smaller = if a < b { a } else { b };
    let equal = f32::from_bits(a.to_bits() | b.to_bits());
    let smaller = if a == b { equal } else { smaller };
    if a.is_nan() { a } else { smaller }
}

/// Zeros and NaN are their own sign.
#[inline(always)]
pub fn sign(x: f32) -> f32 {
    if x == 0.0 || x.is_nan() { x } else { 1f32.copysign(x) }
}

/// a^b, once rounded; the squares and cubes that norms and activations are full of need no logarithm.
#[inline(always)]
pub fn pow(a: f32, b: f32) -> f32 {
    if b == 2.0 {
        a * a
    } else if b == 3.0 {
        a * a * a
    } else {
        libm::pow(a.into(), b.into()) as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Largest error in ulp of the true value over all f32 in steps, where `floor` is the smallest magnitude
    /// that counts.
    fn worst(f: fn(f32) -> f32, exact: fn(f64) -> f64, floor: f64) -> f64 {
        let mut worst = 0f64;
        for bits in (0..u32::MAX).step_by(4093) {
            let x = f32::from_bits(bits);
            let (actual, expected) = (f(x), exact(x.into()));
            let rounded = expected as f32;
            if rounded.is_nan() || rounded.is_infinite() {
                assert!(actual.is_nan() && rounded.is_nan() || actual == rounded, "{x}: {actual} {rounded}");
                continue;
            }
            let scale = expected.abs().max(floor).max(f32::MIN_POSITIVE.into());
            let ulp = scale * f64::from(f32::EPSILON) / 1.5;
            worst = worst.max((f64::from(actual) - expected).abs() / ulp);
        }
        worst
    }

    #[test]
    fn errors_are_as_stated() {
        let check = |name, error: f64, most: f64| assert!(error <= most, "{name}: {error} ulp");
        check("exp", worst(exp, libm::exp, 0.0), 2.0);
        check("tanh", worst(tanh, libm::tanh, 0.0), 6.0);
        check("erf", worst(erf, libm::erf, 0.1), 12.0);
    }

    #[test]
    fn extremes() {
        assert!(max(f32::NAN, 1.0).is_nan() && max(1.0, f32::NAN).is_nan() && min(1.0, f32::NAN).is_nan());
        assert!(max(-0.0, 0.0).is_sign_positive() && min(0.0, -0.0).is_sign_negative());
        assert_eq!((max(1.0, 2.0), min(1.0, 2.0)), (2.0, 1.0));
        assert!(erf(-0.0).is_sign_negative() && tanh(-0.0).is_sign_negative());
    }
}
