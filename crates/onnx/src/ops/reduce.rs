//! Reductions, running sums, extremes and their places.

use crate::ctx::Ctx;
use crate::errors;
use crate::import::Value;
use pando_base::{CompareFn, DType, ReduceFn, Result};
use pando_graph::{Dims, Scan, Sort, TensorType, ValueId};

/// The axes reduced and whether they stay with size 1; `None` if nothing is to be done.
fn axes(c: &Ctx, x: ValueId) -> Result<Option<Vec<usize>>> {
    let given = match c.ints("axes") {
        Some(axes) => Some(axes),
        None => c.known_ints_opt(1)?,
    };
    match given.filter(|axes| !axes.is_empty()) {
        Some(axes) => c.axes_of(&axes, c.rank(x)).map(Some),
        None if c.flag("noop_with_empty_axes", false) => Ok(None),
        None => Ok(Some((0..c.rank(x)).collect())),
    }
}

fn reduce(c: &mut Ctx, func: ReduceFn, x: ValueId, axes: &[usize]) -> Result<ValueId> {
    match c.flag("keepdims", true) {
        true => c.reduce_keep(func, x, axes),
        false => c.b.reduce(func, x, axes),
    }
}

/// `map` before and `after` behind a reduction over the axes given.
fn reduction(
    c: &mut Ctx,
    func: ReduceFn,
    map: impl FnOnce(&mut Ctx, ValueId) -> Result<ValueId>,
    after: impl FnOnce(&mut Ctx, ValueId) -> Result<ValueId>,
) -> Result<ValueId> {
    let x = c.x(0)?;
    let axes = axes(c, x)?;
    let mapped = map(c, x)?;
    let reduced = match axes {
        Some(axes) => reduce(c, func, mapped, &axes)?,
        None => mapped,
    };
    after(c, reduced)
}

fn same(_: &mut Ctx, x: ValueId) -> Result<ValueId> {
    Ok(x)
}

fn square(c: &mut Ctx, x: ValueId) -> Result<ValueId> {
    c.b.mul(x, x)
}

fn root(c: &mut Ctx, x: ValueId) -> Result<ValueId> {
    if c.dtype(x).is_float() {
        return c.b.sqrt(x);
    }
    let float = c.b.convert(x, DType::F32)?;
    let root = c.b.sqrt(float)?;
    c.b.convert(root, c.dtype(x))
}

fn log(c: &mut Ctx, x: ValueId) -> Result<ValueId> {
    c.b.log(x)
}

pub(super) fn sum(c: &mut Ctx) -> Result<ValueId> {
    reduction(c, ReduceFn::Sum, same, same)
}

pub(super) fn prod(c: &mut Ctx) -> Result<ValueId> {
    reduction(c, ReduceFn::Prod, same, same)
}

/// Bools have an order in version 20: any and all.
pub(super) fn max(c: &mut Ctx) -> Result<ValueId> {
    let func = if c.dtype(c.x(0)?) == DType::Bool { ReduceFn::Or } else { ReduceFn::Max };
    reduction(c, func, same, same)
}

pub(super) fn min(c: &mut Ctx) -> Result<ValueId> {
    let func = if c.dtype(c.x(0)?) == DType::Bool { ReduceFn::And } else { ReduceFn::Min };
    reduction(c, func, same, same)
}

pub(super) fn sum_square(c: &mut Ctx) -> Result<ValueId> {
    reduction(c, ReduceFn::Sum, square, same)
}

pub(super) fn l1(c: &mut Ctx) -> Result<ValueId> {
    reduction(c, ReduceFn::Sum, |c, x| c.b.abs(x), same)
}

pub(super) fn l2(c: &mut Ctx) -> Result<ValueId> {
    reduction(c, ReduceFn::Sum, square, root)
}

pub(super) fn log_sum(c: &mut Ctx) -> Result<ValueId> {
    reduction(c, ReduceFn::Sum, same, log)
}

