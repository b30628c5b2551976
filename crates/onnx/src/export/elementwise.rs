//! Element by element. Where ONNX lacks a function, or says nothing about a case, several operators stand for it.

use super::Site;
use super::writer::Writer;
use pando_base::{BinaryFn, CompareFn, DType, Result, UnaryFn};

pub fn unary(w: &mut Writer, site: &Site, func: UnaryFn) -> Result<String> {
    let (x, dtype) = (site.x[0].as_str(), site.dtype());
    let op = match func {
        UnaryFn::Not if dtype == DType::Bool => "Not",
        UnaryFn::Not => "BitwiseNot",
        UnaryFn::Neg if dtype.is_int() && !dtype.is_signed_int() => {
            let zero = w.number(dtype, 0.0);
            return Ok(w.node("Sub", &[&zero, x]));
        }
        UnaryFn::Neg => "Neg",
        UnaryFn::Abs => "Abs",
        UnaryFn::Sign => "Sign",
        UnaryFn::Floor => "Floor",
        UnaryFn::Ceil => "Ceil",
        UnaryFn::Round => "Round",
        UnaryFn::Exp => "Exp",
        UnaryFn::Log => "Log",
        UnaryFn::Sqrt => "Sqrt",
        UnaryFn::Sin => "Sin",
        UnaryFn::Cos => "Cos",
        UnaryFn::Tanh => "Tanh",
        UnaryFn::Erf => "Erf",
        UnaryFn::Expm1 => return Ok(in_f32(w, x, dtype, expm1)),
        UnaryFn::Log1p => return Ok(in_f32(w, x, dtype, log1p)),
    };
    // Some operators exist for fewer floats than these.
    let narrow = dtype == DType::BF16 && matches!(op, "Round" | "Sin" | "Cos");
    Ok(w.through(x, dtype, if narrow { DType::F32 } else { dtype }, |w, x| w.node(op, &[x])))
}

fn in_f32(w: &mut Writer, x: &str, dtype: DType, f: fn(&mut Writer, &str) -> String) -> String {
    w.through(x, dtype, DType::F32, f)
}

/// Near zero as `2 t / (1 - t)` with `t = tanh(x / 2)`, which cancels nothing.
fn expm1(w: &mut Writer, x: &str) -> String {
    let (one, two) = (w.number(DType::F32, 1.0), w.number(DType::F32, 2.0));
    let half = w.node("Div", &[x, &two]);
    let t = w.node("Tanh", &[&half]);
    let (above, below) = (w.node("Mul", &[&two, &t]), w.node("Sub", &[&one, &t]));
    let near = w.node("Div", &[&above, &below]);
    let exp = w.node("Exp", &[x]);
    let far = w.node("Sub", &[&exp, &one]);
    near_zero(w, x, &near, &far)
}

/// Near zero as `2 atanh(x / (2 + x))`.
fn log1p(w: &mut Writer, x: &str) -> String {
    let (one, two) = (w.number(DType::F32, 1.0), w.number(DType::F32, 2.0));
    let below = w.node("Add", &[x, &two]);
    let ratio = w.node("Div", &[x, &below]);
    let atanh = w.node("Atanh", &[&ratio]);
    let near = w.node("Mul", &[&two, &atanh]);
    let sum = w.node("Add", &[x, &one]);
    let far = w.node("Log", &[&sum]);
    near_zero(w, x, &near, &far)
}

fn near_zero(w: &mut Writer, x: &str, near: &str, far: &str) -> String {
    let (magnitude, half) = (w.node("Abs", &[x]), w.number(DType::F32, 0.5));
    let close = w.node("Less", &[&magnitude, &half]);
    w.node("Where", &[&close, near, far])
}

