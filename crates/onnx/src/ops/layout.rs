//! Operators that arrange elements.

use crate::ctx::Ctx;
use crate::errors;
use crate::import::{Size, TensorValue, Value, product, reshape_dims};
use pando_base::{CompareFn, DType, Result};
use pando_graph::{Dim, Dims, Pad, Slice, TensorType, ValueId};

pub(super) fn reshape(c: &mut Ctx) -> Result<ValueId> {
    let x = c.x(0)?;
    let sizes = match c.ints("shape") {
        Some(ints) if c.version < 5 => ints.into_iter().map(Size::Int).collect(),
        _ => c.sizes(1)?,
    };
    let own = c.dims(x);
    let dims = reshape_dims(&own, &sizes, c.flag("allowzero", false))
        .ok_or_else(|| errors::invalid(format!("{} does not reshape to the sizes given", c.b.ty(x))))?;
    c.b.reshape(x, dims)
}

pub(super) fn transpose(c: &mut Ctx) -> Result<ValueId> {
    let x = c.x(0)?;
    let rank = c.rank(x);
    let perm = match c.ints("perm") {
        Some(perm) => c.axes_of(&perm, rank)?,
        None => (0..rank).rev().collect(),
    };
    c.b.transpose(x, &perm)
}

pub(super) fn flatten(c: &mut Ctx) -> Result<ValueId> {
    let x = c.x(0)?;
    let (axis, rank) = (c.int("axis", 1), c.rank(x));
    let axis = if axis == rank as i64 { rank } else { c.axis_of(axis, rank)? };
    let dims = c.dims(x);
    c.b.reshape(x, [product(&dims[..axis]), product(&dims[axis..])])
}

/// Axes are an attribute before version 13, an input afterwards.
fn axes_given(c: &Ctx) -> Result<Option<Vec<i64>>> {
    match c.ints("axes") {
        Some(axes) => Ok(Some(axes)),
        None => c.known_ints_opt(1),
    }
}

pub(super) fn squeeze(c: &mut Ctx) -> Result<ValueId> {
    let x = c.x(0)?;
    let axes = match axes_given(c)? {
        Some(axes) => c.axes_of(&axes, c.rank(x))?,
        None => (0..c.rank(x)).filter(|&axis| c.dims(x)[axis] == Dim::Known(1)).collect(),
    };
    c.squeeze(x, &axes)
}

pub(super) fn unsqueeze(c: &mut Ctx) -> Result<ValueId> {
    let x = c.x(0)?;
    let axes = axes_given(c)?.ok_or_else(|| errors::missing_attribute("axes"))?;
    let axes = c.axes_of(&axes, c.rank(x) + axes.len())?;
    c.unsqueeze(x, &axes)
}

pub(super) fn expand(c: &mut Ctx) -> Result<ValueId> {
    let x = c.x(0)?;
    let sizes = c.sizes(1)?;
    let dims: Option<Dims> = sizes.iter().map(Size::dim).collect();
    let dims = dims.ok_or_else(|| errors::invalid("a size is negative"))?;
    let dims = crate::ctx::joined(&c.dims(x), &dims)?;
    c.expand(x, &dims)
}

/// As [n, 1, …] broadcast and merged.
pub(super) fn tile(c: &mut Ctx) -> Result<ValueId> {
    let x = c.x(0)?;
    let repeats = c.sizes(1)?;
    if repeats.len() != c.rank(x) {
        return Err(errors::invalid("repeats need one entry per dimension"));
    }
    let (mut split, mut full, mut merged) = (Vec::new(), Dims::new(), Vec::new());
    for (dim, repeat) in c.dims(x).iter().zip(&repeats) {
        let repeat = repeat.dim().ok_or_else(|| errors::invalid("a repeat is negative"))?;
        split.extend([Dim::Known(1), dim.clone()]);
        merged.push(product(&[repeat.clone(), dim.clone()]));
        full.extend([repeat, dim.clone()]);
    }
    let split = c.b.reshape(x, split)?;
    let full = c.expand(split, &full)?;
    c.b.reshape(full, merged)
}

pub(super) fn concat(c: &mut Ctx) -> Result<ValueId> {
    let parts = c.all()?;
    concat_of(c, &parts, c.int("axis", 1))
}

