//! RoiAlign: averages or maxima of samples in a grid of bins over each region.

use super::grid::rows_of;
use crate::ctx::Ctx;
use crate::errors;
use pando_base::{BinaryFn, CompareFn, DType, ReduceFn, Result, UnaryFn};
use pando_graph::{Dim, Dims, TensorType, ValueId};

/// More samples per bin and axis than this are refused.
const MAX_SAMPLES: u64 = 64;

/// What is the same for both axes.
struct Regions {
    /// `[R, 4]` in f32: x1, y1, x2, y2.
    edges: ValueId,
    scale: f64,
    offset: f64,
    /// Samples per bin and axis; 0 for as many as the region's size asks.
    ratio: u64,
}

/// The regions along one axis of the operand.
struct Axis {
    size: u64,
    bins: u64,
    begin: ValueId,
    extent: ValueId,
    /// Samples per bin of each region, in f32, and the most of them.
    counts: ValueId,
    most: u64,
}

/// A neighbour of every sample: `[R, bins, samples]` places and weights.
type Tap = (ValueId, ValueId);

pub(super) fn roi_align(c: &mut Ctx) -> Result<ValueId> {
    let (x, rois, batches) = (c.x(0)?, c.x(1)?, c.x(2)?);
    c.need_rank(rois, 2..=2)?;
    c.need_rank(batches, 1..=1)?;
    let (shape, dtype) = (c.shape(x)?, c.dtype(x));
    let [_, _, height, width] = shape[..] else {
        return Err(errors::invalid("the operand needs rank 4"));
    };
    let half_pixel = c.string("coordinate_transformation_mode", "half_pixel") == "half_pixel";
    let regions = Regions {
        edges: c.b.convert(rois, DType::F32)?,
        scale: c.float("spatial_scale", 1.0),
        offset: if half_pixel && c.version >= 16 { 0.5 } else { 0.0 },
        ratio: u64::try_from(c.int("sampling_ratio", 0)).unwrap_or(0),
    };
    let y = regions.axis(c, 0, "output_height", height)?;
    let x_axis = regions.axis(c, 1, "output_width", width)?;
    let rows = rows_of(c, x)?;
    let result = reduced(c, rows, batches, &y, &x_axis)?;
    let result = c.b.transpose(result, &[0, 3, 1, 2])?;
    c.b.convert(result, dtype)
}

/// All samples, summed or compared within their bins: `[R, bins of y, bins of x, C]`.
fn reduced(c: &mut Ctx, rows: ValueId, batches: ValueId, y: &Axis, x: &Axis) -> Result<ValueId> {
    let all = Dims::from_iter([
        c.dims(batches)[0].clone(),
        y.bins.into(),
        y.most.into(),
        x.bins.into(),
        x.most.into(),
    ]);
    let batches = c.b.convert(batches, DType::I64)?;
    let first = c.b.broadcast(batches, all.clone(), &[0])?;
    let max = c.string("mode", "avg") == "max";
    // Maxima are over the weighted corners, averages over their sums.
    let (func, combine) = if max { (ReduceFn::Max, BinaryFn::Max) } else { (ReduceFn::Sum, BinaryFn::Add) };
    let mut total = None;
    let (y_taps, y_used) = y.taps(c)?;
    let (x_taps, x_used) = x.taps(c)?;
    for &(y_place, y_weight) in &y_taps {
        for &(x_place, x_weight) in &x_taps {
            let of_y = |c: &mut Ctx, value| c.b.broadcast(value, all.clone(), &[0, 1, 2]);
            let of_x = |c: &mut Ctx, value| c.b.broadcast(value, all.clone(), &[0, 3, 4]);
            let (y_place, x_place) = (of_y(c, y_place)?, of_x(c, x_place)?);
            let (y_weight, x_weight) = (of_y(c, y_weight)?, of_x(c, x_weight)?);
            let row = c.times_n(first, y.size as f64)?;
            let row = c.b.add(row, y_place)?;
            let row = c.times_n(row, x.size as f64)?;
            let place = c.b.add(row, x_place)?;
            let value = c.b.gather(rows, place, 0)?;
            let weight = c.b.mul(y_weight, x_weight)?;
            let weight = c.b.broadcast(weight, c.dims(value), &[0, 1, 2, 3, 4])?;
            let part = c.b.mul(value, weight)?;
            total = Some(match total {
                None => part,
                Some(total) => c.b.binary(combine, total, part)?,
            });
        }
    }
    let mut total = total.ok_or_else(|| errors::invalid("there is nothing to sample"))?;
    let (y_used, x_used) =
        (c.b.broadcast(y_used, all.clone(), &[0, 1, 2])?, c.b.broadcast(x_used, all, &[0, 3, 4])?);
    let used = c.b.and(y_used, x_used)?;
    let used = c.b.broadcast(used, c.dims(total), &[0, 1, 2, 3, 4])?;
    let nothing = c.b.splat_like(total, if max { f64::NEG_INFINITY } else { 0.0 })?;
    total = c.b.select(used, total, nothing)?;
    let result = c.b.reduce(func, total, &[2, 4])?;
    if max {
        return Ok(result);
    }
    let samples = c.b.mul(y.counts, x.counts)?;
    let samples = c.max_n(samples, 1.0)?;
    let samples = c.b.broadcast(samples, c.dims(result), &[0])?;
    c.b.div(result, samples)
}