/// `max + log(sum(exp(x - max)))`, where a maximum that is not finite counts as zero.
pub(super) fn log_sum_exp(c: &mut Ctx) -> Result<ValueId> {
    let x = c.x(0)?;
    let Some(axes) = axes(c, x)? else { return Ok(x) };
    let max = c.reduce_keep(ReduceFn::Max, x, &axes)?;
    let magnitude = c.b.abs(max)?;
    let finite = c.cmp_n(CompareFn::Lt, magnitude, f64::INFINITY)?;
    let zero = c.b.splat_like(max, 0.0)?;
    let max = c.b.select(finite, max, zero)?;
    let shifted = c.minus(x, max)?;
    let powers = c.b.exp(shifted)?;
    let sum = c.reduce_keep(ReduceFn::Sum, powers, &axes)?;
    let log = c.b.log(sum)?;
    let result = c.b.add(log, max)?;
    if c.flag("keepdims", true) { Ok(result) } else { c.squeeze(result, &axes) }
}

pub(super) fn mean(c: &mut Ctx) -> Result<ValueId> {
    let x = c.x(0)?;
    let Some(axes) = axes(c, x)? else { return Ok(x) };
    let count = count_of(c, x, &axes)?;
    let sum = reduce(c, ReduceFn::Sum, x, &axes)?;
    c.over(sum, count)
}

/// The number of elements along axes, as a scalar of the operand's type; sizes may be names.
pub(super) fn count_of(c: &mut Ctx, x: ValueId, axes: &[usize]) -> Result<ValueId> {
    let dims: Dims = axes.iter().map(|&axis| c.dims(x)[axis].clone()).collect();
    let dtype = c.dtype(x);
    if let Some(known) = dims.iter().try_fold(1u64, |count, dim| count.checked_mul(dim.known()?)) {
        return Ok(c.b.scalar(dtype, known as f64));
    }
    let ones = c.b.splat(&TensorType { dtype: DType::F32, dims }, 1.0)?;
    let all: Vec<usize> = (0..axes.len()).collect();
    let count = c.b.reduce(ReduceFn::Sum, ones, &all)?;
    c.b.convert(count, dtype)
}

pub(super) fn arg_max(c: &mut Ctx) -> Result<ValueId> {
    arg_extreme(c, ReduceFn::Max)
}

pub(super) fn arg_min(c: &mut Ctx) -> Result<ValueId> {
    arg_extreme(c, ReduceFn::Min)
}

/// The first or last place of the extreme.
fn arg_extreme(c: &mut Ctx, func: ReduceFn) -> Result<ValueId> {
    let x = c.x(0)?;
    let axis = c.axis_of(c.int("axis", 0), c.rank(x))?;
    let last = c.flag("select_last_index", false);
    let extreme = c.reduce_keep(func, x, &[axis])?;
    let hit = c.cmp(CompareFn::Eq, x, extreme)?;
    let counts = c.b.iota(TensorType { dtype: DType::I64, dims: c.dims(x) }, axis)?;
    let never = c.b.splat_like(counts, if last { -1.0 } else { f64::from(i32::MAX) })?;
    let places = c.b.select(hit, counts, never)?;
    reduce(c, if last { ReduceFn::Max } else { ReduceFn::Min }, places, &[axis])
}

pub(super) fn cum_sum(c: &mut Ctx) -> Result<ValueId> {
    running(c, ReduceFn::Sum)
}

pub(super) fn cum_prod(c: &mut Ctx) -> Result<ValueId> {
    running(c, ReduceFn::Prod)
}

fn running(c: &mut Ctx, func: ReduceFn) -> Result<ValueId> {
    let x = c.x(0)?;
    let axis = c.axis_of(c.known_int(1)?, c.rank(x))?;
    let (exclusive, reverse) = (c.flag("exclusive", false), c.flag("reverse", false));
    c.b.scan(x, Scan { func, axis, exclusive, reverse })
}

/// A stable sort of which the first `k` are kept.
pub(super) fn top_k(c: &mut Ctx) -> Result<Vec<Value>> {
    let x = c.tensor(0)?.clone();
    let k = if c.version < 10 { c.int("k", 0) } else { c.known_int(1)? };
    let k = u64::try_from(k).map_err(|_| errors::invalid("k is negative"))?;
    let axis = c.axis_of(c.int("axis", -1), c.rank(x.id))?;
    let descending = c.flag("largest", true);
    let places = c.b.iota(TensorType { dtype: DType::I64, dims: c.dims(x.id) }, axis)?;
    let sorted = c.b.sort(&[x.id, places], Sort { axis, descending, stable: true })?;
    let values = c.part(sorted[0], axis, 0, k)?;
    let places = c.part(sorted[1], axis, 0, k)?;
    Ok(vec![Value::typed(values, x.elem), Value::tensor(c.b, places)])
}