pub(super) fn concat_of(c: &mut Ctx, parts: &[ValueId], axis: i64) -> Result<ValueId> {
    let &first = parts.first().ok_or_else(|| errors::missing_input(0))?;
    let axis = c.axis_of(axis, c.rank(first))?;
    let target = c.dims(first);
    let mut same = Vec::new();
    for &part in parts {
        // Names and numbers that must be one size are taken to be it.
        let mut dims = target.clone();
        match c.dims(part).get(axis) {
            Some(own) if c.rank(part) == target.len() => dims[axis] = own.clone(),
            _ => return Err(errors::invalid("the parts have different ranks")),
        }
        let known = |a: &Dim, b: &Dim| a.known().is_some() && b.known().is_some();
        let differs = c.dims(part).iter().zip(&dims).any(|(a, b)| a != b && known(a, b));
        same.push(if differs || c.dims(part) == dims { part } else { c.b.reshape(part, dims)? });
    }
    c.b.concat(&same, axis)
}

/// Sizes along an axis: given, or as equal as they can be.
fn split_sizes(c: &Ctx, x: ValueId, axis: usize) -> Result<Vec<u64>> {
    let given = match c.ints("split") {
        Some(sizes) => Some(sizes),
        None => c.known_ints_opt(1)?,
    };
    if let Some(sizes) = given {
        let sizes = sizes.into_iter().map(u64::try_from).collect::<Result<Vec<u64>, _>>();
        return sizes.map_err(|_| errors::invalid("a part's size is negative"));
    }
    let outputs = c.node.output.len().max(1) as i64;
    let parts = c.int("num_outputs", outputs).clamp(1, outputs) as u64;
    let size = c.size(x, axis)?;
    let each = size.div_ceil(parts);
    Ok((0..parts).map(|part| size.saturating_sub(part * each).min(each)).collect())
}

pub(super) fn split(c: &mut Ctx) -> Result<Vec<Value>> {
    let x = c.tensor(0)?.clone();
    let axis = c.axis_of(c.int("axis", 0), c.rank(x.id))?;
    let mut begin = 0u64;
    let mut parts = Vec::new();
    for size in split_sizes(c, x.id, axis)? {
        let end = begin.checked_add(size).ok_or_else(|| errors::invalid("the parts are too large"))?;
        parts.push(Value::typed(c.part(x.id, axis, begin, end)?, x.elem));
        begin = end;
    }
    Ok(parts)
}

/// `begin`, `end`, `step` of one axis.
struct Cut {
    axis: usize,
    begin: Size,
    end: Size,
    step: i64,
}

fn cuts(c: &Ctx, rank: usize) -> Result<Vec<Cut>> {
    let (begins, ends, axes, steps) = match c.version < 10 {
        true => {
            let ints = |name: &str| c.ints(name).ok_or_else(|| errors::missing_attribute(name));
            let wrap = |ints: Vec<i64>| ints.into_iter().map(Size::Int).collect::<Vec<_>>();
            (wrap(ints("starts")?), wrap(ints("ends")?), c.ints("axes"), None)
        }
        false => (c.sizes(1)?, c.sizes(2)?, c.known_ints_opt(3)?, c.known_ints_opt(4)?),
    };
    let axes = axes.unwrap_or_else(|| (0..begins.len() as i64).collect());
    let steps = steps.unwrap_or_else(|| vec![1; begins.len()]);
    if [begins.len(), ends.len(), steps.len()] != [axes.len(); 3] {
        return Err(errors::invalid("starts, ends, axes and steps differ in length"));
    }
    let axes = c.axes_of(&axes, rank)?;
    let all = axes.into_iter().zip(begins).zip(ends).zip(steps);
    Ok(all.map(|(((axis, begin), end), step)| Cut { axis, begin, end, step }).collect())
}

pub(super) fn slice(c: &mut Ctx) -> Result<ValueId> {
    let mut x = c.x(0)?;
    for cut in cuts(c, c.rank(x))? {
        x = apply_cut(c, x, &cut)?;
    }
    Ok(x)
}

