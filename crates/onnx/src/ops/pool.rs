//! Pooling: reductions over sliding windows.

use super::conv::{pads, spatial};
use crate::ctx::Ctx;
use crate::errors;
use crate::import::{Value, product};
use pando_base::{CompareFn, DType, ReduceFn, Result};
use pando_graph::{Dim, ReduceWindow, TensorType, ValueId, known_dims};

/// A window over the spatial axes.
struct Window {
    size: Vec<u64>,
    strides: Vec<u64>,
    dilations: Vec<u64>,
    pads: Vec<(i64, i64)>,
    /// What of the padding after is there only because sizes are rounded up.
    ceil: Vec<i64>,
}

fn window(c: &Ctx, x: ValueId) -> Result<Window> {
    let rank =
        c.rank(x).checked_sub(2).ok_or_else(|| errors::invalid("the operand needs rank 2 at least"))?;
    c.ints("kernel_shape").ok_or_else(|| errors::missing_attribute("kernel_shape"))?;
    let size = spatial(c, "kernel_shape", rank)?;
    let (strides, dilations) = (spatial(c, "strides", rank)?, spatial(c, "dilations", rank)?);
    if strides.contains(&0) || size.contains(&0) {
        return Err(errors::invalid("window and strides are at least 1"));
    }
    let mut pads = pads(c, &c.dims(x)[2..], &size, &strides, &dilations)?;
    let mut ceil = vec![0; rank];
    if c.flag("ceil_mode", false) && !c.string("auto_pad", "NOTSET").starts_with("SAME") {
        for axis in 0..rank {
            let padded = c.size(x, axis + 2)? as i64 + pads[axis].0 + pads[axis].1;
            let span = ((size[axis] - 1).saturating_mul(dilations[axis])) as i64 + 1;
            let stride = strides[axis] as i64;
            let mut positions = (padded - span + stride - 1).div_euclid(stride) + 1;
            // No window starts in the padding after.
            if (positions - 1) * stride >= c.size(x, axis + 2)? as i64 + pads[axis].0 {
                positions -= 1;
            }
            ceil[axis] = ((positions - 1) * stride + span - padded).max(0);
            pads[axis].1 += ceil[axis];
        }
    }
    Ok(Window { size, strides, dilations, pads, ceil })
}

impl Window {
    /// The reduction with the batch and channel axes put before the spatial ones.
    fn over(&self, func: ReduceFn, padding: &[(i64, i64)]) -> ReduceWindow {
        fn lead<T: Clone>(two: T, rest: &[T]) -> Vec<T> {
            [two.clone(), two].into_iter().chain(rest.iter().cloned()).collect()
        }
        ReduceWindow {
            func,
            window: lead(1, &self.size),
            strides: lead(1, &self.strides),
            padding: lead((0, 0), padding),
            dilation: lead(1, &self.dilations),
        }
    }
}

pub(super) fn average_pool(c: &mut Ctx) -> Result<ValueId> {
    let x = c.x(0)?;
    let window = window(c, x)?;
    let sum = c.b.reduce_window(x, window.over(ReduceFn::Sum, &window.pads))?;
    let size = window.size.iter().fold(1u64, |n, &size| n.saturating_mul(size));
    let padded = window.pads.iter().any(|&pad| pad != (0, 0));
    if !padded || c.flag("count_include_pad", false) && window.ceil.iter().all(|&extra| extra == 0) {
        return c.over_n(sum, size as f64);
    }
    // Count what the window covers: elements, and the padding that counts.
    let mut dims = c.dims(x);
    dims[0] = Dim::Known(1);
    dims[1] = Dim::Known(1);
    let mut ones = c.b.splat(&TensorType { dtype: c.dtype(x), dims }, 1.0)?;
    let mut pads = window.pads.clone();
    if c.flag("count_include_pad", false) {
        let rank = window.pads.len();
        let (mut low, mut high) = (vec![0; rank + 2], vec![0; rank + 2]);
        for axis in 0..rank {
            (low[axis + 2], high[axis + 2]) = (pads[axis].0, pads[axis].1 - window.ceil[axis]);
            pads[axis] = (0, window.ceil[axis]);
        }
        ones = c.pad_with(ones, &low, &high, 1.0)?;
    }
    let count = c.b.reduce_window(ones, window.over(ReduceFn::Sum, &pads))?;
    c.over(sum, count)
}

pub(super) fn lp_pool(c: &mut Ctx) -> Result<ValueId> {
    let x = c.x(0)?;
    let window = window(c, x)?;
    let p = c.int("p", 2) as f64;
    let magnitude = c.b.abs(x)?;
    let powers = c.b.binary_scalar(pando_base::BinaryFn::Pow, magnitude, p)?;
    let sum = c.b.reduce_window(powers, window.over(ReduceFn::Sum, &window.pads))?;
    c.b.binary_scalar(pando_base::BinaryFn::Pow, sum, 1.0 / p)
}

pub(super) fn max_pool(c: &mut Ctx) -> Result<Vec<Value>> {
    let x = c.tensor(0)?.clone();
    let window = window(c, x.id)?;
    let max = c.b.reduce_window(x.id, window.over(ReduceFn::Max, &window.pads))?;
    let mut results = vec![Value::typed(max, x.elem)];
    if c.has_output(1) {
        let places = max_places(c, x.id, max, &window)?;
        results.push(Value::tensor(c.b, places));
    }
    Ok(results)
}

