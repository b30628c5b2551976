//! Operators that work element by element, with broadcasting.

use crate::ctx::Ctx;
use crate::errors;
use pando_base::{BinaryFn, CompareFn, DType, Result, UnaryFn};
use pando_graph::ValueId;

macro_rules! unary {
    ($($name:ident => $func:ident),* $(,)?) => {
        $(pub(super) fn $name(c: &mut Ctx) -> Result<ValueId> {
            let x = c.x(0)?;
            c.un(UnaryFn::$func, x)
        })*
    };
}

macro_rules! binary {
    ($($name:ident => $func:ident),* $(,)?) => {
        $(pub(super) fn $name(c: &mut Ctx) -> Result<ValueId> {
            let (x, y) = operands(c)?;
            c.bin(BinaryFn::$func, x, y)
        })*
    };
}

macro_rules! compare {
    ($($name:ident => $func:ident),* $(,)?) => {
        $(pub(super) fn $name(c: &mut Ctx) -> Result<ValueId> {
            let (x, y) = operands(c)?;
            c.cmp(CompareFn::$func, x, y)
        })*
    };
}

unary! {
    abs => Abs, neg => Neg, sign => Sign, exp => Exp, log => Log, sqrt => Sqrt, sin => Sin, cos => Cos,
    tanh => Tanh, erf => Erf, not => Not,
}
binary! {
    add => Add, sub => Sub, mul => Mul, div => Div, and => And, or => Or, xor => Xor,
}
compare! { less => Lt, less_or_equal => Le, greater => Gt, greater_or_equal => Ge }

/// The second operand of version 6 and before is aligned at `axis` if `broadcast` says so.
fn operands(c: &mut Ctx) -> Result<(ValueId, ValueId)> {
    let (x, mut y) = (c.x(0)?, c.x(1)?);
    if let Some(axis) = c.int_opt("axis").filter(|_| c.version < 7) {
        let axis = c.axis_of(axis, c.rank(x))?;
        let missing = c.rank(x).saturating_sub(axis + c.rank(y));
        let axes: Vec<usize> = (c.rank(y)..c.rank(y) + missing).collect();
        y = c.unsqueeze(y, &axes)?;
    }
    Ok((x, y))
}

/// Strings are equal as they are; nothing else is asked of them.
pub(super) fn equal(c: &mut Ctx) -> Result<ValueId> {
    if let Some(crate::import::Value::Text(x)) = c.value_opt(0) {
        let (x, y) = (x.clone(), c.text(1)?);
        let (shape, pairs) = super::text::broadcast(&x.shape, &y.shape)?;
        let same: Vec<i128> = pairs.iter().map(|&(a, b)| (x.strings[a] == y.strings[b]).into()).collect();
        return Ok(c.b.constant(pando_base::Tensor::from_ints(DType::Bool, shape, &same)));
    }
    let (x, y) = operands(c)?;
    c.cmp(CompareFn::Eq, x, y)
}

pub(super) fn floor(c: &mut Ctx) -> Result<ValueId> {
    rounding(c, UnaryFn::Floor)
}

pub(super) fn ceil(c: &mut Ctx) -> Result<ValueId> {
    rounding(c, UnaryFn::Ceil)
}

pub(super) fn round(c: &mut Ctx) -> Result<ValueId> {
    rounding(c, UnaryFn::Round)
}

/// Integers are whole already.
fn rounding(c: &mut Ctx, func: UnaryFn) -> Result<ValueId> {
    let x = c.x(0)?;
    if c.dtype(x).is_float() { c.un(func, x) } else { Ok(x) }
}

pub(super) fn identity(c: &mut Ctx) -> Result<Vec<crate::import::Value>> {
    Ok(vec![c.value(0)?.clone()])
}

pub(super) fn reciprocal(c: &mut Ctx) -> Result<ValueId> {
    let x = c.x(0)?;
    c.n_over(1.0, x)
}