fn apply_cut(c: &mut Ctx, x: ValueId, cut: &Cut) -> Result<ValueId> {
    let dim = c.dims(x)[cut.axis].clone();
    let mut slice = Slice { begin: vec![0; c.rank(x)], end: c.dims(x), step: vec![1; c.rank(x)] };
    let Some(size) = dim.known() else {
        return named_cut(c, x, cut, &dim, slice);
    };
    let (Some(begin), Some(end)) = (cut.begin.int(), cut.end.int()) else {
        return Err(errors::needs_size("the bounds of a slice of a known size"));
    };
    let size = size as i64;
    let place =
        |at: i64, low: i64, high: i64| (if at < 0 { at.saturating_add(size) } else { at }).clamp(low, high);
    if cut.step == 0 {
        return Err(errors::invalid("a step is 0"));
    }
    if cut.step > 0 {
        let begin = place(begin, 0, size);
        slice.begin[cut.axis] = begin as u64;
        slice.end[cut.axis] = Dim::Known(place(end, begin, size) as u64);
        slice.step[cut.axis] = cut.step as u64;
        return c.b.slice(x, slice);
    }
    if size == 0 {
        return Ok(x);
    }
    // Backwards: the same elements of the reversed operand. A beginning before the first element is the first.
    let (begin, end) = (place(begin, 0, size - 1), place(end, -1, size - 1));
    let (begin, end) = (size - 1 - begin, (size - 1 - end).max(size - 1 - begin));
    slice.begin[cut.axis] = begin as u64;
    slice.end[cut.axis] = Dim::Known(end as u64);
    slice.step[cut.axis] = cut.step.unsigned_abs();
    let reversed = c.b.reverse(x, &[cut.axis])?;
    c.b.slice(reversed, slice)
}

/// A slice of a dimension without a number.
fn named_cut(c: &mut Ctx, x: ValueId, cut: &Cut, dim: &Dim, mut slice: Slice) -> Result<ValueId> {
    // Exporters write 10^9 and the largest numbers of their types for "to the end".
    const TO_THE_END: i64 = 1 << 29;
    let open = || errors::needs_size(format!("dimension {} ({dim}) of a slice like this", cut.axis));
    if cut.step == -1 && cut.begin == Size::Int(-1) && cut.end.int().is_some_and(|end| end < -TO_THE_END) {
        return c.b.reverse(x, &[cut.axis]);
    }
    let begin = cut.begin.int().ok_or_else(open)?;
    if cut.step < 1 {
        return Err(open());
    }
    let end = match &cut.end {
        Size::Int(end) if *end >= TO_THE_END => dim.clone(),
        Size::Int(end) if *end < 0 => pando_graph::dims::offset(dim, (*end).into()).ok_or_else(open)?,
        other => other.dim().ok_or_else(open)?,
    };
    if begin < 0 {
        // The last elements: of the reversed operand the first, reversed again.
        if end != *dim || cut.step != 1 {
            return Err(open());
        }
        let reversed = c.b.reverse(x, &[cut.axis])?;
        slice.end[cut.axis] = Dim::Known(begin.unsigned_abs());
        let last = c.b.slice(reversed, slice)?;
        return c.b.reverse(last, &[cut.axis]);
    }
    slice.begin[cut.axis] = begin as u64;
    slice.end[cut.axis] = end;
    slice.step[cut.axis] = cut.step as u64;
    c.b.slice(x, slice)
}

pub(super) fn pad(c: &mut Ctx) -> Result<ValueId> {
    let x = c.x(0)?;
    let rank = c.rank(x);
    let given = match c.ints("pads").or_else(|| c.ints("paddings")) {
        Some(pads) => pads,
        None => c.known_ints(1)?,
    };
    let axes = match c.known_ints_opt(3)? {
        Some(axes) => c.axes_of(&axes, rank)?,
        None => (0..rank).collect(),
    };
    if given.len() != 2 * axes.len() {
        return Err(errors::invalid("pads need two entries per axis"));
    }
    let (mut low, mut high) = (vec![0; rank], vec![0; rank]);
    for (position, &axis) in axes.iter().enumerate() {
        (low[axis], high[axis]) = (given[position], given[position + axes.len()]);
    }
    match c.string("mode", "constant").as_str() {
        "constant" => {
            let value = match c.opt(2)? {
                Some(value) => c.b.reshape(value, Dims::new())?,
                None => {
                    let value = c.float("value", 0.0);
                    c.b.scalar(c.dtype(x), value)
                }
            };
            c.b.pad(x, value, Pad { low, high, interior: vec![0; rank] })
        }
        mode => (0..rank).try_fold(x, |x, axis| pad_from_inside(c, x, axis, (low[axis], high[axis]), mode)),
    }
}

