//! LabelEncoder: a table from numbers or strings to numbers or strings.

use crate::ctx::Ctx;
use crate::elem::Elem;
use crate::errors;
use crate::import::{Data, Text, Value};
use crate::tensors;
use pando_base::{CompareFn, DType, ReduceFn, Result, Tensor};
use pando_graph::{TensorType, ValueId};
use std::rc::Rc;

/// One side of the table, or the value for what is not in it.
enum Column {
    Numbers(Tensor, Elem),
    Strings(Vec<String>),
}

/// More comparisons than this are refused.
const MAX_KEYS: u64 = 1 << 20;

fn vector(dtype: DType, values: &[f64]) -> Tensor {
    Tensor::from_f64(dtype, [values.len() as u64], values)
}

fn whole(values: &[i64]) -> Tensor {
    let values: Vec<i128> = values.iter().map(|&value| value.into()).collect();
    Tensor::from_ints(DType::I64, [values.len() as u64], &values)
}

/// The attributes `keys_*`, `values_*`.
fn column(c: &Ctx, prefix: &str) -> Result<Column> {
    let name = |suffix: &str| format!("{prefix}_{suffix}");
    if let Some(strings) = c.strings(&name("strings")) {
        return Ok(Column::Strings(strings));
    }
    if let Some(ints) = c.ints(&name("int64s")) {
        return Ok(Column::Numbers(whole(&ints), Elem::INT64));
    }
    if let Some(floats) = c.floats(&name("floats")) {
        return Ok(Column::Numbers(vector(DType::F32, &floats), Elem::FLOAT));
    }
    tensor(c, &name("tensor"))?.ok_or_else(|| errors::missing_attribute(&name("tensor")))
}

fn tensor(c: &Ctx, name: &str) -> Result<Option<Column>> {
    let Some(proto) = c.attr(name).and_then(|attribute| attribute.t.as_deref()) else { return Ok(None) };
    Ok(Some(match tensors::read(proto, None)? {
        Data::Numbers(tensor, elem) => Column::Numbers(tensor, elem),
        Data::Text(text) => Column::Strings(text.strings),
    }))
}

/// What stands for keys that are not in the table.
fn default_number(c: &Ctx, elem: Elem) -> Result<f64> {
    if let Some(Column::Numbers(tensor, _)) = tensor(c, "default_tensor")? {
        return tensor.to_f64().first().copied().ok_or_else(|| errors::missing_attribute("default_tensor"));
    }
    match elem {
        Elem::FLOAT | Elem::DOUBLE => Ok(c.float("default_float", -0.0)),
        _ => Ok(c.int("default_int64", -1) as f64),
    }
}

pub(super) fn label_encoder(c: &mut Ctx) -> Result<Vec<Value>> {
    let (keys, values) = (column(c, "keys")?, column(c, "values")?);
    let count = |column: &Column| match column {
        Column::Numbers(tensor, _) => tensor.num_elements(),
        Column::Strings(strings) => strings.len() as u64,
    };
    if count(&keys) != count(&values) || count(&keys) > MAX_KEYS {
        return Err(errors::invalid("the table's keys and values differ in number, or are too many"));
    }
    match (keys, values) {
        (Column::Strings(keys), values) => from_strings(c, &keys, values),
        (Column::Numbers(keys, _), Column::Numbers(values, elem)) => {
            let places = places(c, &keys)?;
            let default = default_number(c, elem)?;
            let table: Vec<f64> = values.to_f64().into_iter().chain([default]).collect();
            let table = c.b.constant(vector(values.dtype(), &table));
            Ok(vec![Value::typed(c.b.gather(table, places, 0)?, elem)])
        }
        (Column::Numbers(keys, _), Column::Strings(mut values)) => {
            let places = places(c, &keys)?;
            let known = c.decided(places)?.ok_or_else(|| errors::needs_value(0))?;
            values.push(c.string("default_string", "_Unused"));
            let strings = known.to_ints().into_iter().map(|at| values[at as usize].clone()).collect();
            Ok(vec![Value::Text(Rc::new(Text { shape: known.shape().clone(), strings }))])
        }
    }
}

/// The place of each element among the keys, the first of equal ones; their number where it is none of them.
fn places(c: &mut Ctx, keys: &Tensor) -> Result<ValueId> {
    let x = c.x(0)?;
    let (rank, count) = (c.rank(x), keys.num_elements());
    let mut dims = c.dims(x);
    dims.push(count.into());
    let kept: Vec<usize> = (0..rank).collect();
    let wide = c.b.broadcast(x, dims.clone(), &kept)?;
    let keys = Tensor::from_f64(c.dtype(x), [count], &keys.to_f64());
    let keys = c.b.constant(keys);
    let keys = c.b.broadcast(keys, dims.clone(), &[rank])?;
    let equal = c.b.compare(CompareFn::Eq, wide, keys)?;
    // NaN is a key too.
    let (x_nan, key_nan) = (c.b.compare(CompareFn::Ne, wide, wide)?, c.b.compare(CompareFn::Ne, keys, keys)?);
    let both = c.b.and(x_nan, key_nan)?;
    let equal = c.b.or(equal, both)?;
    let counts = c.b.iota(TensorType { dtype: DType::I64, dims }, rank)?;
    let none = c.b.splat_like(counts, count as f64)?;
    let found = c.b.select(equal, counts, none)?;
    let first = c.b.reduce(ReduceFn::Min, found, &[rank])?;
    // Without keys the smallest of nothing is no place.
    c.min_n(first, count as f64)
}

fn from_strings(c: &mut Ctx, keys: &[String], values: Column) -> Result<Vec<Value>> {
    let x = c.text(0)?;
    let places: Vec<Option<usize>> =
        x.strings.iter().map(|string| keys.iter().position(|key| key == string)).collect();
    match values {
        Column::Strings(values) => {
            let default = c.string("default_string", "_Unused");
            let strings = places.iter().map(|at| at.map_or(default.clone(), |at| values[at].clone()));
            let text = Text { shape: x.shape.clone(), strings: strings.collect() };
            Ok(vec![Value::Text(Rc::new(text))])
        }
        Column::Numbers(values, elem) => {
            let (default, numbers) = (default_number(c, elem)?, values.to_f64());
            let found: Vec<f64> = places.iter().map(|at| at.map_or(default, |at| numbers[at])).collect();
            let id = c.b.constant(Tensor::from_f64(values.dtype(), x.shape.clone(), &found));
            Ok(vec![Value::typed(id, elem)])
        }
    }
}
