//! Operators that make values: constants, ranges, one-hot rows.

use crate::ctx::Ctx;
use crate::errors;
use crate::import::{Data, Size, Text, Value, data_value};
use crate::proto::TensorProto;
use crate::tensors;
use pando_base::{CompareFn, DType, Result, Tensor};
use pando_graph::{Dim, Dims, TensorType, ValueId, known_dims};

pub(super) fn constant(c: &mut Ctx) -> Result<Vec<Value>> {
    let attribute = c.node.attribute.first().ok_or_else(|| errors::missing_attribute("value"))?;
    let folder = c.scope.env.folder.clone();
    let strings = |all: &[bytes::Bytes], shape: Vec<u64>| {
        let strings = all.iter().map(|s| String::from_utf8_lossy(s).into_owned()).collect();
        Value::Text(std::rc::Rc::new(Text { shape: shape.into(), strings }))
    };
    let value = match attribute.name.as_str() {
        "value" => {
            let tensor = attribute.t.as_deref().ok_or_else(|| errors::missing_attribute("value"))?;
            return tensor_value(c, tensor).map(|value| vec![value]);
        }
        "sparse_value" => {
            let sparse =
                attribute.sparse_tensor.as_deref().ok_or_else(|| errors::missing_attribute("value"))?;
            let (tensor, elem) = tensors::read_sparse(sparse, folder.as_deref())?;
            data_value(c.b, "", Data::Numbers(tensor, elem))
        }
        "value_float" => f32s(c, &[], &[attribute.f]),
        "value_floats" => f32s(c, &[attribute.floats.len() as u64], &attribute.floats),
        "value_int" => i64s(c, &[], &[attribute.i]),
        "value_ints" => i64s(c, &[attribute.ints.len() as u64], &attribute.ints),
        "value_string" => strings(std::slice::from_ref(&attribute.s), vec![]),
        "value_strings" => strings(&attribute.strings, vec![attribute.strings.len() as u64]),
        other => return Err(errors::wrong_attribute(other, "is no kind of constant")),
    };
    Ok(vec![value])
}

fn f32s(c: &mut Ctx, shape: &[u64], values: &[f32]) -> Value {
    let values: Vec<f64> = values.iter().map(|&value| value.into()).collect();
    let id = c.floats_const(DType::F32, shape, &values);
    Value::tensor(c.b, id)
}

fn i64s(c: &mut Ctx, shape: &[u64], values: &[i64]) -> Value {
    let id = c.ints_const(DType::I64, shape, values);
    Value::tensor(c.b, id)
}

fn tensor_value(c: &mut Ctx, tensor: &TensorProto) -> Result<Value> {
    let folder = c.scope.env.folder.clone();
    let data = tensors::read(tensor, folder.as_deref())?;
    Ok(data_value(c.b, c.node.output.first().map_or("", String::as_str), data))
}

pub(super) fn constant_of_shape(c: &mut Ctx) -> Result<Vec<Value>> {
    let sizes = c.sizes(0)?;
    let dims: Option<Dims> = sizes.iter().map(Size::dim).collect();
    let dims = dims.ok_or_else(|| errors::invalid("a size is negative"))?;
    let (filler, elem) = match c.attr("value").and_then(|attribute| attribute.t.as_deref()) {
        Some(tensor) => match tensor_value(c, tensor)? {
            Value::Tensor(tensor) => (tensor.id, tensor.elem),
            other => return Err(errors::wrong_attribute("value", other.kind())),
        },
        None => (c.floats_const(DType::F32, &[], &[0.0]), crate::elem::Elem::FLOAT),
    };
    let filler = c.b.reshape(filler, Dims::new())?;
    let id = c.b.broadcast(filler, dims, &[])?;
    // A vector of ones or zeros may be compared with sizes later.
    Ok(vec![Value::typed(id, elem)])
}

