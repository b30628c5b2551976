//! Sampling at computed places: GridSample, AffineGrid, DeformConv.

use crate::ctx::Ctx;
use crate::errors;
use pando_base::{CompareFn, DType, Result, UnaryFn};
use pando_graph::{Dot, TensorType, ValueId, known_dims};

/// One spatial axis of a sampled operand.
struct Line {
    size: u64,
    /// Between which coordinates reflection happens.
    low: f64,
    high: f64,
}

pub(super) fn grid_sample(c: &mut Ctx) -> Result<ValueId> {
    let (x, grid) = (c.x(0)?, c.x(1)?);
    let (shape, dtype) = (c.shape(x)?, c.dtype(x));
    let rank = shape.len().saturating_sub(2);
    if c.rank(grid) != shape.len() || shape.len() < 3 {
        return Err(errors::invalid("the grid does not fit the operand"));
    }
    let mode = c.string("mode", "linear");
    let padding = c.string("padding_mode", "zeros");
    let corners = c.flag("align_corners", false);
    let grid = c.b.convert(grid, DType::F32)?;
    let last = c.rank(grid) - 1;
    let (mut lines, mut places) = (Vec::new(), Vec::new());
    for axis in 0..rank {
        let size = shape[axis + 2];
        let line = match corners {
            true => Line { size, low: 0.0, high: size as f64 - 1.0 },
            false => Line { size, low: -0.5, high: size as f64 - 0.5 },
        };
        // The grid names the last axis first.
        let at = c.pick(grid, last, (rank - 1 - axis) as u64)?;
        let moved = c.plus_n(at, 1.0)?;
        let mut at = match corners {
            true => c.times_n(moved, (size as f64 - 1.0) / 2.0)?,
            false => {
                let scaled = c.times_n(moved, size as f64 / 2.0)?;
                c.plus_n(scaled, -0.5)?
            }
        };
        if mode == "nearest" {
            at = c.un(UnaryFn::Round, at)?;
        }
        // Cubic taps reach beyond the operand: each is moved into it by itself.
        places.push(if mode.ends_with("cubic") { at } else { inside(c, at, &line, &padding)? });
        lines.push(line);
    }
    let sampled = sample(c, x, &lines, &places, &mode, &padding)?;
    c.b.convert(sampled, dtype)
}

/// A coordinate moved into the operand: clamped or reflected; as it is for padding with zeros.
fn inside(c: &mut Ctx, at: ValueId, line: &Line, padding: &str) -> Result<ValueId> {
    match padding {
        "border" => {
            let above = c.max_n(at, 0.0)?;
            c.min_n(above, line.size as f64 - 1.0)
        }
        "reflection" => {
            let range = line.high - line.low;
            if range <= 0.0 {
                return c.b.splat_like(at, 0.0);
            }
            // Distance from `low` in a period of twice the range, folded at its middle.
            let moved = c.plus_n(at, -line.low)?;
            let distance = c.b.abs(moved)?;
            let period = c.b.splat_like(distance, 2.0 * range)?;
            let within = c.b.rem(distance, period)?;
            let back = c.n_minus(2.0 * range, within)?;
            let folded = c.b.min(within, back)?;
            c.plus_n(folded, line.low)
        }
        _ => Ok(at),
    }
}

/// Taps along one axis: whole coordinates and weights, in f32.
fn taps(c: &mut Ctx, at: ValueId, mode: &str) -> Result<Vec<(ValueId, Option<ValueId>)>> {
    if mode == "nearest" {
        return Ok(vec![(at, None)]);
    }
    let base = c.b.floor(at)?;
    let ratio = c.b.sub(at, base)?;
    let mut taps = Vec::new();
    let offsets: &[f64] = if mode.ends_with("cubic") { &[-1.0, 0.0, 1.0, 2.0] } else { &[0.0, 1.0] };
    for &offset in offsets {
        let place = c.plus_n(base, offset)?;
        let distance = c.n_minus(offset, ratio)?;
        let distance = c.b.abs(distance)?;
        let weight = match mode.ends_with("cubic") {
            true => cubic_weight(c, distance)?,
            false => c.n_minus(1.0, distance)?,
        };
        taps.push((place, Some(weight)));
    }
    Ok(taps)
}

