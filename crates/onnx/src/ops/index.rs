//! Operators that address elements by indices. ONNX's negative indices count from the end.

use crate::ctx::Ctx;
use crate::errors;
use crate::import::{Size, Value, product, sizes_value};
use pando_base::{CompareFn, DType, ReduceFn, Result, Tensor};
use pando_graph::{Dim, Dims, TensorType, ValueId};
use std::collections::BTreeMap;

/// Indices in which negative ones have been wrapped; as they are if known to have none.
fn wrapped(c: &mut Ctx, indices: ValueId, size: &Dim) -> Result<ValueId> {
    let known = c.b.known(indices);
    if !c.dtype(indices).is_signed_int() || known.is_some_and(|known| known.to_ints().iter().all(|&i| i >= 0))
    {
        return Ok(indices);
    }
    let indices = c.b.convert(indices, DType::I64)?;
    let negative = c.cmp_n(CompareFn::Lt, indices, 0.0)?;
    let size = sizes_value(c.b, &[Size::of(size)], true)?;
    let from_end = c.plus(indices, size)?;
    c.b.select(negative, from_end, indices)
}

pub(super) fn gather(c: &mut Ctx) -> Result<ValueId> {
    let (data, indices) = (c.x(0)?, c.x(1)?);
    let axis = c.axis_of(c.int("axis", 0), c.rank(data))?;
    let size = c.dims(data)[axis].clone();
    let indices = wrapped(c, indices, &size)?;
    c.b.gather(data, indices, axis)
}

/// Row-major position in a value of dimensions `dims`, summed from index parts that broadcast.
fn linear(c: &mut Ctx, parts: &[(ValueId, usize)], dims: &[Dim], like: &Dims) -> Result<ValueId> {
    let ty = TensorType { dtype: DType::I64, dims: like.clone() };
    let mut position = c.b.splat(&ty, 0.0)?;
    for &(part, axis) in parts {
        let strides: Vec<Size> = dims[axis + 1..].iter().map(Size::of).collect();
        let mut scaled = c.b.convert(part, DType::I64)?;
        for stride in strides {
            let stride = sizes_value(c.b, &[stride], true)?;
            scaled = c.times(scaled, stride)?;
        }
        position = c.b.add(position, scaled)?;
    }
    Ok(position)
}

/// `result[i, j, k] = x[at[i, j, k], j, k]` for the axis 0, likewise for others.
pub(super) fn gather_elements_at(c: &mut Ctx, x: ValueId, at: ValueId, axis: usize) -> Result<ValueId> {
    let (own, like) = (c.dims(x), c.dims(at));
    let position = elementwise_positions(c, at, axis, &own)?;
    let flat = c.b.reshape(x, [product(&own)])?;
    debug_assert_eq!(c.dims(position), like);
    c.b.gather(flat, position, 0)
}

fn elementwise_positions(c: &mut Ctx, at: ValueId, axis: usize, own: &Dims) -> Result<ValueId> {
    let like = c.dims(at);
    if like.len() != own.len() {
        return Err(errors::invalid("indices and data differ in rank"));
    }
    let mut parts = Vec::new();
    for other in 0..own.len() {
        let part = match other == axis {
            true => at,
            false => c.b.iota(TensorType { dtype: DType::I64, dims: like.clone() }, other)?,
        };
        parts.push((part, other));
    }
    linear(c, &parts, own, &like)
}

pub(super) fn gather_elements(c: &mut Ctx) -> Result<ValueId> {
    let (data, indices) = (c.x(0)?, c.x(1)?);
    let axis = c.axis_of(c.int("axis", 0), c.rank(data))?;
    let size = c.dims(data)[axis].clone();
    let indices = wrapped(c, indices, &size)?;
    gather_elements_at(c, data, indices, axis)
}

/// Combination of what a scatter writes with what is there.
fn combination(c: &Ctx) -> Result<Option<ReduceFn>> {
    Ok(match c.string("reduction", "none").as_str() {
        "none" => None,
        "add" => Some(ReduceFn::Sum),
        "mul" => Some(ReduceFn::Prod),
        "max" => Some(ReduceFn::Max),
        "min" => Some(ReduceFn::Min),
        other => return Err(errors::wrong_attribute("reduction", format!("'{other}' is not known"))),
    })
}

