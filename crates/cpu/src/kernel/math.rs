//! Functions of one f32, written without branches or fused multiply-adds, so that the vectoriser takes them
//! at every level and all levels give the same bits. Errors are in units of the last place (ulp) of f32,
//! measured against `libm` in f64 by the tests below.

use std::f32::consts::{FRAC_2_SQRT_PI, LOG2_E};
use std::ops::{Add, Mul};

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

/// An odd function that tends to ±1: x · P(x²) / Q(x²) of an x within the limit, where it is 1 when rounded.
/// Coefficients, highest power first, have the smallest relative error of all; their last bits are chosen so
/// that steps rounded to f32 have a small one, too, and give at least 1 at the limit: beyond it GELU is x or 0.
pub struct Ratio<const P: usize, const Q: usize> {
    pub limit: f32,
    pub p: [f32; P],
    pub q: [f32; Q],
}

/// Relative error 1.3e-9 without rounding. That P and Q end with 1 makes a small x its own result.
pub const TANH: Ratio<6, 5> = Ratio {
    limit: 9.011,
    p: [-1.228_151_3e-11, 3.069_771_3e-8, 2.805_687e-5, 3.870_852_3e-3, 0.136_819_5, 1.0],
    q: [1.290_737e-6, 3.943_027_7e-4, 2.725_514_4e-2, 0.470_152_8, 1.0],
};

/// Relative error 2.1e-8 without rounding.
pub const ERF: Ratio<6, 6> = Ratio {
    limit: 3.95,
    p: [2.029_454_4e-6, 2.840_724e-4, 3.783_868e-3, 5.280_135_6e-2, 0.190_992_98, FRAC_2_SQRT_PI],
    q: [3.783_597e-5, 1.164_683e-3, 1.500_691_1e-2, 0.114_328_74, 0.502_596, 1.0],
};

#[inline(always)]
fn odd_ratio<const P: usize, const Q: usize>(x: f32, ratio: &Ratio<P, Q>) -> f32 {
    let c = if x > ratio.limit { ratio.limit } else { x };
    let c = if c < -ratio.limit { -ratio.limit } else { c };
    let s = c * c;
    let value = c * polynomial(&ratio.p, s) / polynomial(&ratio.q, s);
    let value = if value > 1.0 { 1.0 } else { value };
    if value < -1.0 { -1.0 } else { value }
}

/// Coefficients: highest power first.
#[inline(always)]
fn polynomial<T: Copy + Add<Output = T> + Mul<Output = T>, const N: usize>(coefficients: &[T; N], x: T) -> T {
    let mut sum = coefficients[0];
    for &coefficient in &coefficients[1..] {
        sum = sum * x + coefficient;
    }
    sum
}

/// tanh x; 4 ulp.
#[inline(always)]
pub fn tanh(x: f32) -> f32 {
    odd_ratio(x, &TANH)
}

