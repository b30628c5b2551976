//! Functions of single elements. Floats are f64 here, whatever their type; integers are i128, exact
//! before they wrap to their type when written. `libm` rather than std, whose results differ between
//! platforms.

use pando_base::{BinaryFn, CompareFn, DType, ReduceFn, Shape, Tensor, UnaryFn};
use std::cmp::Ordering;

/// How a tensor's elements are held and computed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Domain {
    Float,
    /// See `wide.rs`.
    Wide,
    Int,
}

impl Domain {
    pub(super) fn of(dtype: DType, wide: bool) -> Domain {
        match dtype.is_float() {
            true if wide => Domain::Wide,
            true => Domain::Float,
            false if wide && dtype == DType::U64 => Domain::Wide,
            false => Domain::Int,
        }
    }
}

/// Calls a function that is generic over the scalar with that of a domain.
macro_rules! in_domain {
    ($domain:expr, $func:ident($($arg:expr),*)) => {
        match $domain {
            $crate::eval::scalar::Domain::Float => $func::<f64>($($arg),*),
            $crate::eval::scalar::Domain::Wide => $func::<$crate::eval::wide::Wide>($($arg),*),
            $crate::eval::scalar::Domain::Int => $func::<i128>($($arg),*),
        }
    };
}
pub(super) use in_domain;

/// What elements are computed in: f64 for float types, i128 for integers and bool.
pub(super) trait Scalar: Copy + PartialOrd {
    const ZERO: Self;
    fn read(tensor: &Tensor) -> Vec<Self>;
    /// Rounds or wraps each element to the type.
    fn write(dtype: DType, shape: Shape, values: &[Self]) -> Tensor;
    fn mul_add(self, a: Self, b: Self) -> Self;
    fn combine(func: ReduceFn, a: Self, b: Self) -> Self;
    fn neutral(func: ReduceFn, dtype: DType) -> Self;
}

impl Scalar for f64 {
    const ZERO: f64 = 0.0;

    fn read(tensor: &Tensor) -> Vec<f64> {
        tensor.to_f64()
    }

    fn write(dtype: DType, shape: Shape, values: &[f64]) -> Tensor {
        Tensor::from_f64(dtype, shape, values)
    }

    fn mul_add(self, a: f64, b: f64) -> f64 {
        self + a * b
    }

    fn combine(func: ReduceFn, a: f64, b: f64) -> f64 {
        match func {
            ReduceFn::Sum => a + b,
            ReduceFn::Prod => a * b,
            ReduceFn::Max => maximum(a, b),
            ReduceFn::Min => minimum(a, b),
            ReduceFn::And | ReduceFn::Or => unreachable!("{func} of floats does not pass inference"),
        }
    }

    fn neutral(func: ReduceFn, dtype: DType) -> f64 {
        match func {
            ReduceFn::Sum => 0.0,
            ReduceFn::Prod => 1.0,
            ReduceFn::Max => dtype.lowest(),
            ReduceFn::Min => dtype.highest(),
            ReduceFn::And | ReduceFn::Or => unreachable!("{func} of floats does not pass inference"),
        }
    }
}

impl Scalar for i128 {
    const ZERO: i128 = 0;

    fn read(tensor: &Tensor) -> Vec<i128> {
        tensor.to_ints()
    }

    fn write(dtype: DType, shape: Shape, values: &[i128]) -> Tensor {
        Tensor::from_ints(dtype, shape, values)
    }

    fn mul_add(self, a: i128, b: i128) -> i128 {
        self.wrapping_add(a.wrapping_mul(b))
    }

    fn combine(func: ReduceFn, a: i128, b: i128) -> i128 {
        match func {
            ReduceFn::Sum => a.wrapping_add(b),
            ReduceFn::Prod => a.wrapping_mul(b),
            ReduceFn::Max => a.max(b),
            ReduceFn::Min => a.min(b),
            ReduceFn::And => a & b,
            ReduceFn::Or => a | b,
        }
    }

