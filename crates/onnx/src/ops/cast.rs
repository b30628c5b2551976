//! Casts, also to formats that the graph has no type for: those are rounded to with arithmetic.

use crate::ctx::Ctx;
use crate::elem::{Elem, MiniFloat};
use crate::errors;
use crate::import::{Text, Value};
use pando_base::{BinaryFn, CompareFn, DType, Result, Tensor, UnaryFn};
use pando_graph::{Builder, ValueId};
use std::rc::Rc;

pub(super) fn cast(c: &mut Ctx) -> Result<Vec<Value>> {
    let to = Elem(i32::try_from(c.int("to", 0)).unwrap_or(0));
    cast_value(c, to).map(|value| vec![value])
}

pub(super) fn cast_like(c: &mut Ctx) -> Result<Vec<Value>> {
    let to = match c.value(1)? {
        Value::Text(_) => Elem::STRING,
        _ => c.elem(1)?,
    };
    cast_value(c, to).map(|value| vec![value])
}

fn cast_value(c: &mut Ctx, to: Elem) -> Result<Value> {
    match c.value(0)?.clone() {
        Value::Text(text) => from_text(c, &text, to),
        Value::Tensor(_) if to == Elem::STRING => to_text(c),
        Value::Tensor(tensor) if tensor.elem == to => Ok(Value::Tensor(tensor)),
        Value::Tensor(tensor) => {
            let saturate = c.flag("saturate", true);
            if to == Elem::FLOAT8E8M0 {
                let mode = c.string("round_mode", "up");
                return to_e8m0(c, tensor.id, &mode).map(|id| Value::typed(id, to));
            }
            let id = convert(c.b, tensor.id, to, saturate)?;
            Ok(Value::typed(id, to))
        }
        other => Err(errors::not_a_tensor(0, other.kind())),
    }
}

/// A value in another element type, as Cast does it.
pub(super) fn convert(b: &mut Builder, x: ValueId, to: Elem, saturate: bool) -> Result<ValueId> {
    let dtype = to.dtype().ok_or_else(|| errors::unsupported_elem(to))?;
    if let Some((low, high)) = to.small_int_range() {
        return to_small_int(b, x, dtype, low, high);
    }
    if let Some(format) = to.mini_float() {
        let rounded = round_to(b, x, format, saturate)?;
        return b.convert(rounded, dtype);
    }
    if let DType::F8(..) = dtype
        && !saturate
    {
        return to_f8_unsaturated(b, x, dtype);
    }
    b.convert(x, dtype)
}

/// Truncates and keeps the low bits.
fn to_small_int(b: &mut Builder, x: ValueId, dtype: DType, low: i128, high: i128) -> Result<ValueId> {
    let wide = b.convert(x, DType::I32)?;
    let mask = b.splat_like(wide, (high - low) as f64)?;
    let bits = b.and(wide, mask)?;
    let above = b.splat_like(wide, high as f64)?;
    let negative = b.compare(CompareFn::Gt, bits, above)?;
    let wrapped = b.binary_scalar(BinaryFn::Sub, bits, (high - low + 1) as f64)?;
    let value = b.select(negative, wrapped, bits)?;
    b.convert(value, dtype)
}

fn to_f8_unsaturated(b: &mut Builder, x: ValueId, dtype: DType) -> Result<ValueId> {
    let x = b.convert(x, DType::F32)?;
    let DType::F8(format, _) = dtype else { return b.convert(x, dtype) };
    // Half a unit in the last place beyond the largest value rounds out of range.
    let bits = if format.max_value() > 1000.0 { 2 } else { 3 };
    let limit = format.max_value() + format.max_value() / f64::from((2 << (bits + 1)) - 2);
    let magnitude = b.abs(x)?;
    let edge = b.splat_like(x, limit)?;
    let inside = b.compare(CompareFn::Lt, magnitude, edge)?;
    let nan = b.splat_like(x, f64::NAN)?;
    let value = b.select(inside, x, nan)?;
    b.convert(value, dtype)
}

/// The nearest value of a small float format, in f32; ties to even.
pub(super) fn round_to(b: &mut Builder, x: ValueId, format: MiniFloat, saturate: bool) -> Result<ValueId> {
    let x = b.convert(x, DType::F32)?;
    let exponent = exponent_of(b, x)?;
    let lowest = b.splat_like(exponent, f64::from(1 - format.bias))?;
    let exponent = b.max(exponent, lowest)?;
    let unit = b.binary_scalar(BinaryFn::Sub, exponent, f64::from(format.mantissa_bits))?;
    let unit = power_of_two(b, unit)?;
    let units = b.div(x, unit)?;
    let whole = b.unary(UnaryFn::Round, units)?;
    let rounded = b.mul(whole, unit)?;
    let magnitude = b.abs(rounded)?;
    let top = b.splat_like(x, format.max)?;
    // Also true of infinity, whose exponent and unit mean nothing.
    let inside = b.compare(CompareFn::Le, magnitude, top)?;
    let beyond = if saturate || !(format.nan || format.infinity) {
        format.max
    } else if format.infinity {
        f64::INFINITY
    } else {
        f64::NAN
    };
    let sign = b.unary(UnaryFn::Sign, x)?;
    let beyond = b.splat_like(x, beyond)?;
    let beyond = b.mul(sign, beyond)?;
    let value = b.select(inside, rounded, beyond)?;
    if format.nan || format.infinity {
        return Ok(value);
    }
    // Without a NaN, one becomes the code of negative zero.
    let is_nan = b.compare(CompareFn::Ne, x, x)?;
    let zero = b.splat_like(x, -0.0)?;
    b.select(is_nan, zero, value)
}