/// Keys's cubic convolution of distances up to 2, with the coefficient -0.75.
fn cubic_weight(c: &mut Ctx, x: ValueId) -> Result<ValueId> {
    const A: f64 = -0.75;
    let polynomial = |c: &mut Ctx, coefficients: [f64; 4]| -> Result<ValueId> {
        let mut sum = c.b.splat_like(x, coefficients[0])?;
        for &coefficient in &coefficients[1..] {
            let product = c.b.mul(sum, x)?;
            sum = c.plus_n(product, coefficient)?;
        }
        Ok(sum)
    };
    let near = polynomial(c, [A + 2.0, -(A + 3.0), 0.0, 1.0])?;
    let far = polynomial(c, [A, -5.0 * A, 8.0 * A, -4.0 * A])?;
    let close = c.cmp_n(CompareFn::Le, x, 1.0)?;
    c.b.select(close, near, far)
}

/// Weighted sums over the taps of all axes. `places` per axis are `[N, out…]`, the result `[N, C, out…]`.
fn sample(
    c: &mut Ctx,
    x: ValueId,
    lines: &[Line],
    places: &[ValueId],
    mode: &str,
    padding: &str,
) -> Result<ValueId> {
    let like = c.dims(places[0]);
    let rows = rows_of(c, x)?;
    let batches = c.b.iota(TensorType { dtype: DType::I64, dims: like.clone() }, 0)?;
    let per_axis = places.iter().map(|&at| taps(c, at, mode)).collect::<Result<Vec<_>>>()?;
    let counts: pando_base::Shape = per_axis.iter().map(|taps| taps.len() as u64).collect();
    let mut sum: Option<ValueId> = None;
    for choice in counts.indices() {
        let mut position = batches;
        let mut weight: Option<ValueId> = None;
        for (axis, line) in lines.iter().enumerate() {
            let (place, own) = per_axis[axis][choice[axis] as usize];
            let (place, valid) = tap_place(c, place, line, padding)?;
            let scaled = c.times_n(position, line.size as f64)?;
            position = c.b.add(scaled, place)?;
            for factor in [own, valid].into_iter().flatten() {
                weight = Some(match weight {
                    None => factor,
                    Some(weight) => c.b.mul(weight, factor)?,
                });
            }
        }
        let mut part = c.b.gather(rows, position, 0)?;
        if let Some(weight) = weight {
            let axes: Vec<usize> = (0..like.len()).collect();
            let weight = c.b.broadcast(weight, c.dims(part), &axes)?;
            part = c.b.mul(part, weight)?;
        }
        sum = Some(match sum {
            None => part,
            Some(sum) => c.b.add(sum, part)?,
        });
    }
    let sum = sum.ok_or_else(|| errors::invalid("there is nothing to sample"))?;
    let rank = c.rank(sum);
    let perm: Vec<usize> = [0, rank - 1].into_iter().chain(1..rank - 1).collect();
    c.b.transpose(sum, &perm)
}

/// `[N, C, S…]` as rows of channels, `[N·S…, C]`, in f32.
pub(super) fn rows_of(c: &mut Ctx, x: ValueId) -> Result<ValueId> {
    let rank = c.rank(x);
    let x = c.b.convert(x, DType::F32)?;
    let perm: Vec<usize> = [0].into_iter().chain(2..rank).chain([1]).collect();
    let moved = c.b.transpose(x, &perm)?;
    c.flatten(moved, 0, rank - 1)
}

/// A tap's coordinate as an index, and for padding with zeros whether it lies inside, as a factor.
fn tap_place(c: &mut Ctx, place: ValueId, line: &Line, padding: &str) -> Result<(ValueId, Option<ValueId>)> {
    let last = line.size as f64 - 1.0;
    let mut valid = None;
    let mut place = place;
    if padding == "zeros" {
        let (low, high) = (c.cmp_n(CompareFn::Ge, place, 0.0)?, c.cmp_n(CompareFn::Le, place, last)?);
        let both = c.b.and(low, high)?;
        valid = Some(c.b.convert(both, DType::F32)?);
    } else {
        place = inside(c, place, line, padding)?;
    }
    let above = c.max_n(place, 0.0)?;
    let place = c.min_n(above, last)?;
    Ok((c.b.convert(place, DType::I64)?, valid))
}

