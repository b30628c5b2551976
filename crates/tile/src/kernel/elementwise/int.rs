//! Functions of integers, exact in i128 and wrapped to the type, and of bool.

use crate::kernel::values::Int;
use pando_base::{BinaryFn, UnaryFn};

pub fn unary<T: Int>(func: UnaryFn, x: &[T], y: &mut [T]) {
    let f: fn(i128) -> i128 = match func {
        UnaryFn::Neg => |x| -x,
        UnaryFn::Abs => i128::abs,
        UnaryFn::Sign => i128::signum,
        UnaryFn::Not => |x| !x,
        _ => unreachable!("{func} of integers does not pass the check"),
    };
    y.iter_mut().zip(x).for_each(|(y, x)| *y = T::wrap(f(x.widen())));
}

pub fn binary<T: Int>(func: BinaryFn, a: &[T], b: &[T], y: &mut [T]) {
    match func {
        BinaryFn::Add => zip(a, b, y, |a, b| a + b),
        BinaryFn::Sub => zip(a, b, y, |a, b| a - b),
        BinaryFn::Mul => zip(a, b, y, i128::wrapping_mul),
        BinaryFn::Div => zip(a, b, y, |a, b| a.checked_div(b).unwrap_or(0)),
        BinaryFn::Rem => zip(a, b, y, |a, b| a.checked_rem(b).unwrap_or(0)),
        BinaryFn::Pow => zip(a, b, y, power),
        BinaryFn::Max => zip(a, b, y, i128::max),
        BinaryFn::Min => zip(a, b, y, i128::min),
        BinaryFn::And => zip(a, b, y, |a, b| a & b),
        BinaryFn::Or => zip(a, b, y, |a, b| a | b),
        BinaryFn::Xor => zip(a, b, y, |a, b| a ^ b),
        BinaryFn::Shl => zip(a, b, y, |a, b| a << distance::<T>(b)),
        BinaryFn::Shr => zip(a, b, y, |a, b| a >> distance::<T>(b)),
        BinaryFn::Atan2 => unreachable!("{func} of integers does not pass the check"),
    }
}

fn zip<T: Int>(a: &[T], b: &[T], y: &mut [T], f: impl Fn(i128, i128) -> i128) {
    let operands = a.iter().zip(b);
    y.iter_mut().zip(operands).for_each(|(y, (a, b))| *y = T::wrap(f(a.widen(), b.widen())));
}

/// A distance, read as unsigned and cut at the width: bits shifted further bring in nothing new.
fn distance<T: Int>(b: i128) -> u32 {
    u32::try_from(b).map_or(T::BITS, |b| b.min(T::BITS))
}

/// Wraps. A negative exponent gives the truncated `1 / a^|b|`, and like any division by zero 0 for 0.
fn power(a: i128, b: i128) -> i128 {
    if b < 0 {
        return match a {
            1 => 1,
            -1 => 1 - 2 * (b & 1),
            _ => 0,
        };
    }
    let (mut result, mut square, mut exponent) = (1i128, a, b);
    while exponent > 0 {
        if exponent & 1 == 1 {
            result = result.wrapping_mul(square);
        }
        square = square.wrapping_mul(square);
        exponent >>= 1;
    }
    result
}

/// Functions of bool, a byte of 0 or 1.
pub fn logical(func: BinaryFn, a: &[u8], b: &[u8], y: &mut [u8]) {
    let f: fn(u8, u8) -> u8 = match func {
        BinaryFn::And => |a, b| a & b,
        BinaryFn::Or => |a, b| a | b,
        BinaryFn::Xor => |a, b| a ^ b,
        _ => unreachable!("{func} of bool does not pass the check"),
    };
    y.iter_mut().zip(a.iter().zip(b)).for_each(|(y, (&a, &b))| *y = f(a, b));
}
