//! Rules of ops that work element by element.

use super::{Gradients, Visit};
use crate::builder::Builder;
use crate::module::ValueId;
use pando_base::{BinaryFn, CompareFn, Result, UnaryFn};
use smallvec::smallvec;

pub(super) fn unary(b: &mut Builder, at: &Visit, func: UnaryFn) -> Result<Gradients> {
    let (gradient, x, y) = (at.gradient(), at.operand(0), at.result());
    let result = match func {
        UnaryFn::Neg => b.neg(gradient),
        UnaryFn::Log => b.div(gradient, x),
        UnaryFn::Log1p => b.binary_scalar(BinaryFn::Add, x, 1.0).and_then(|below| b.div(gradient, below)),
        UnaryFn::Sqrt => b.add(y, y).and_then(|twice| b.div(gradient, twice)),
        _ => slope(b, func, x, y).and_then(|slope| b.mul(gradient, slope)),
    };
    Ok(smallvec![Some(result?)])
}

/// The derivative at `x`, where the value is `y`.
fn slope(b: &mut Builder, func: UnaryFn, x: ValueId, y: ValueId) -> Result<ValueId> {
    match func {
        UnaryFn::Abs => b.unary(UnaryFn::Sign, x),
        UnaryFn::Exp => Ok(y),
        UnaryFn::Expm1 => b.binary_scalar(BinaryFn::Add, y, 1.0),
        UnaryFn::Sin => b.cos(x),
        UnaryFn::Cos => b.sin(x).and_then(|sin| b.neg(sin)),
        UnaryFn::Tanh => {
            let square = b.mul(y, y)?;
            one_minus(b, square)
        }
        UnaryFn::Erf => {
            let square = b.mul(x, x)?;
            let power = b.neg(square).and_then(|negated| b.exp(negated))?;
            b.binary_scalar(BinaryFn::Mul, power, std::f64::consts::FRAC_2_SQRT_PI)
        }
        _ => unreachable!("gradients pass no {func}, or its rule is its own"),
    }
}

pub(super) fn one_minus(b: &mut Builder, x: ValueId) -> Result<ValueId> {
    let one = b.splat_like(x, 1.0)?;
    b.sub(one, x)
}

pub(super) fn binary(b: &mut Builder, at: &Visit, func: BinaryFn) -> Result<Gradients> {
    let (gradient, y) = (at.gradient(), at.result());
    let [left, right] = [at.operand(0), at.operand(1)];
    at.each(|position| match (func, position) {
        (BinaryFn::Add, _) | (BinaryFn::Sub, 0) | (BinaryFn::Rem, 0) => Ok(gradient),
        (BinaryFn::Sub, _) => b.neg(gradient),
        (BinaryFn::Mul, 0) => b.mul(gradient, right),
        (BinaryFn::Mul, _) => b.mul(gradient, left),
        (BinaryFn::Div, 0) => b.div(gradient, right),
        (BinaryFn::Div, _) => {
            let numerator = b.div(gradient, right)?;
            let product = b.mul(numerator, y)?;
            b.neg(product)
        }
        (BinaryFn::Rem, _) => rem_divisor(b, gradient, [left, right], y),
        (BinaryFn::Pow, 0) => pow_base(b, gradient, left, right),
        (BinaryFn::Pow, _) => pow_exponent(b, gradient, left, right, y),
        (BinaryFn::Atan2, _) => atan2(b, gradient, [left, right], position),
        (BinaryFn::Max | BinaryFn::Min, _) => extreme(b, gradient, [left, right], y, position),
        _ => unreachable!("{func} of floats does not pass inference"),
    })
}

/// `x - y · n` with a whole `n`.
fn rem_divisor(
    b: &mut Builder,
    gradient: ValueId,
    [x, divisor]: [ValueId; 2],
    remainder: ValueId,
) -> Result<ValueId> {
    let multiple = b.sub(x, remainder)?;
    let quotient = b.div(multiple, divisor)?;
    let whole = b.unary(UnaryFn::Round, quotient)?;
    let product = b.mul(gradient, whole)?;
    b.neg(product)
}