/// erf x; 4 ulp.
#[inline(always)]
pub fn erf(x: f32) -> f32 {
    odd_ratio(x, &ERF)
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

/// a^b with IEEE 754's rules for zeros, infinities and NaN; 0.51 ulp, since all but the result is f64. The
/// squares and cubes that norms and activations are full of are products.
#[inline(always)]
pub fn pow(a: f32, b: f32) -> f32 {
    let (x, y) = (f64::from(a.abs()), f64::from(b));
    // 0 · ∞ is no NaN here.
    let power = if b == 0.0 || x == 1.0 { 0.0 } else { y * log2(x) };
    let magnitude = exp2(power) as f32;
    // Beyond, all f32 are even, and infinities count as such.
    let near = if y > 33_554_432.0 { 33_554_432.0 } else { y };
    let near = if near < -33_554_432.0 { -33_554_432.0 } else { near };
    let odd = is_integer(near) && !is_integer(near * 0.5);
    let value = if odd && a.is_sign_negative() { -magnitude } else { magnitude };
    let undefined = a < 0.0 && x < f64::INFINITY && !is_integer(near);
    let value = if undefined || a.is_nan() || b.is_nan() { f32::NAN } else { value };
    let value = if b == 0.0 || a == 1.0 { 1.0 } else { value };
    let value = if b == 2.0 { a * a } else { value };
    if b == 3.0 { a * a * a } else { value }
}

/// Adding and subtracting it rounds to an integer: 1.5 · 2^52.
const WIDE_ROUNDER: f64 = 6_755_399_441_055_744.0;

/// Of magnitudes below 2^51.
#[inline(always)]
fn is_integer(x: f64) -> bool {
    (x + WIDE_ROUNDER) - WIDE_ROUNDER == x
}

/// Of x ≥ 0; relative error 1e-12. With x = 2^n m, m from √½ to √2, and t = (m - 1)/(m + 1), it is
/// n plus the series 2/ln 2 · (t + t³/3 + t⁵/5 + ...).
#[inline(always)]
fn log2(x: f64) -> f64 {
    const TERMS: [f64; 7] = [1.0 / 13.0, 1.0 / 11.0, 1.0 / 9.0, 1.0 / 7.0, 1.0 / 5.0, 1.0 / 3.0, 1.0];
    /// Its mantissa bits are an integer.
    const INTEGERS: f64 = 4_503_599_627_370_496.0;
    let from = 1f64.to_bits() - std::f64::consts::FRAC_1_SQRT_2.to_bits();
    // Exponents as f64 has them: 1023 more. The f64 of an f32 that is not 0 is normal.
    let biased = x.to_bits().wrapping_add(from) >> 52;
    let n = f64::from_bits(biased | INTEGERS.to_bits()) - (INTEGERS + 1023.0);
    let m = f64::from_bits(x.to_bits().wrapping_sub(biased << 52).wrapping_add(1f64.to_bits()));
    let t = (m - 1.0) / (m + 1.0);
    let value = n + t * polynomial(&TERMS, t * t) * (2.0 * std::f64::consts::LOG2_E);
    let value = if x == 0.0 { f64::NEG_INFINITY } else { value };
    if x == f64::INFINITY { x } else { value }
}

/// Relative error 2e-10, of results that are finite and not 0 in f32.
#[inline(always)]
fn exp2(x: f64) -> f64 {
    let (fraction, power) = exp2_parts(x);
    fraction * power + power
}

/// 2^x in two parts, fraction and power of two: power · (1 + fraction). With x = n + f, f from -½ to ½, they are
/// the series of e^(f ln 2) - 1 and 2^n.
#[inline(always)]
fn exp2_parts(x: f64) -> (f64, f64) {
    const TERMS: [f64; 8] =
        [1.0 / 40320.0, 1.0 / 5040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0];
    let x = if x > 200.0 { 200.0 } else { x };
    let x = if x < -200.0 { -200.0 } else { x };
    let shifted = x + WIDE_ROUNDER;
    let z = (x - (shifted - WIDE_ROUNDER)) * std::f64::consts::LN_2;
    // The low mantissa bits of the shifted are the integer; all others are shifted out.
    let power = f64::from_bits(1f64.to_bits().wrapping_add(shifted.to_bits() << 52));
    (z * polynomial(&TERMS, z), power)
}

/// ln x; 0.51 ulp.
#[inline(always)]
pub fn log(x: f32) -> f32 {
    let value = (log2(x.into()) * std::f64::consts::LN_2) as f32;
    if x < 0.0 || x.is_nan() { f32::NAN } else { value }
}

/// ln (1 + x); 0.51 ulp.
#[inline(always)]
pub fn log1p(x: f32) -> f32 {
    let x = f64::from(x);
    let value = log2(1.0 + x) * std::f64::consts::LN_2;
    // The sum with 1 loses the last bits of a small x.
    let value = if x.abs() < 1e-4 { x - x * x * (0.5 - x * (1.0 / 3.0)) } else { value };
    if x < -1.0 || x.is_nan() { f32::NAN } else { value as f32 }
}

/// e^x - 1; 0.51 ulp.
#[inline(always)]
pub fn expm1(x: f32) -> f32 {
    let (fraction, power) = exp2_parts(f64::from(x) * std::f64::consts::LOG2_E);
    let value = (fraction * power + (power - 1.0)) as f32;
    // Keeps the sign of zero.
    if x == 0.0 || x.is_nan() { x } else { value }
}

/// x^½ but for -0, which becomes 0, and -∞, which becomes ∞; as [`pow`].
#[inline(always)]
pub fn square_root_power(x: f32) -> f32 {
    if x == f32::NEG_INFINITY { f32::INFINITY } else { x.sqrt() + 0.0 }
}

/// x^¾, as local response normalisation has it; 3 ulp.
#[inline(always)]
pub fn three_quarters_power(x: f32) -> f32 {
    let root = square_root_power(x);
    root * root.sqrt()
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
        check("tanh", worst(tanh, libm::tanh, 0.0), 4.0);
        check("erf", worst(erf, libm::erf, 0.0), 4.0);
        check("square root", worst(square_root_power, |x| libm::pow(x, 0.5), 0.0), 0.8);
        check("three quarters", worst(three_quarters_power, |x| libm::pow(x, 0.75), 0.0), 3.0);
        check("log", worst(log, libm::log, 0.0), 0.8);
        check("log1p", worst(log1p, libm::log1p, 0.0), 0.8);
        check("expm1", worst(expm1, libm::expm1, 0.0), 0.8);
        check("0.3", worst(|x| pow(x, 0.3), |x| libm::pow(x, 0.3f32.into()), 0.0), 0.8);
        check("-1", worst(|x| pow(x, -1.0), |x| 1.0 / x, 0.0), 0.8);
        check("-2.5", worst(|x| pow(x, -2.5), |x| libm::pow(x, -2.5), 0.0), 0.8);
        check("power of 3", worst(|x| pow(3.0, x), |x| libm::pow(3.0, x), 0.0), 0.8);
    }

    /// Every pair of remarkable numbers, judged by libm in f64.
    #[test]
    fn powers_of_extremes() {
        let least = f32::from_bits(1);
        let positive =
            [0.0, least, 1e-40, 1e-30, 0.3, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.5, 127.0, 1e9, 3e38];
        let all = positive.into_iter().chain([f32::INFINITY, f32::NAN]).flat_map(|x| [x, -x]);
        for a in all.clone() {
            for b in all.clone() {
                let expected = libm::pow(a.into(), b.into()) as f32;
                let cube = b == 3.0 && a != 0.0 && a.is_finite();
                let (actual, expected) = (pow(a, b), if cube { a * a * a } else { expected });
                let same = actual.to_bits() == expected.to_bits() || actual.is_nan() && expected.is_nan();
                assert!(same, "{a}^{b}: {actual}, not {expected}");
            }
            let same = |x: f32, y: f32| x.to_bits() == y.to_bits() || x.is_nan() && y.is_nan();
            assert!(same(square_root_power(a), libm::pow(a.into(), 0.5) as f32), "{a}");
            let three_quarters = libm::pow(a.into(), 0.75) as f32;
            let close = (three_quarters_power(a) - three_quarters).abs() <= three_quarters * 2e-7;
            assert!(close || same(three_quarters_power(a), three_quarters), "{a}");
        }
    }

    #[test]
    fn extremes() {
        assert!(max(f32::NAN, 1.0).is_nan() && max(1.0, f32::NAN).is_nan() && min(1.0, f32::NAN).is_nan());
        assert!(max(-0.0, 0.0).is_sign_positive() && min(0.0, -0.0).is_sign_negative());
        assert_eq!((max(1.0, 2.0), min(1.0, 2.0)), (2.0, 1.0));
        assert_eq!(
            (erf(f32::INFINITY), erf(-1e9), tanh(1e9), tanh(f32::NEG_INFINITY)),
            (1.0, -1.0, 1.0, -1.0)
        );
        for x in [
            0.0,
            -0.0,
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::NAN,
            -1.0,
            -2.0,
            1e-45,
            -1e-45,
            1.0,
            89.0,
            -200.0,
        ] {
            let same = |x: f32, y: f64| x.to_bits() == (y as f32).to_bits() || x.is_nan() && y.is_nan();
            assert!(same(log(x), libm::log(x.into())), "log {x}: {}", log(x));
            assert!(same(log1p(x), libm::log1p(x.into())), "log1p {x}: {}", log1p(x));
            assert!(same(expm1(x), libm::expm1(x.into())), "expm1 {x}: {}", expm1(x));
        }
        assert!(erf(-0.0).is_sign_negative() && tanh(-0.0).is_sign_negative());
    }
}