pub(super) fn bit_shift(c: &mut Ctx) -> Result<ValueId> {
    let func = if c.string("direction", "LEFT") == "LEFT" { BinaryFn::Shl } else { BinaryFn::Shr };
    let (x, y) = operands(c)?;
    c.bin(func, x, y)
}

/// The result has the base's type; the exponent may have another.
pub(super) fn pow(c: &mut Ctx) -> Result<ValueId> {
    let (x, y) = operands(c)?;
    let (base, exponent) = (c.dtype(x), c.dtype(y));
    if base == exponent {
        return c.bin(BinaryFn::Pow, x, y);
    }
    if base.is_float() || exponent.is_int() {
        let y = c.b.convert(y, base)?;
        return c.bin(BinaryFn::Pow, x, y);
    }
    let x = c.b.convert(x, exponent)?;
    let power = c.bin(BinaryFn::Pow, x, y)?;
    c.b.convert(power, base)
}

/// The sign of the divisor, or with `fmod` of the dividend.
pub(super) fn modulo(c: &mut Ctx) -> Result<ValueId> {
    let (x, y) = (c.x(0)?, c.x(1)?);
    let (x, y) = c.broadcast_pair(x, y)?;
    let rem = c.b.rem(x, y)?;
    if c.flag("fmod", false) || c.dtype(x).is_unsigned_int() {
        return Ok(rem);
    }
    let moved = c.b.add(rem, y)?;
    let negative = c.cmp_n(CompareFn::Lt, rem, 0.0)?;
    let divisor_negative = c.cmp_n(CompareFn::Lt, y, 0.0)?;
    let differ = c.b.binary(BinaryFn::Xor, negative, divisor_negative)?;
    let some = c.cmp_n(CompareFn::Ne, rem, 0.0)?;
    let wrong = c.b.and(differ, some)?;
    c.b.select(wrong, moved, rem)
}

pub(super) fn where_op(c: &mut Ctx) -> Result<ValueId> {
    let (condition, x, y) = (c.x(0)?, c.x(1)?, c.x(2)?);
    c.choose(condition, x, y)
}

/// Limits are attributes before version 11, inputs afterwards; a limit left out does not limit.
pub(super) fn clip(c: &mut Ctx) -> Result<ValueId> {
    let mut x = c.x(0)?;
    if c.version < 11 {
        if let Some(low) = c.float_opt("min") {
            x = c.max_n(x, low)?;
        }
        if let Some(high) = c.float_opt("max") {
            x = c.min_n(x, high)?;
        }
        return Ok(x);
    }
    if let Some(low) = c.opt(1)? {
        x = c.bin(BinaryFn::Max, x, low)?;
    }
    if let Some(high) = c.opt(2)? {
        x = c.bin(BinaryFn::Min, x, high)?;
    }
    Ok(x)
}

fn fold(c: &mut Ctx, func: BinaryFn) -> Result<ValueId> {
    let all = c.all()?;
    let (&first, rest) = all.split_first().ok_or_else(|| errors::missing_input(0))?;
    rest.iter().try_fold(first, |sum, &x| c.bin(func, sum, x))
}

pub(super) fn sum(c: &mut Ctx) -> Result<ValueId> {
    fold(c, BinaryFn::Add)
}

pub(super) fn max(c: &mut Ctx) -> Result<ValueId> {
    fold(c, BinaryFn::Max)
}

pub(super) fn min(c: &mut Ctx) -> Result<ValueId> {
    fold(c, BinaryFn::Min)
}

pub(super) fn mean(c: &mut Ctx) -> Result<ValueId> {
    let sum = sum(c)?;
    let count = c.inputs.len() as f64;
    c.over_n(sum, count)
}

pub(super) fn is_nan(c: &mut Ctx) -> Result<ValueId> {
    let x = c.x(0)?;
    c.b.compare(CompareFn::Ne, x, x)
}