    fn neutral(func: ReduceFn, dtype: DType) -> i128 {
        let (low, high) = dtype.int_range().expect("integers have a range");
        match func {
            ReduceFn::Sum | ReduceFn::Or => 0,
            ReduceFn::Prod => 1,
            ReduceFn::Max => low,
            ReduceFn::Min => high,
            ReduceFn::And if dtype == DType::Bool => 1,
            ReduceFn::And => -1,
        }
    }
}

/// NaN if either is, with its bits; +0 above -0.
fn maximum(a: f64, b: f64) -> f64 {
    match a.partial_cmp(&b) {
        None if a.is_nan() => a,
        None => b,
        Some(Ordering::Equal) if a.is_sign_negative() => b,
        Some(Ordering::Less) => b,
        _ => a,
    }
}

/// NaN if either is; -0 below +0.
fn minimum(a: f64, b: f64) -> f64 {
    -maximum(-a, -b)
}

pub(super) fn unary_float(func: UnaryFn, x: f64) -> f64 {
    match func {
        UnaryFn::Neg => -x,
        UnaryFn::Abs => x.abs(),
        UnaryFn::Sign => sign(x),
        UnaryFn::Floor => x.floor(),
        UnaryFn::Ceil => x.ceil(),
        UnaryFn::Round => x.round_ties_even(),
        UnaryFn::Exp => libm::exp(x),
        UnaryFn::Expm1 => libm::expm1(x),
        UnaryFn::Log => libm::log(x),
        UnaryFn::Log1p => libm::log1p(x),
        UnaryFn::Sqrt => x.sqrt(),
        UnaryFn::Sin => libm::sin(x),
        UnaryFn::Cos => libm::cos(x),
        UnaryFn::Tanh => libm::tanh(x),
        UnaryFn::Erf => libm::erf(x),
        UnaryFn::Not => unreachable!("not of floats does not pass inference"),
    }
}

/// Zeros and NaN are their own sign.
fn sign(x: f64) -> f64 {
    if x == 0.0 || x.is_nan() { x } else { 1f64.copysign(x) }
}

pub(super) fn unary_int(func: UnaryFn, dtype: DType, x: i128) -> i128 {
    match func {
        UnaryFn::Neg => -x,
        UnaryFn::Abs => x.abs(),
        UnaryFn::Sign => x.signum(),
        UnaryFn::Not if dtype == DType::Bool => 1 - x,
        UnaryFn::Not => !x,
        _ => unreachable!("{func} of integers does not pass inference"),
    }
}

pub(super) fn binary_float(func: BinaryFn, a: f64, b: f64) -> f64 {
    match func {
        BinaryFn::Add => a + b,
        BinaryFn::Sub => a - b,
        BinaryFn::Mul => a * b,
        BinaryFn::Div => a / b,
        BinaryFn::Rem => a % b,
        BinaryFn::Pow => libm::pow(a, b),
        BinaryFn::Atan2 => libm::atan2(a, b),
        BinaryFn::Max => maximum(a, b),
        BinaryFn::Min => minimum(a, b),
        _ => unreachable!("{func} of floats does not pass inference"),
    }
}

pub(super) fn binary_int(func: BinaryFn, dtype: DType, a: i128, b: i128) -> i128 {
    match func {
        BinaryFn::Add => a + b,
        BinaryFn::Sub => a - b,
        BinaryFn::Mul => a.wrapping_mul(b),
        BinaryFn::Div => a.checked_div(b).unwrap_or(0),
        BinaryFn::Rem => a.checked_rem(b).unwrap_or(0),
        BinaryFn::Pow => int_pow(a, b),
        BinaryFn::Max => a.max(b),
        BinaryFn::Min => a.min(b),
        BinaryFn::And => a & b,
        BinaryFn::Or => a | b,
        BinaryFn::Xor => a ^ b,
        BinaryFn::Shl => a.checked_shl(shift(dtype, b)).unwrap_or(0),
        BinaryFn::Shr => a >> shift(dtype, b),
        BinaryFn::Atan2 => unreachable!("{func} of integers does not pass inference"),
    }
}