/// floor(log2|x|) of f32 as i32; -127 for zero and subnormals.
fn exponent_of(b: &mut Builder, x: ValueId) -> Result<ValueId> {
    let bits = b.bitcast(x, DType::U32)?;
    let field = b.binary_scalar(BinaryFn::Shr, bits, 23.0)?;
    let mask = b.splat_like(field, 255.0)?;
    let field = b.and(field, mask)?;
    let field = b.convert(field, DType::I32)?;
    b.binary_scalar(BinaryFn::Sub, field, 127.0)
}

/// 2^n as f32 of i32 within the normal range.
fn power_of_two(b: &mut Builder, n: ValueId) -> Result<ValueId> {
    let field = b.binary_scalar(BinaryFn::Add, n, 127.0)?;
    let bits = b.binary_scalar(BinaryFn::Shl, field, 23.0)?;
    b.bitcast(bits, DType::F32)
}

/// Powers of two: rounded up, down, or to the nearest.
fn to_e8m0(c: &mut Ctx, x: ValueId, mode: &str) -> Result<ValueId> {
    let x = c.b.convert(x, DType::F32)?;
    let bits = c.b.bitcast(x, DType::U32)?;
    let add = match mode {
        "down" => 0.0,
        "nearest" => f64::from(1 << 22),
        _ => f64::from((1 << 23) - 1),
    };
    let raised = c.plus_n(bits, add)?;
    let mask = c.b.splat_like(raised, f64::from(0xff_u32) * f64::from(1 << 23))?;
    let field = c.b.and(raised, mask)?;
    let value = c.b.bitcast(field, DType::F32)?;
    let smallest = 2f64.powi(-127);
    let value = c.max_n(value, smallest)?;
    let value = c.min_n(value, 2f64.powi(127))?;
    c.b.convert(value, DType::BF16)
}

fn from_text(c: &mut Ctx, text: &Rc<Text>, to: Elem) -> Result<Value> {
    if to == Elem::STRING {
        return Ok(Value::Text(text.clone()));
    }
    let dtype = to.dtype().ok_or_else(|| errors::unsupported_elem(to))?;
    let parse = |string: &String| match string.trim().to_ascii_lowercase().as_str() {
        "+inf" | "inf" | "infinity" => Ok(f64::INFINITY),
        "-inf" | "-infinity" => Ok(f64::NEG_INFINITY),
        "nan" => Ok(f64::NAN),
        number => number.parse().map_err(|_| errors::invalid(format!("'{string}' is no number"))),
    };
    let values = text.strings.iter().map(parse).collect::<Result<Vec<f64>>>()?;
    let id = c.b.constant(Tensor::from_f64(dtype, text.shape.clone(), &values));
    Ok(Value::typed(id, to))
}

/// Known numbers as text, in the way C's `%g` and Python print them.
fn to_text(c: &mut Ctx) -> Result<Value> {
    let tensor = c.known_tensor(0)?;
    let strings = match tensor.dtype() {
        DType::Bool => tensor.to_ints().iter().map(|&v| if v == 0 { "0" } else { "1" }.into()).collect(),
        dtype if !dtype.is_float() => tensor.to_ints().iter().map(i128::to_string).collect(),
        _ => tensor.to_f64().into_iter().map(float_text).collect(),
    };
    Ok(Value::Text(Rc::new(Text { shape: tensor.shape().clone(), strings })))
}

fn float_text(value: f64) -> String {
    let text = (value as f32).to_string();
    match text.as_str() {
        "inf" => "INF".into(),
        "-inf" => "-INF".into(),
        _ if value.fract() == 0.0 && !text.contains('.') && value.is_finite() => format!("{text}.0"),
        _ => text,
    }
}

/// The same bits under another type of the same width.
pub(super) fn bit_cast(c: &mut Ctx) -> Result<Vec<Value>> {
    let to = Elem(i32::try_from(c.int("to", 0)).unwrap_or(0));
    let x = c.tensor(0)?.clone();
    let dtype = to.dtype().ok_or_else(|| errors::unsupported_elem(to))?;
    if x.elem == to {
        return Ok(vec![Value::Tensor(x)]);
    }
    if x.elem == Elem::DOUBLE || to == Elem::DOUBLE || x.elem.bits() != to.bits() {
        return Err(errors::invalid(format!("the bits of {} as {to}", x.elem)));
    }
    let id = match (c.dtype(x.id), dtype) {
        (DType::Bool, _) => {
            let bytes = c.b.convert(x.id, DType::U8)?;
            c.b.bitcast(bytes, dtype)?
        }
        (_, DType::Bool) => {
            let bytes = c.b.bitcast(x.id, DType::U8)?;
            c.b.convert(bytes, DType::Bool)?
        }
        _ => c.b.bitcast(x.id, dtype)?,
    };
    Ok(vec![Value::typed(id, to)])
}