pub(super) fn is_inf(c: &mut Ctx) -> Result<ValueId> {
    let x = c.x(0)?;
    let (up, down) = (c.flag("detect_positive", true), c.flag("detect_negative", true));
    let at = |c: &mut Ctx, value: f64| c.cmp_n(CompareFn::Eq, x, value);
    match (up, down) {
        (true, true) => {
            let (above, below) = (at(c, f64::INFINITY)?, at(c, f64::NEG_INFINITY)?);
            c.b.or(above, below)
        }
        (true, false) => at(c, f64::INFINITY),
        (false, true) => at(c, f64::NEG_INFINITY),
        (false, false) => c.b.compare(CompareFn::Lt, x, x),
    }
}

pub(super) fn tan(c: &mut Ctx) -> Result<ValueId> {
    let x = c.x(0)?;
    let (sin, cos) = (c.b.sin(x)?, c.b.cos(x)?);
    c.b.div(sin, cos)
}

/// √(1 - x²)
fn leg(c: &mut Ctx, x: ValueId) -> Result<ValueId> {
    let square = c.b.mul(x, x)?;
    let rest = c.n_minus(1.0, square)?;
    c.b.sqrt(rest)
}

pub(super) fn asin(c: &mut Ctx) -> Result<ValueId> {
    let x = c.x(0)?;
    let leg = leg(c, x)?;
    c.b.binary(BinaryFn::Atan2, x, leg)
}

pub(super) fn acos(c: &mut Ctx) -> Result<ValueId> {
    let x = c.x(0)?;
    let leg = leg(c, x)?;
    c.b.binary(BinaryFn::Atan2, leg, x)
}

pub(super) fn atan(c: &mut Ctx) -> Result<ValueId> {
    let x = c.x(0)?;
    c.b.binary_scalar(BinaryFn::Atan2, x, 1.0)
}

/// (expm1(x) - expm1(-x)) / 2: exact near zero too.
pub(super) fn sinh(c: &mut Ctx) -> Result<ValueId> {
    let x = c.x(0)?;
    let negative = c.b.neg(x)?;
    let (up, down) = (c.un(UnaryFn::Expm1, x)?, c.un(UnaryFn::Expm1, negative)?);
    let difference = c.b.sub(up, down)?;
    c.times_n(difference, 0.5)
}

pub(super) fn cosh(c: &mut Ctx) -> Result<ValueId> {
    let x = c.x(0)?;
    let negative = c.b.neg(x)?;
    let (up, down) = (c.b.exp(x)?, c.b.exp(negative)?);
    let sum = c.b.add(up, down)?;
    c.times_n(sum, 0.5)
}

/// sign(x) · log1p(|x| + x² / (1 + √(x² + 1)))
pub(super) fn asinh(c: &mut Ctx) -> Result<ValueId> {
    let x = c.x(0)?;
    let (magnitude, sign) = (c.b.abs(x)?, c.un(UnaryFn::Sign, x)?);
    let square = c.b.mul(x, x)?;
    let raised = c.plus_n(square, 1.0)?;
    let root = c.b.sqrt(raised)?;
    let below = c.plus_n(root, 1.0)?;
    let ratio = c.b.div(square, below)?;
    let sum = c.b.add(magnitude, ratio)?;
    let log = c.un(UnaryFn::Log1p, sum)?;
    c.b.mul(sign, log)
}

pub(super) fn acosh(c: &mut Ctx) -> Result<ValueId> {
    let x = c.x(0)?;
    let square = c.b.mul(x, x)?;
    let lowered = c.plus_n(square, -1.0)?;
    let root = c.b.sqrt(lowered)?;
    let sum = c.b.add(x, root)?;
    c.b.log(sum)
}

/// (log1p(x) - log1p(-x)) / 2
pub(super) fn atanh(c: &mut Ctx) -> Result<ValueId> {
    let x = c.x(0)?;
    let negative = c.b.neg(x)?;
    let (up, down) = (c.un(UnaryFn::Log1p, x)?, c.un(UnaryFn::Log1p, negative)?);
    let difference = c.b.sub(up, down)?;
    c.times_n(difference, 0.5)
}