pub fn binary(w: &mut Writer, site: &Site, func: BinaryFn) -> Result<String> {
    let (x, y, dtype) = (site.x[0].as_str(), site.x[1].as_str(), site.dtype());
    let bool = dtype == DType::Bool;
    Ok(match func {
        BinaryFn::Add => w.node("Add", &[x, y]),
        BinaryFn::Sub => w.node("Sub", &[x, y]),
        BinaryFn::Mul => w.node("Mul", &[x, y]),
        BinaryFn::Div if dtype.is_int() => unless_zero(w, y, dtype, |w, y| w.node("Div", &[x, y])),
        BinaryFn::Div => w.node("Div", &[x, y]),
        BinaryFn::Rem if dtype.is_int() => unless_zero(w, y, dtype, |w, y| remainder(w, x, y)),
        BinaryFn::Rem => remainder(w, x, y),
        BinaryFn::Max => w.node("Max", &[x, y]),
        BinaryFn::Min => w.node("Min", &[x, y]),
        BinaryFn::Pow if dtype.is_float() || matches!(dtype, DType::I32 | DType::I64) => {
            w.node("Pow", &[x, y])
        }
        BinaryFn::Pow => {
            let (x, y) = (w.cast(x, DType::I64), w.cast(y, DType::I64));
            let power = w.node("Pow", &[&x, &y]);
            w.cast(&power, dtype)
        }
        BinaryFn::Atan2 => {
            let (x, y) = (w.cast(x, DType::F32), w.cast(y, DType::F32));
            let angle = atan2(w, &x, &y);
            w.cast(&angle, dtype)
        }
        BinaryFn::And => w.node(if bool { "And" } else { "BitwiseAnd" }, &[x, y]),
        BinaryFn::Or => w.node(if bool { "Or" } else { "BitwiseOr" }, &[x, y]),
        BinaryFn::Xor => w.node(if bool { "Xor" } else { "BitwiseXor" }, &[x, y]),
        BinaryFn::Shl | BinaryFn::Shr => return shifted(w, site, func),
    })
}

/// The sign of the result is the first operand's.
fn remainder(w: &mut Writer, x: &str, y: &str) -> String {
    w.with("Mod", &[x, y], vec![super::writer::int("fmod", 1)])
}

/// Zero where integers are divided by zero, which ONNX leaves open.
fn unless_zero(w: &mut Writer, y: &str, dtype: DType, f: impl FnOnce(&mut Writer, &str) -> String) -> String {
    let (zero, one) = (w.number(dtype, 0.0), w.number(dtype, 1.0));
    let is_zero = w.node("Equal", &[y, &zero]);
    let safe = w.node("Where", &[&is_zero, &one, y]);
    let result = f(w, &safe);
    w.node("Where", &[&is_zero, &zero, &result])
}

/// The angle of the point (x, y), where `y` comes first: atan(y / x), moved by half a turn left of the axis. Two
/// infinities give NaN.
fn atan2(w: &mut Writer, y: &str, x: &str) -> String {
    use std::f64::consts::{FRAC_PI_2, PI};
    let [zero, up, down, half, back] =
        [0.0, FRAC_PI_2, -FRAC_PI_2, PI, -PI].map(|value| w.number(DType::F32, value));
    let (left, below) = (is_negative(w, x), is_negative(w, y));
    let turn = w.node("Where", &[&below, &back, &half]);
    let turn = w.node("Where", &[&left, &turn, &zero]);
    let ratio = w.node("Div", &[y, x]);
    let angle = w.node("Atan", &[&ratio]);
    let turned = w.node("Add", &[&angle, &turn]);
    // Where x is zero, y alone says where the point lies, or if it is zero too, the sign of x.
    let centre = w.node("Where", &[&left, &turn, y]);
    let vertical = w.node("Where", &[&below, &down, &up]);
    let still = w.node("Equal", &[y, &zero]);
    let vertical = w.node("Where", &[&still, &centre, &vertical]);
    let upright = w.node("Equal", &[x, &zero]);
    w.node("Where", &[&upright, &vertical, &turned])
}

/// Whether the sign is minus, also that of a zero.
fn is_negative(w: &mut Writer, x: &str) -> String {
    let zero = w.number(DType::F32, 0.0);
    let (plain, inverse) = (w.node("Less", &[x, &zero]), w.node("Reciprocal", &[x]));
    let sign = w.node("Less", &[&inverse, &zero]);
    let is_zero = w.node("Equal", &[x, &zero]);
    w.node("Where", &[&is_zero, &sign, &plain])
}