/// The distance as an unsigned number, cut at the width: more shifts out nothing new.
fn shift(dtype: DType, distance: i128) -> u32 {
    let width = 8 * dtype.size_bytes() as u32;
    u32::try_from(distance).map_or(width, |distance| distance.min(width))
}

/// Wraps; with a negative exponent the truncated 1 / a^|b|, where a division by zero gives zero.
fn int_pow(a: i128, b: i128) -> i128 {
    match (a, b) {
        (1, _) => 1,
        (-1, _) => {
            if b % 2 == 0 {
                1
            } else {
                -1
            }
        }
        (_, ..0) => 0,
        _ => wrapping_pow(a, b),
    }
}

fn wrapping_pow(mut base: i128, mut exponent: i128) -> i128 {
    let mut power = 1i128;
    while exponent > 0 {
        if exponent & 1 == 1 {
            power = power.wrapping_mul(base);
        }
        base = base.wrapping_mul(base);
        exponent >>= 1;
    }
    power
}

pub(super) fn compare<T: PartialOrd>(func: CompareFn, a: T, b: T) -> bool {
    match func {
        CompareFn::Eq => a == b,
        CompareFn::Ne => a != b,
        CompareFn::Lt => a < b,
        CompareFn::Le => a <= b,
        CompareFn::Gt => a > b,
        CompareFn::Ge => a >= b,
    }
}

/// An integer as f64, rounded so that rounding again to a narrower float gives what rounding the integer
/// once would: cut toward zero with the last bit set if anything was cut ("round to odd").
pub(super) fn int_to_float(value: i128) -> f64 {
    let nearest = value as f64;
    let back = nearest as i128;
    if back == value {
        return nearest;
    }
    let bits = nearest.to_bits();
    let cut = if back.unsigned_abs() > value.unsigned_abs() { bits - 1 } else { bits };
    f64::from_bits(cut | 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_follow_the_machine() {
        assert_eq!(binary_int(BinaryFn::Div, DType::I32, -7, 2), -3);
        assert_eq!(binary_int(BinaryFn::Rem, DType::I32, -7, 2), -1);
        assert_eq!(binary_int(BinaryFn::Div, DType::I32, -7, 0), 0);
        assert_eq!(binary_int(BinaryFn::Rem, DType::I32, -7, 0), 0);
        assert_eq!(binary_int(BinaryFn::Shr, DType::I8, -128, 100), -1);
        assert_eq!(binary_int(BinaryFn::Shl, DType::U64, 1, 64) as u64, 0);
        assert_eq!(binary_int(BinaryFn::Shl, DType::I32, 1, -1) as i32, 0);
        assert_eq!(binary_int(BinaryFn::Pow, DType::I32, 3, 4), 81);
        assert_eq!(binary_int(BinaryFn::Pow, DType::I32, -1, -3), -1);
        assert_eq!(binary_int(BinaryFn::Pow, DType::I32, 2, -1), 0);
    }

    #[test]
    fn integers_convert_with_one_rounding() {
        // Between two f32 values, just above the middle, and closer to it than f64 can tell.
        let value = (1i128 << 62) + (1i128 << 38) + 1;
        assert_eq!(int_to_float(value) as f32, value as f32);
        assert_ne!(value as f64 as f32, value as f32);
        assert_eq!(int_to_float(-value) as f32, -(value as f32));
        assert_eq!(int_to_float(12345), 12345.0);
    }

    #[test]
    fn extremes() {
        assert!(maximum(f64::NAN, 1.0).is_nan() && minimum(1.0, f64::NAN).is_nan());
        assert!(maximum(-0.0, 0.0).is_sign_positive() && minimum(0.0, -0.0).is_sign_negative());
    }
}