/// `start, start + delta, …` below `limit`; the number of elements must be known.
pub(super) fn range(c: &mut Ctx) -> Result<ValueId> {
    let dtype = c.dtype(c.x(0)?);
    if let Some(named) = named_range(c)? {
        return Ok(named);
    }
    let (start, limit, delta) = (c.known_float(0)?, c.known_float(1)?, c.known_float(2)?);
    let count = ((limit - start) / delta).ceil();
    if !count.is_finite() || count > (1u64 << 40) as f64 {
        return Err(errors::invalid(format!(
            "a range from {start} to {limit} by {delta} has no sensible size"
        )));
    }
    let ty = TensorType { dtype, dims: known_dims(&[count.max(0.0) as u64]) };
    let counts = c.b.iota(ty, 0)?;
    let (start, delta) = (c.x(0)?, c.x(2)?);
    let steps = c.times(counts, delta)?;
    c.plus(steps, start)
}

/// From 0 to a named size, or between sizes whose difference has a name.
fn named_range(c: &mut Ctx) -> Result<Option<ValueId>> {
    let (Ok(start), Ok(limit), Ok(delta)) = (c.sizes(0), c.sizes(1), c.sizes(2)) else { return Ok(None) };
    let (Some(Size::Int(start)), Some(Size::Named(limit)), Some(Size::Int(1))) =
        (start.first(), limit.first(), delta.first())
    else {
        return Ok(None);
    };
    let Some(count) = pando_graph::dims::offset(limit, -i128::from(*start)) else { return Ok(None) };
    let counts = c.b.iota(TensorType { dtype: DType::I64, dims: Dims::from_iter([count]) }, 0)?;
    c.plus_n(counts, *start as f64).map(Some)
}

pub(super) fn eye_like(c: &mut Ctx) -> Result<Vec<Value>> {
    let x = c.tensor(0)?.clone();
    let elem = c.int_opt("dtype").map_or(x.elem, |code| crate::elem::Elem(code as i32));
    let dtype = elem.dtype().ok_or_else(|| errors::unsupported_elem(elem))?;
    let ty = TensorType { dtype: DType::I64, dims: c.dims(x.id) };
    let (rows, columns) = (c.b.iota(ty.clone(), 0)?, c.b.iota(ty, 1)?);
    let diagonal = c.plus_n(rows, c.int("k", 0) as f64)?;
    let hit = c.b.compare(CompareFn::Eq, diagonal, columns)?;
    Ok(vec![Value::typed(c.b.convert(hit, dtype)?, elem)])
}

pub(super) fn one_hot(c: &mut Ctx) -> Result<ValueId> {
    let (indices, values) = (c.x(0)?, c.x(2)?);
    let depth = c.known_float(1)?;
    let indices = c.b.convert(indices, DType::I64)?;
    let rank = c.rank(indices);
    let axis = c.axis_of(c.int("axis", -1), rank + 1)?;
    let mut dims = c.dims(indices);
    dims.insert(axis, Dim::Known(depth.max(0.0) as u64));
    let counts = c.b.iota(TensorType { dtype: DType::I64, dims: dims.clone() }, axis)?;
    let negative = c.cmp_n(CompareFn::Lt, indices, 0.0)?;
    let wrapped = c.plus_n(indices, depth)?;
    let indices = c.b.select(negative, wrapped, indices)?;
    let kept: Vec<usize> = (0..=rank).filter(|&other| other != axis).collect();
    let indices = c.b.broadcast(indices, dims, &kept)?;
    let hit = c.b.compare(CompareFn::Eq, counts, indices)?;
    let (off, on) = (c.pick(values, 0, 0)?, c.pick(values, 0, 1)?);
    c.choose(hit, on, off)
}