fn unsigned(dtype: DType) -> DType {
    match dtype {
        DType::I8 => DType::U8,
        DType::I16 => DType::U16,
        DType::I32 => DType::U32,
        DType::I64 => DType::U64,
        other => other,
    }
}

/// ONNX shifts unsigned integers by less than their width. Distances count as unsigned numbers.
fn shifted(w: &mut Writer, site: &Site, func: BinaryFn) -> Result<String> {
    let (x, dtype) = (site.x[0].as_str(), site.dtype());
    let plain = unsigned(dtype);
    let width = 8 * dtype.size_bytes();
    let distance = if plain == dtype { site.x[1].clone() } else { w.cast(&site.x[1], plain) };
    let limit = w.number(plain, width as f64);
    let near = w.node("Less", &[&distance, &limit]);
    let zero = w.number(plain, 0.0);
    let distance = w.node("Where", &[&near, &distance, &zero]);
    let left = func == BinaryFn::Shl;
    let shift = |w: &mut Writer, x: &str| {
        let direction = super::writer::string("direction", if left { "LEFT" } else { "RIGHT" });
        let result = w.with("BitShift", &[x, &distance], vec![direction]);
        w.node("Where", &[&near, &result, &zero])
    };
    if plain == dtype {
        return Ok(shift(w, x));
    }
    if left {
        let bits = w.cast(x, plain);
        let result = shift(w, &bits);
        return Ok(w.cast(&result, dtype));
    }
    // The complement of a negative number is not negative, and shifting commutes with it.
    let own_zero = w.number(dtype, 0.0);
    let negative = w.node("Less", &[x, &own_zero]);
    let complement = w.node("BitwiseNot", &[x]);
    let magnitude = w.node("Where", &[&negative, &complement, x]);
    let bits = w.cast(&magnitude, plain);
    let result = shift(w, &bits);
    let result = w.cast(&result, dtype);
    let back = w.node("BitwiseNot", &[&result]);
    Ok(w.node("Where", &[&negative, &back, &result]))
}

pub fn compare(w: &mut Writer, site: &Site, func: CompareFn) -> Result<String> {
    let mut x = [site.x[0].clone(), site.x[1].clone()];
    if site.dtype() == DType::Bool && !matches!(func, CompareFn::Eq | CompareFn::Ne) {
        x = x.map(|x| w.cast(&x, DType::U8));
    }
    let op = match func {
        CompareFn::Eq | CompareFn::Ne => "Equal",
        CompareFn::Lt => "Less",
        CompareFn::Le => "LessOrEqual",
        CompareFn::Gt => "Greater",
        CompareFn::Ge => "GreaterOrEqual",
    };
    let result = w.node(op, &[&x[0], &x[1]]);
    Ok(if func == CompareFn::Ne { w.node("Not", &[&result]) } else { result })
}

/// Floats beyond a narrow integer's range are cut to it, which ONNX leaves open; of wide integers it stays open.
pub fn convert(w: &mut Writer, site: &Site, dtype: DType) -> Result<String> {
    let (x, own) = (site.x[0].as_str(), site.dtype());
    let range =
        dtype.int_range().filter(|_| own.is_float() && dtype != DType::Bool && dtype.size_bytes() < 4);
    let Some((low, high)) = range else { return Ok(w.cast(x, dtype)) };
    let (low, high) = (w.number(own, low as f64), w.number(own, high as f64));
    let inside = w.node("Clip", &[x, &low, &high]);
    Ok(w.cast(&inside, dtype))
}

pub fn bitcast(w: &mut Writer, site: &Site, dtype: DType) -> Result<String> {
    const BIT_CAST_OPSET: i64 = 26;
    w.opset = w.opset.max(BIT_CAST_OPSET);
    let to = super::writer::int("to", crate::elem::Elem::of(dtype).0.into());
    Ok(w.with("BitCast", &[&site.x[0]], vec![to]))
}