pub(super) fn scatter_elements(c: &mut Ctx) -> Result<ValueId> {
    let (data, indices, updates) = (c.x(0)?, c.x(1)?, c.x(2)?);
    let axis = c.axis_of(c.int("axis", 0), c.rank(data))?;
    let own = c.dims(data);
    let indices = wrapped(c, indices, &own[axis])?;
    let positions = elementwise_positions(c, indices, axis, &own)?;
    let combine = combination(c)?;
    scatter_flat(c, data, positions, updates, combine)
}

/// Updates at row-major positions.
fn scatter_flat(
    c: &mut Ctx,
    data: ValueId,
    positions: ValueId,
    updates: ValueId,
    combine: Option<ReduceFn>,
) -> Result<ValueId> {
    let own = c.dims(data);
    let count = product(&c.dims(positions));
    let flat = c.b.reshape(data, [product(&own)])?;
    let positions = c.b.reshape(positions, [count.clone()])?;
    let updates = c.b.reshape(updates, [count])?;
    let result = c.b.scatter(flat, positions, updates, 0, combine)?;
    c.b.reshape(result, own)
}

/// The last axis of `indices` addresses the axes of `data` after `batch`: row positions in the data with
/// those axes merged. Returns the data as [batch…, rows, rest…], and the positions.
fn nd_positions(c: &mut Ctx, indices: ValueId, own: &[Dim], batch: usize) -> Result<(ValueId, usize)> {
    let rank = c.rank(indices);
    let depth =
        c.size(indices, rank.checked_sub(1).ok_or_else(|| errors::invalid("indices are a scalar"))?)?;
    if batch > own.len() || batch > rank - 1 {
        return Err(errors::wrong_attribute("batch_dims", "larger than the ranks"));
    }
    let depth = usize::try_from(depth).unwrap_or(usize::MAX);
    if depth > own.len().saturating_sub(batch) {
        return Err(errors::invalid(format!("indices address {depth} axes, the data has fewer")));
    }
    let mut like = c.dims(indices);
    like.truncate(rank - 1);
    let mut parts = Vec::new();
    for axis in 0..batch {
        parts.push((c.b.iota(TensorType { dtype: DType::I64, dims: like.clone() }, axis)?, axis));
    }
    for part in 0..depth {
        let index = c.pick(indices, rank - 1, part as u64)?;
        let index = wrapped(c, index, &own[batch + part])?;
        parts.push((index, batch + part));
    }
    let position = linear(c, &parts, &own[..batch + depth], &like)?;
    Ok((position, batch + depth))
}

pub(super) fn gather_nd(c: &mut Ctx) -> Result<ValueId> {
    let (data, indices) = (c.x(0)?, c.x(1)?);
    let batch = usize::try_from(c.int("batch_dims", 0)).unwrap_or(0);
    let own = c.dims(data);
    let (positions, merged) = nd_positions(c, indices, &own, batch)?;
    let rows = c.flatten(data, 0, merged)?;
    c.b.gather(rows, positions, 0)
}

pub(super) fn scatter_nd(c: &mut Ctx) -> Result<ValueId> {
    let (data, indices, updates) = (c.x(0)?, c.x(1)?, c.x(2)?);
    let own = c.dims(data);
    let (positions, merged) = nd_positions(c, indices, &own, 0)?;
    let rows = c.flatten(data, 0, merged)?;
    let count = product(&c.dims(positions));
    let positions = c.b.reshape(positions, [count.clone()])?;
    let dims: Vec<Dim> = [count].into_iter().chain(own[merged..].iter().cloned()).collect();
    let updates = c.b.reshape(updates, dims)?;
    let combine = combination(c)?;
    let result = c.b.scatter(rows, positions, updates, 0, combine)?;
    c.b.reshape(result, own)
}

/// A cache whose rows from `write_indices` on are overwritten, per batch element.
pub(super) fn tensor_scatter(c: &mut Ctx) -> Result<ValueId> {
    let (cache, update) = (c.x(0)?, c.x(1)?);
    let axis = c.axis_of(c.int("axis", -2), c.rank(cache))?;
    let own = c.dims(cache);
    let like = c.dims(update);
    let ty = TensorType { dtype: DType::I64, dims: like.clone() };
    let mut at = c.b.iota(ty, axis)?;
    if let Some(starts) = c.opt(2)? {
        let starts = c.b.convert(starts, DType::I64)?;
        let starts = c.b.broadcast(starts, like, &[0])?;
        at = c.b.add(at, starts)?;
    }
    if c.string("mode", "linear") == "circular" {
        let size = sizes_value(c.b, &[Size::of(&own[axis])], true)?;
        at = c.bin(pando_base::BinaryFn::Rem, at, size)?;
    }
    let positions = elementwise_positions(c, at, axis, &own)?;
    scatter_flat(c, cache, positions, update, None)
}