/// Random numbers that a model cannot ask to be certain ones: seeded, so that runs repeat.
fn random_of(c: &mut Ctx, ty: TensorType, normal: bool) -> Result<ValueId> {
    let name = c.node.output.first().cloned().unwrap_or_default();
    let hash = name.bytes().fold(c.float("seed", 0.0).to_bits(), |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    let seed = [i64::from(hash as u32), i64::from((hash >> 32) as u32)];
    let seed = c.ints_const(DType::U32, &[2], &seed);
    let distribution =
        if normal { pando_graph::Distribution::Normal } else { pando_graph::Distribution::Uniform };
    let op = pando_graph::Op::Random { distribution, dtype: ty.dtype, dims: ty.dims };
    let drawn = c.b.op(op, &[seed])?;
    let (scale, offset) = match normal {
        true => (c.float("scale", 1.0), c.float("mean", 0.0)),
        false => (c.float("high", 1.0) - c.float("low", 0.0), c.float("low", 0.0)),
    };
    let scaled = c.times_n(drawn, scale)?;
    c.plus_n(scaled, offset)
}

fn random_type(c: &Ctx, like: bool) -> Result<TensorType> {
    let stated = c.int_opt("dtype").map(|code| crate::elem::Elem(code as i32));
    let dims = match like {
        true => c.dims(c.x(0)?),
        false => {
            let shape = c.ints("shape").ok_or_else(|| errors::missing_attribute("shape"))?;
            known_dims(&tensors::shape_of("shape", &shape)?)
        }
    };
    let elem = match (stated, like) {
        (Some(elem), _) => elem,
        (None, true) => c.elem(0)?,
        (None, false) => crate::elem::Elem::FLOAT,
    };
    let dtype =
        elem.dtype().filter(|dtype| dtype.is_float()).ok_or_else(|| errors::unsupported_elem(elem))?;
    Ok(TensorType { dtype, dims })
}

pub(super) fn random_uniform(c: &mut Ctx) -> Result<ValueId> {
    let ty = random_type(c, false)?;
    random_of(c, ty, false)
}

pub(super) fn random_normal(c: &mut Ctx) -> Result<ValueId> {
    let ty = random_type(c, false)?;
    random_of(c, ty, true)
}

pub(super) fn random_uniform_like(c: &mut Ctx) -> Result<ValueId> {
    let ty = random_type(c, true)?;
    random_of(c, ty, false)
}

pub(super) fn random_normal_like(c: &mut Ctx) -> Result<ValueId> {
    let ty = random_type(c, true)?;
    random_of(c, ty, true)
}

/// One with the probability that the input says.
pub(super) fn bernoulli(c: &mut Ctx) -> Result<Vec<Value>> {
    let x = c.tensor(0)?.clone();
    let elem = c.int_opt("dtype").map_or(x.elem, |code| crate::elem::Elem(code as i32));
    let dtype = elem.dtype().ok_or_else(|| errors::unsupported_elem(elem))?;
    let ty = c.b.ty(x.id).clone();
    let drawn = random_of(c, ty, false)?;
    let hit = c.b.compare(CompareFn::Lt, drawn, x.id)?;
    Ok(vec![Value::typed(c.b.convert(hit, dtype)?, elem)])
}

/// A window of the signal operators: `a0 - a1 cos + a2 cos` over one period.
fn window(c: &mut Ctx, a: [f64; 3]) -> Result<Vec<Value>> {
    let size = c.known_int(0)?.clamp(0, 1 << 24) as u64;
    let elem = crate::elem::Elem(c.int("output_datatype", 1) as i32);
    let dtype = elem.dtype().ok_or_else(|| errors::unsupported_elem(elem))?;
    let period = if c.flag("periodic", true) { size as f64 } else { size as f64 - 1.0 };
    let value = |i: u64| {
        let angle = std::f64::consts::TAU * i as f64 / period;
        a[0] - a[1] * angle.cos() + a[2] * (2.0 * angle).cos()
    };
    let values: Vec<f64> = (0..size).map(value).collect();
    let id = c.b.constant(Tensor::from_f64(dtype, [size], &values));
    Ok(vec![Value::typed(id, elem)])
}

pub(super) fn hann_window(c: &mut Ctx) -> Result<Vec<Value>> {
    window(c, [0.5, 0.5, 0.0])
}

pub(super) fn hamming_window(c: &mut Ctx) -> Result<Vec<Value>> {
    window(c, [25.0 / 46.0, 21.0 / 46.0, 0.0])
}

pub(super) fn blackman_window(c: &mut Ctx) -> Result<Vec<Value>> {
    window(c, [0.42, 0.5, 0.08])
}
