//! Functions of f32, f16 and bf16: computed in f32, rounded once.

use crate::kernel::Smooth;
use crate::kernel::values::Float;
use pando_base::{BinaryFn, UnaryFn};

pub fn unary<T: Float>(func: UnaryFn, x: &[T], y: &mut [T]) {
    match func {
        UnaryFn::Neg => map(x, y, |x| -x),
        UnaryFn::Abs => map(x, y, f32::abs),
        UnaryFn::Sign => map(x, y, sign),
        UnaryFn::Floor => map(x, y, f32::floor),
        UnaryFn::Ceil => map(x, y, f32::ceil),
        UnaryFn::Round => map(x, y, f32::round_ties_even),
        UnaryFn::Exp => map(x, y, libm::expf),
        UnaryFn::Expm1 => map(x, y, libm::expm1f),
        UnaryFn::Log => map(x, y, libm::logf),
        UnaryFn::Log1p => map(x, y, libm::log1pf),
        // IEEE demands the rounded root, so std cannot differ.
        UnaryFn::Sqrt => map(x, y, f32::sqrt),
        UnaryFn::Sin => map(x, y, libm::sinf),
        UnaryFn::Cos => map(x, y, libm::cosf),
        UnaryFn::Tanh => map(x, y, libm::tanhf),
        UnaryFn::Erf => map(x, y, libm::erff),
        UnaryFn::Not => unreachable!("not of floats does not pass the check"),
    }
}

pub fn smooth<T: Float>(func: Smooth, x: &[T], y: &mut [T]) {
    map(x, y, |x| func.of(x));
}

fn map<T: Float>(x: &[T], y: &mut [T], f: impl Fn(f32) -> f32) {
    y.iter_mut().zip(x).for_each(|(y, x)| *y = T::from_f32(f(x.to_f32())));
}

pub fn binary<T: Float>(func: BinaryFn, a: &[T], b: &[T], y: &mut [T]) {
    match func {
        BinaryFn::Add => zip(a, b, y, |a, b| a + b),
        BinaryFn::Sub => zip(a, b, y, |a, b| a - b),
        BinaryFn::Mul => zip(a, b, y, |a, b| a * b),
        BinaryFn::Div => zip(a, b, y, |a, b| a / b),
        BinaryFn::Rem => zip(a, b, y, libm::fmodf),
        BinaryFn::Pow => zip(a, b, y, libm::powf),
        BinaryFn::Atan2 => zip(a, b, y, libm::atan2f),
        BinaryFn::Max => zip(a, b, y, maximum),
        BinaryFn::Min => zip(a, b, y, minimum),
        BinaryFn::And | BinaryFn::Or | BinaryFn::Xor | BinaryFn::Shl | BinaryFn::Shr => {
            unreachable!("{func} of floats does not pass the check")
        }
    }
}

fn zip<T: Float>(a: &[T], b: &[T], y: &mut [T], f: impl Fn(f32, f32) -> f32) {
    let operands = a.iter().zip(b);
    y.iter_mut().zip(operands).for_each(|(y, (a, b))| *y = T::from_f32(f(a.to_f32(), b.to_f32())));
}

/// Zeros and NaN are their own sign.
fn sign(x: f32) -> f32 {
    if x == 0.0 || x.is_nan() { x } else { 1f32.copysign(x) }
}

/// NaN if either is; +0 above -0. (`f32::max` ignores a NaN.)
pub fn maximum(a: f32, b: f32) -> f32 {
    if a.is_nan() || b.is_nan() {
        f32::NAN
    } else if a > b || (a == b && a.is_sign_positive()) {
        a
    } else {
        b
    }
}

/// NaN if either is; -0 below +0.
pub fn minimum(a: f32, b: f32) -> f32 {
    if a.is_nan() || b.is_nan() {
        f32::NAN
    } else if a < b || (a == b && a.is_sign_negative()) {
        a
    } else {
        b
    }
}