/// The places of an affine map of a regular grid.
pub(super) fn affine_grid(c: &mut Ctx) -> Result<ValueId> {
    let theta = c.x(0)?;
    c.need_rank(theta, 3..=3)?;
    let dtype = c.dtype(theta);
    let size: Vec<u64> = c.known_ints(1)?.into_iter().map(|size| size.max(0) as u64).collect();
    let [_, _, spatial @ ..] = &size[..] else {
        return Err(errors::invalid("the size needs 4 or 5 entries"));
    };
    if spatial.is_empty() {
        return Err(errors::invalid("the size needs 4 or 5 entries"));
    }
    let corners = c.flag("align_corners", false);
    let mut columns = Vec::new();
    for (axis, &size) in spatial.iter().enumerate().rev() {
        let counts = c.b.iota(TensorType { dtype, dims: known_dims(spatial) }, axis)?;
        let (step, first) = match corners {
            true if size == 1 => (0.0, -1.0),
            true => (2.0 / (size as f64 - 1.0), -1.0),
            false => (2.0 / size as f64, 1.0 / size as f64 - 1.0),
        };
        let steps = c.times_n(counts, step)?;
        columns.push(c.plus_n(steps, first)?);
    }
    let one = c.b.splat_like(columns[0], 1.0)?;
    columns.push(one);
    let rank = spatial.len();
    let columns =
        columns.into_iter().map(|column| c.unsqueeze(column, &[rank])).collect::<Result<Vec<_>>>()?;
    let points = c.b.concat(&columns, rank)?;
    let moved = c.b.dot(points, theta, Dot { contract: vec![(rank, 2)], ..Dot::default() })?;
    // [S…, N, rank] to [N, S…, rank].
    let perm: Vec<usize> = [rank].into_iter().chain(0..rank).chain([rank + 1]).collect();
    c.b.transpose(moved, &perm)
}

/// A convolution whose kernel elements look at moved places: samples first, then a convolution over them.
pub(super) fn deform_conv(c: &mut Ctx) -> Result<ValueId> {
    let (x, w, offsets) = (c.x(0)?, c.x(1)?, c.x(2)?);
    let (shape, kernel, moved) = (c.shape(x)?, c.shape(w)?, c.shape(offsets)?);
    let ([n, channels, height, width], [outputs, per_group, kh, kw], [_, _, oh, ow]) =
        (&shape[..], &kernel[..], &moved[..])
    else {
        return Err(errors::invalid("operand, kernel and offsets need rank 4"));
    };
    let (strides, dilations) =
        (super::conv::spatial(c, "strides", 2)?, super::conv::spatial(c, "dilations", 2)?);
    let pads = c.moderate_ints("pads")?.filter(|pads| pads.len() == 4).unwrap_or_else(|| vec![0; 4]);
    let positive = |c: &Ctx, name: &str| c.int(name, 1).clamp(1, 1 << 20) as u64;
    let (groups, parts) = (positive(c, "group"), positive(c, "offset_group"));
    let (taps, own) = (kh * kw, channels / parts);
    let split = c.reshape_to(offsets, &[*n, parts, *kh, *kw, 2, *oh, *ow])?;
    let mut columns = Vec::new();
    for part in 0..parts {
        let offsets = c.pick(split, 1, part)?;
        let mut places = Vec::new();
        for axis in 0..2 {
            let offset = c.pick(offsets, 3, axis as u64)?;
            let offset = c.b.convert(offset, DType::F32)?;
            let ty = TensorType { dtype: DType::F32, dims: c.dims(offset) };
            let (tap, out) = (c.b.iota(ty.clone(), 1 + axis)?, c.b.iota(ty, 3 + axis)?);
            let (tap, out) = (c.times_n(tap, dilations[axis] as f64)?, c.times_n(out, strides[axis] as f64)?);
            let base = c.b.add(tap, out)?;
            let base = c.plus_n(base, -(pads[axis] as f64))?;
            let at = c.b.add(base, offset)?;
            places.push(c.flatten(at, 1, 3)?);
        }
        let lines = [*height, *width].map(|size| Line { size, low: 0.0, high: size as f64 - 1.0 });
        let channels = c.part(x, 1, part * own, (part + 1) * own)?;
        let mut sampled = sample(c, channels, &lines, &places, "linear", "zeros")?;
        if let Some(mask) = c.opt(4)? {
            let mask = c.part(mask, 1, part * taps, (part + 1) * taps)?;
            let mask = c.b.convert(mask, DType::F32)?;
            let mask = c.unsqueeze(mask, &[1])?;
            sampled = c.times(sampled, mask)?;
        }
        columns.push(sampled);
    }
    let columns = c.b.concat(&columns, 1)?;
    let columns = c.flatten(columns, 3, 5)?;
    let columns = c.b.convert(columns, c.dtype(w))?;
    let kernel = c.reshape_to(w, &[*outputs, *per_group, taps, 1])?;
    let sums = c.b.conv(columns, kernel, pando_graph::Conv { groups, ..pando_graph::Conv::plain(2) })?;
    let sums = c.reshape_to(sums, &[*n, *outputs, *oh, *ow])?;
    let bias = c.opt(3)?;
    super::conv::with_bias(c, sums, bias)
}