/// `exponent · base^(exponent - 1)`; zero for an exponent of zero, whatever the base.
fn pow_base(b: &mut Builder, gradient: ValueId, base: ValueId, exponent: ValueId) -> Result<ValueId> {
    let constant = b.splat_of(exponent);
    if constant == Some(2.0) {
        let slope = b.add(base, base)?;
        return b.mul(gradient, slope);
    }
    let lower = b.binary_scalar(BinaryFn::Sub, exponent, 1.0)?;
    let power = b.pow(base, lower)?;
    let slope = b.mul(exponent, power)?;
    let product = b.mul(gradient, slope)?;
    if constant.is_some_and(|exponent| exponent != 0.0) {
        return Ok(product);
    }
    let zero = b.splat_like(exponent, 0.0)?;
    let flat = b.compare(CompareFn::Eq, exponent, zero)?;
    b.select(flat, zero, product)
}

/// `power · log(base)`; zero for a base of zero and exponents from zero on, where the power is constant.
fn pow_exponent(
    b: &mut Builder,
    gradient: ValueId,
    base: ValueId,
    exponent: ValueId,
    power: ValueId,
) -> Result<ValueId> {
    let log = b.log(base)?;
    let slope = b.mul(power, log)?;
    let product = b.mul(gradient, slope)?;
    if b.splat_of(base).is_some_and(|base| base > 0.0) {
        return Ok(product);
    }
    let zero = b.splat_like(base, 0.0)?;
    let is_zero = b.compare(CompareFn::Eq, base, zero)?;
    let not_negative = b.compare(CompareFn::Ge, exponent, zero)?;
    let flat = b.and(is_zero, not_negative)?;
    b.select(flat, zero, product)
}

/// `other / (y² + x²)`, negated for the second operand; zero at the origin.
fn atan2(b: &mut Builder, gradient: ValueId, [y, x]: [ValueId; 2], position: usize) -> Result<ValueId> {
    let (y_square, x_square) = (b.mul(y, y)?, b.mul(x, x)?);
    let square = b.add(y_square, x_square)?;
    let other = if position == 0 { x } else { b.neg(y)? };
    let product = b.mul(gradient, other)?;
    let quotient = b.div(product, square)?;
    let zero = b.splat_like(square, 0.0)?;
    let at_origin = b.compare(CompareFn::Eq, square, zero)?;
    b.select(at_origin, zero, quotient)
}

/// To the operand that is the result; half to each if both are. A bound (a constant, as in relu and clamp) takes
/// nothing and leaves nothing at a tie.
fn extreme(
    b: &mut Builder,
    gradient: ValueId,
    operands: [ValueId; 2],
    y: ValueId,
    position: usize,
) -> Result<ValueId> {
    let (own, other) = (operands[position], operands[1 - position]);
    let zero = b.splat_like(gradient, 0.0)?;
    if b.splat_of(other).is_some() {
        // The result, not the operand: it is kept anyway by what comes after.
        let free = b.compare(CompareFn::Ne, y, other)?;
        return b.select(free, gradient, zero);
    }
    let half = b.binary_scalar(BinaryFn::Mul, gradient, 0.5)?;
    let tie = b.compare(CompareFn::Eq, own, other)?;
    let share = b.select(tie, half, gradient)?;
    let taken = b.compare(CompareFn::Eq, own, y)?;
    b.select(taken, share, zero)
}

pub(super) fn select(b: &mut Builder, at: &Visit) -> Result<Gradients> {
    let (gradient, condition) = (at.gradient(), at.operand(0));
    let zero = b.splat_like(gradient, 0.0)?;
    at.each(|position| match position {
        1 => b.select(condition, gradient, zero),
        _ => b.select(condition, zero, gradient),
    })
}

pub(super) fn convert(b: &mut Builder, at: &Visit) -> Result<Gradients> {
    let dtype = b.ty(at.operand(0)).dtype;
    at.each(|_| b.convert(at.gradient(), dtype))
}