/// The flat index of each window's first largest element: the window's taps one after the other.
fn max_places(c: &mut Ctx, x: ValueId, max: ValueId, window: &Window) -> Result<ValueId> {
    const MAX_TAPS: u64 = 1 << 10;
    let shape = c.shape(x)?;
    if window.size.iter().fold(1u64, |n, &size| n.saturating_mul(size)) > MAX_TAPS {
        return Err(errors::too_much_work("the places of a maximum over more than 1024 elements"));
    }
    let total = shape.iter().fold(1u64, |n, &size| n.saturating_mul(size));
    let counts = c.b.iota(TensorType { dtype: DType::I64, dims: known_dims(&[total]) }, 0)?;
    let mut order: Vec<usize> = (0..shape.len()).collect();
    if c.int("storage_order", 0) == 1 {
        order[2..].reverse();
    }
    let ordered: Vec<u64> = order.iter().map(|&axis| shape[axis]).collect();
    let places = c.reshape_to(counts, &ordered)?;
    let places = c.b.transpose(places, &order)?;
    let never = f64::from(i32::MAX);
    let mut best = None;
    for tap in pando_base::Shape::new(&window.size).indices() {
        let value = tap_of(c, x, window, &tap, max, f64::NEG_INFINITY)?;
        let place = tap_of(c, places, window, &tap, max, never)?;
        let hit = c.b.compare(CompareFn::Eq, value, max)?;
        let far = c.b.splat_like(place, never)?;
        let place = c.b.select(hit, place, far)?;
        best = Some(match best {
            None => place,
            Some(best) => c.b.min(best, place)?,
        });
    }
    best.ok_or_else(|| errors::invalid("the window is empty"))
}

/// The elements under one element of the window, at all its positions.
fn tap_of(
    c: &mut Ctx,
    x: ValueId,
    window: &Window,
    tap: &[u64],
    like: ValueId,
    filler: f64,
) -> Result<ValueId> {
    let rank = c.rank(x);
    let (mut low, mut high) = (vec![0; rank], vec![0; rank]);
    for (axis, &pad) in window.pads.iter().enumerate() {
        (low[axis + 2], high[axis + 2]) = pad;
    }
    let filler = if c.dtype(x).is_float() { filler } else { filler.max(c.dtype(x).lowest()) };
    let padded = c.pad_with(x, &low, &high, filler)?;
    let outputs = c.shape(like)?;
    let mut slice = pando_graph::Slice { begin: vec![0; rank], end: c.dims(padded), step: vec![1; rank] };
    for axis in 2..rank {
        let begin = tap[axis - 2] * window.dilations[axis - 2];
        let stride = window.strides[axis - 2];
        slice.begin[axis] = begin;
        slice.end[axis] = Dim::Known(begin + outputs[axis].saturating_sub(1) * stride + 1);
        slice.step[axis] = stride;
    }
    c.b.slice(padded, slice)
}

fn spatial_axes(c: &Ctx, x: ValueId) -> Vec<usize> {
    (2..c.rank(x)).collect()
}

pub(super) fn global_average_pool(c: &mut Ctx) -> Result<ValueId> {
    let x = c.x(0)?;
    let axes = spatial_axes(c, x);
    let count = super::reduce::count_of(c, x, &axes)?;
    let sum = c.reduce_keep(ReduceFn::Sum, x, &axes)?;
    c.over(sum, count)
}

pub(super) fn global_max_pool(c: &mut Ctx) -> Result<ValueId> {
    let x = c.x(0)?;
    let axes = spatial_axes(c, x);
    c.reduce_keep(ReduceFn::Max, x, &axes)
}

pub(super) fn global_lp_pool(c: &mut Ctx) -> Result<ValueId> {
    let x = c.x(0)?;
    let (axes, p) = (spatial_axes(c, x), c.int("p", 2) as f64);
    let magnitude = c.b.abs(x)?;
    let powers = c.b.binary_scalar(pando_base::BinaryFn::Pow, magnitude, p)?;
    let sum = c.reduce_keep(ReduceFn::Sum, powers, &axes)?;
    c.b.binary_scalar(pando_base::BinaryFn::Pow, sum, 1.0 / p)
}

/// Values back to the places that a MaxPool gave; zeros elsewhere.
pub(super) fn max_unpool(c: &mut Ctx) -> Result<ValueId> {
    let (x, places) = (c.x(0)?, c.x(1)?);
    let rank = c.rank(x).saturating_sub(2);
    let (window, strides) = (spatial(c, "kernel_shape", rank)?, spatial(c, "strides", rank)?);
    let pads =
        c.moderate_ints("pads")?.filter(|pads| pads.len() == 2 * rank).unwrap_or_else(|| vec![0; 2 * rank]);
    // Places count within the size that the attributes imply, whatever size is asked for.
    let mut natural = c.shape(x)?;
    for axis in 0..rank {
        let steps = natural[axis + 2].saturating_sub(1).saturating_mul(strides[axis]).min(1 << 59);
        let size = (steps + window[axis]) as i64;
        natural[axis + 2] = (size - pads[axis] - pads[axis + rank]).max(0) as u64;
    }
    let dtype = c.dtype(x);
    let total = natural.iter().fold(1u64, |n, &size| n.saturating_mul(size));
    let zeros = c.b.splat(&TensorType { dtype, dims: known_dims(&[total]) }, 0.0)?;
    let count = product(&c.dims(x));
    let (x, places) = (c.b.reshape(x, [count.clone()])?, c.b.reshape(places, [count])?);
    let filled = c.b.scatter(zeros, places, x, 0, None)?;
    let filled = c.reshape_to(filled, &natural)?;
    let Some(asked) = c.known_ints_opt(2)? else { return Ok(filled) };
    let high: Vec<i64> = asked.iter().zip(&natural).map(|(&asked, &size)| asked - size as i64).collect();
    c.pad_with(filled, &vec![0; high.len()], &high, 0.0)
}