/// Reflection, repetition of the edge, or wrapping, as a gather along one axis.
fn pad_from_inside(
    c: &mut Ctx,
    x: ValueId,
    axis: usize,
    (low, high): (i64, i64),
    mode: &str,
) -> Result<ValueId> {
    if (low, high) == (0, 0) {
        return Ok(x);
    }
    let size = c.size(x, axis)? as i64;
    let from = |at: i64| match mode {
        "reflect" if size > 1 => {
            let at = at.rem_euclid(2 * (size - 1));
            at.min(2 * (size - 1) - at)
        }
        "wrap" => at.rem_euclid(size.max(1)),
        _ => at.clamp(0, (size - 1).max(0)),
    };
    if size.saturating_add(low).saturating_add(high) > 1 << 24 || low.min(high) < -size {
        return Err(errors::invalid("the padding is too large"));
    }
    let indices: Vec<i64> = (-low..size + high).map(from).collect();
    let indices = c.ints_const(DType::I64, &[indices.len() as u64], &indices);
    c.b.gather(x, indices, axis)
}

pub(super) fn depth_to_space(c: &mut Ctx) -> Result<ValueId> {
    let x = c.x(0)?;
    let (block, dims) = (c.int("blocksize", 1).clamp(1, 1 << 24) as u64, c.dims(x));
    if dims.len() != 4 {
        return Err(errors::invalid("the operand needs rank 4"));
    }
    let channels = c.size(x, 1)?;
    let depth = channels / (block * block);
    let (split, perm) = match c.string("mode", "DCR").as_str() {
        "DCR" => ([block, block, depth], [0, 3, 4, 1, 5, 2]),
        _ => ([depth, block, block], [0, 1, 4, 2, 5, 3]),
    };
    let [a, b, d] = split.map(Dim::Known);
    let split = c.b.reshape(x, [dims[0].clone(), a, b, d, dims[2].clone(), dims[3].clone()])?;
    let moved = c.b.transpose(split, &perm)?;
    let out = |dim: &Dim| product(&[dim.clone(), Dim::Known(block)]);
    c.b.reshape(moved, [dims[0].clone(), Dim::Known(depth), out(&dims[2]), out(&dims[3])])
}

pub(super) fn space_to_depth(c: &mut Ctx) -> Result<ValueId> {
    let x = c.x(0)?;
    let (block, shape) = (c.int("blocksize", 1).clamp(1, 1 << 24) as u64, c.shape(x)?);
    let [n, channels, h, w] = shape[..] else { return Err(errors::invalid("the operand needs rank 4")) };
    let split = c.reshape_to(x, &[n, channels, h / block, block, w / block, block])?;
    let perm = if c.string("mode", "DCR") == "CRD" { [0, 1, 3, 5, 2, 4] } else { [0, 3, 5, 1, 2, 4] };
    let moved = c.b.transpose(split, &perm)?;
    c.reshape_to(moved, &[n, channels * block * block, h / block, w / block])
}

/// Crops or pads with zeros around the middle.
pub(super) fn center_crop_pad(c: &mut Ctx) -> Result<ValueId> {
    let x = c.x(0)?;
    let target = c.known_ints(1)?;
    let axes = match c.ints("axes") {
        Some(axes) => c.axes_of(&axes, c.rank(x))?,
        None => (0..c.rank(x)).collect(),
    };
    let (mut low, mut high) = (vec![0; c.rank(x)], vec![0; c.rank(x)]);
    for (&axis, &target) in axes.iter().zip(&target) {
        let room = target - c.size(x, axis)? as i64;
        // Cropping leaves out the smaller half first, padding adds it first.
        low[axis] = if room < 0 { -((-room) / 2) } else { room / 2 };
        high[axis] = room - low[axis];
    }
    c.pad_with(x, &low, &high, 0.0)
}