impl Regions {
    /// Along axis 0 (y) or 1 (x).
    fn axis(&self, c: &mut Ctx, axis: u64, bins: &str, size: u64) -> Result<Axis> {
        let bins = c.int(bins, 1).clamp(1, 1 << 20) as u64;
        let edge = |c: &mut Ctx, column: u64| -> Result<ValueId> {
            let edge = c.pick(self.edges, 1, column)?;
            let scaled = c.times_n(edge, self.scale)?;
            c.plus_n(scaled, -self.offset)
        };
        let (begin, end) = (edge(c, 1 - axis)?, edge(c, 3 - axis)?);
        let mut extent = c.b.sub(end, begin)?;
        if self.offset == 0.0 {
            extent = c.max_n(extent, 1.0)?;
        }
        let (counts, most) = self.samples(c, extent, bins)?;
        if !(1..=MAX_SAMPLES).contains(&most) {
            return Err(errors::invalid(format!(
                "{most} samples per bin and axis, 1 to {MAX_SAMPLES} are supported"
            )));
        }
        Ok(Axis { size, bins, begin, extent, counts, most })
    }

    /// Samples per bin: stated, or one for each element that a bin of the region covers.
    fn samples(&self, c: &mut Ctx, extent: ValueId, bins: u64) -> Result<(ValueId, u64)> {
        if self.ratio > 0 {
            return Ok((c.b.splat_like(extent, self.ratio as f64)?, self.ratio));
        }
        let per_bin = c.over_n(extent, bins as f64)?;
        let counts = c.un(UnaryFn::Ceil, per_bin)?;
        let known = c.decided(counts)?.ok_or_else(|| errors::needs_value(1))?;
        Ok((counts, known.to_f64().into_iter().fold(1.0, f64::max) as u64))
    }
}

impl Axis {
    /// The two neighbours of every sample, and which samples are used. Samples beyond the operand by more than
    /// one element weigh nothing.
    fn taps(&self, c: &mut Ctx) -> Result<([Tap; 2], ValueId)> {
        let dims = Dims::from_iter([c.dims(self.begin)[0].clone(), self.bins.into(), Dim::Known(self.most)]);
        let ty = TensorType { dtype: DType::F32, dims: dims.clone() };
        let (bin, sample) = (c.b.iota(ty.clone(), 1)?, c.b.iota(ty, 2)?);
        let counts = c.b.broadcast(self.counts, dims.clone(), &[0])?;
        let used = c.b.compare(CompareFn::Lt, sample, counts)?;
        let counts = c.max_n(counts, 1.0)?;
        let middle = c.plus_n(sample, 0.5)?;
        let within = c.b.div(middle, counts)?;
        let steps = c.b.add(bin, within)?;
        let steps = c.over_n(steps, self.bins as f64)?;
        let begin = c.b.broadcast(self.begin, dims.clone(), &[0])?;
        let extent = c.b.broadcast(self.extent, dims, &[0])?;
        let along = c.b.mul(steps, extent)?;
        let at = c.b.add(begin, along)?;
        Ok((neighbours(c, at, self.size)?, used))
    }
}

fn neighbours(c: &mut Ctx, at: ValueId, size: u64) -> Result<[Tap; 2]> {
    let (low, high) = (c.cmp_n(CompareFn::Ge, at, -1.0)?, c.cmp_n(CompareFn::Le, at, size as f64)?);
    let valid = c.b.and(low, high)?;
    let valid = c.b.convert(valid, DType::F32)?;
    let last = size as f64 - 1.0;
    let at = c.max_n(at, 0.0)?;
    let at = c.min_n(at, last)?;
    let base = c.b.floor(at)?;
    let ratio = c.b.sub(at, base)?;
    let next = c.plus_n(base, 1.0)?;
    let next = c.min_n(next, last)?;
    let rest = c.n_minus(1.0, ratio)?;
    let (near, far) = (c.b.mul(rest, valid)?, c.b.mul(ratio, valid)?);
    Ok([(c.b.convert(base, DType::I64)?, near), (c.b.convert(next, DType::I64)?, far)])
}