/// Rows where a known condition holds.
pub(super) fn compress(c: &mut Ctx) -> Result<ValueId> {
    let mut x = c.x(0)?;
    let kept = c.known_ints(1)?;
    let axis = match c.int_opt("axis") {
        Some(axis) => c.axis_of(axis, c.rank(x))?,
        None => {
            x = c.b.reshape(x, [product(&c.dims(x))])?;
            0
        }
    };
    let rows: Vec<i64> = (0..kept.len() as i64).filter(|&row| kept[row as usize] != 0).collect();
    let rows = c.ints_const(DType::I64, &[rows.len() as u64], &rows);
    c.b.gather(x, rows, axis)
}

/// The places of the elements that are not zero; the operand must be known.
pub(super) fn non_zero(c: &mut Ctx) -> Result<ValueId> {
    let x = c.known_tensor(0)?;
    let found: Vec<_> = x.shape().indices().enumerate().filter(|(at, _)| x.get_f64(*at) != 0.0).collect();
    let rank = x.shape().rank();
    let count = found.len() as u64;
    let values: Vec<i64> =
        (0..rank).flat_map(|axis| found.iter().map(move |(_, index)| index[axis] as i64)).collect();
    Ok(c.ints_const(DType::I64, &[rank as u64, count], &values))
}

/// Rows in order of the first appearance or sorted; the operand must be known.
pub(super) fn unique(c: &mut Ctx) -> Result<Vec<Value>> {
    let (x, elem) = (c.known_tensor(0)?, c.elem(0)?);
    let sorted = c.flag("sorted", true);
    let axis = match c.int_opt("axis") {
        Some(axis) => Some(c.axis_of(axis, x.shape().rank())?),
        None => None,
    };
    let rows = rows_of(&x, axis);
    let mut found: BTreeMap<Vec<OrderedRow>, (usize, Vec<usize>)> = BTreeMap::new();
    for (position, row) in rows.iter().enumerate() {
        let key = row.iter().map(|&at| OrderedRow(x.get_f64(at))).collect();
        found.entry(key).or_insert((position, Vec::new())).1.push(position);
    }
    let mut groups: Vec<(usize, Vec<usize>)> = found.into_values().collect();
    if !sorted {
        groups.sort();
    }
    let firsts: Vec<i64> = groups.iter().map(|group| group.0 as i64).collect();
    let counts: Vec<i64> = groups.iter().map(|group| group.1.len() as i64).collect();
    let mut inverse = vec![0; rows.len()];
    for (group, (_, members)) in groups.iter().enumerate() {
        members.iter().for_each(|&member| inverse[member] = group as i64);
    }
    let data = match axis {
        Some(_) => c.x(0)?,
        None => c.b.reshape(c.x(0)?, [x.num_elements()])?,
    };
    let vector = |c: &mut Ctx, values: &[i64]| c.ints_const(DType::I64, &[values.len() as u64], values);
    let firsts = vector(c, &firsts);
    let values = c.b.gather(data, firsts, axis.unwrap_or(0))?;
    let (inverse, counts) = (vector(c, &inverse), vector(c, &counts));
    let mut results = vec![Value::typed(values, elem)];
    results.extend([firsts, inverse, counts].map(|id| Value::tensor(c.b, id)));
    Ok(results)
}

/// Positions of the elements of each row along an axis, or of each element.
fn rows_of(x: &Tensor, axis: Option<usize>) -> Vec<Vec<usize>> {
    let Some(axis) = axis else { return (0..x.num_elements() as usize).map(|at| vec![at]).collect() };
    let mut rows = vec![Vec::new(); x.shape()[axis] as usize];
    for (at, index) in x.shape().indices().enumerate() {
        rows[index[axis] as usize].push(at);
    }
    rows
}

/// A number with a total order; NaN last.
#[derive(PartialEq)]
struct OrderedRow(f64);

impl Eq for OrderedRow {}

impl Ord for OrderedRow {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.partial_cmp(&other.0).unwrap_or_else(|| self.0.is_nan().cmp(&other.0.is_nan()))
    }
}

impl PartialOrd for OrderedRow {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