/// `row + k <= column` for the upper part.
pub(super) fn trilu(c: &mut Ctx) -> Result<ValueId> {
    let x = c.x(0)?;
    let rank = c.rank(x);
    if rank < 2 {
        return Err(errors::invalid("the operand needs rank 2 at least"));
    }
    let k = match c.opt(1)? {
        Some(k) => c.b.reshape(k, Dims::new())?,
        None => c.ints_const(DType::I64, &[], &[0]),
    };
    let ty = TensorType { dtype: DType::I64, dims: c.dims(x) };
    let (rows, columns) = (c.b.iota(ty.clone(), rank - 2)?, c.b.iota(ty, rank - 1)?);
    let diagonal = c.plus(rows, k)?;
    let func = if c.flag("upper", true) { CompareFn::Ge } else { CompareFn::Le };
    let kept = c.b.compare(func, columns, diagonal)?;
    let x = if c.dtype(x) == DType::Bool { return c.b.and(x, kept) } else { x };
    let zero = c.b.splat_like(x, 0.0)?;
    c.b.select(kept, x, zero)
}

/// Reverses the first `lengths[b]` elements of each row.
pub(super) fn reverse_sequence(c: &mut Ctx) -> Result<ValueId> {
    let (x, lengths) = (c.x(0)?, c.x(1)?);
    let batch = c.axis_of(c.int("batch_axis", 1), c.rank(x))?;
    let time = c.axis_of(c.int("time_axis", 0), c.rank(x))?;
    reverse_rows(c, x, lengths, batch, time)
}

pub(super) fn reverse_rows(
    c: &mut Ctx,
    x: ValueId,
    lengths: ValueId,
    batch: usize,
    time: usize,
) -> Result<ValueId> {
    let ty = TensorType { dtype: DType::I64, dims: c.dims(x) };
    let lengths = c.b.convert(lengths, DType::I64)?;
    let lengths = c.b.broadcast(lengths, ty.dims.clone(), &[batch])?;
    let steps = c.b.iota(ty, time)?;
    let last = c.plus_n(lengths, -1.0)?;
    let reversed = c.b.sub(last, steps)?;
    let inside = c.b.compare(CompareFn::Lt, steps, lengths)?;
    let from = c.b.select(inside, reversed, steps)?;
    super::index::gather_elements_at(c, x, from, time)
}

pub(super) fn shape(c: &mut Ctx) -> Result<Vec<Value>> {
    let dims = match c.value(0)? {
        Value::Text(text) => pando_graph::known_dims(&text.shape),
        _ => c.dims(c.x(0)?),
    };
    let rank = dims.len() as i64;
    let place = |at: i64| (if at < 0 { at.saturating_add(rank) } else { at }).clamp(0, rank) as usize;
    let (begin, end) = (place(c.int("start", 0)), place(c.int("end", rank)));
    let sizes: Vec<Size> = dims[begin..end.max(begin)].iter().map(Size::of).collect();
    sizes_result(c, sizes, false)
}

pub(super) fn size(c: &mut Ctx) -> Result<Vec<Value>> {
    let x = c.x(0)?;
    let size = Size::of(&product(&c.dims(x)));
    // A product of names has no value of its own: multiply.
    if let (Size::Named(_), dims) = (&size, c.dims(x)) {
        let parts: Vec<Size> = dims.iter().map(Size::of).collect();
        let parts = crate::import::sizes_value(c.b, &parts, false)?;
        let id = c.b.reduce(pando_base::ReduceFn::Prod, parts, &[0])?;
        let sizes = Some(std::rc::Rc::new(vec![size]));
        return Ok(vec![Value::Tensor(TensorValue {
            sizes,
            ..TensorValue::new(id, crate::elem::Elem::INT64)
        })]);
    }
    sizes_result(c, vec![size], true)
}

fn sizes_result(c: &mut Ctx, sizes: Vec<Size>, scalar: bool) -> Result<Vec<Value>> {
    let id = crate::import::sizes_value(c.b, &sizes, scalar)?;
    let tensor = TensorValue::new(id, crate::elem::Elem::INT64);
    Ok(vec![Value::Tensor(TensorValue { sizes: Some(std::rc::Rc::new(sizes)), ..tensor })])
}
