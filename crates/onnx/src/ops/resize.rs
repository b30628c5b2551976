//! Resize and Upsample: along each axis a few weighted gathers, whose places and weights are computed here.

use crate::ctx::Ctx;
use crate::errors;
use pando_base::{DType, Result};
use pando_graph::ValueId;

/// One axis: how many elements come out, and where they lie.
struct Axis {
    axis: usize,
    size: u64,
    output: u64,
    scale: f64,
    roi: (f64, f64),
}

/// How elements between others are made.
struct Method {
    mode: String,
    transformation: String,
    nearest: String,
    cubic: f64,
    exclude_outside: bool,
    antialias: bool,
    extrapolation: f64,
}

pub(super) fn resize(c: &mut Ctx) -> Result<ValueId> {
    let newer = c.version >= 11;
    let method = Method {
        mode: c.string("mode", "nearest"),
        transformation: c
            .string("coordinate_transformation_mode", if newer { "half_pixel" } else { "asymmetric" }),
        nearest: c.string("nearest_mode", if newer { "round_prefer_floor" } else { "floor" }),
        cubic: c.float("cubic_coeff_a", -0.75),
        exclude_outside: c.flag("exclude_outside", false),
        antialias: c.flag("antialias", false),
        extrapolation: c.float("extrapolation_value", 0.0),
    };
    let x = c.x(0)?;
    let axes = if newer { resize_axes(c, x)? } else { scaled_axes(c, x, 1)? };
    apply(c, x, &axes, &method)
}

pub(super) fn upsample(c: &mut Ctx) -> Result<ValueId> {
    let x = c.x(0)?;
    let method = Method {
        mode: c.string("mode", "nearest"),
        transformation: "asymmetric".into(),
        nearest: "floor".into(),
        cubic: -0.75,
        exclude_outside: false,
        antialias: false,
        extrapolation: 0.0,
    };
    let axes = scaled_axes(c, x, 1)?;
    apply(c, x, &axes, &method)
}

fn scales(c: &Ctx, position: usize) -> Result<Option<Vec<f64>>> {
    if let Some(scales) = c.floats("scales") {
        return Ok(Some(scales));
    }
    match c.opt(position)? {
        Some(_) => Ok(Some(c.known_tensor(position)?.to_f64()).filter(|scales| !scales.is_empty())),
        None => Ok(None),
    }
}

/// Axes of a factor per dimension.
fn scaled_axes(c: &Ctx, x: ValueId, position: usize) -> Result<Vec<Axis>> {
    let scales = scales(c, position)?.ok_or_else(|| errors::missing_input(position))?;
    let mut axes = Vec::new();
    for (axis, &scale) in scales.iter().enumerate().filter(|(_, scale)| **scale != 1.0) {
        let size = c.size(x, axis)?;
        axes.push(Axis { axis, size, output: (size as f64 * scale) as u64, scale, roi: (0.0, 1.0) });
    }
    Ok(axes)
}

/// Inputs: operand, region, factors, sizes; of the latter two one is given.
fn resize_axes(c: &Ctx, x: ValueId) -> Result<Vec<Axis>> {
    let axes = match c.ints("axes") {
        Some(axes) => c.axes_of(&axes, c.rank(x))?,
        None => (0..c.rank(x)).collect(),
    };
    let roi = match c.opt(1)? {
        Some(_) => c.known_tensor(1)?.to_f64(),
        None => vec![],
    };
    let region = |i: usize| match (roi.get(i), roi.get(i + axes.len())) {
        (Some(&begin), Some(&end)) => (begin, end),
        _ => (0.0, 1.0),
    };
    let plan = match scales(c, 2)? {
        Some(scales) => scales.into_iter().map(|scale| (scale, None)).collect(),
        None => sizes_plan(c, x, &axes)?,
    };
    if plan.len() != axes.len() {
        return Err(errors::invalid("scales or sizes need one entry per axis"));
    }
    let mut result = Vec::new();
    for (i, (&axis, (scale, output))) in axes.iter().zip(plan).enumerate() {
        if scale == 1.0 && region(i) == (0.0, 1.0) {
            continue;
        }
        let size = c.size(x, axis)?;
        let output = output.unwrap_or((size as f64 * scale).floor() as u64);
        result.push(Axis { axis, size, output, scale, roi: region(i) });
    }
    Ok(result)
}

/// Factor and size per axis of the sizes given, which may keep the proportions.
fn sizes_plan(c: &Ctx, x: ValueId, axes: &[usize]) -> Result<Vec<(f64, Option<u64>)>> {
    let sizes = c.known_ints(3)?;
    let own = axes.iter().map(|&axis| c.size(x, axis)).collect::<Result<Vec<u64>>>()?;
    let factors: Vec<f64> = sizes.iter().zip(&own).map(|(&to, &from)| to as f64 / from as f64).collect();
    let policy = c.string("keep_aspect_ratio_policy", "stretch");
    let one = match policy.as_str() {
        "not_larger" => factors.iter().copied().reduce(f64::min),
        "not_smaller" => factors.iter().copied().reduce(f64::max),
        _ => None,
    };
    Ok(match one {
        Some(factor) => {
            own.iter().map(|&size| (factor, Some((factor * size as f64 + 0.5).floor() as u64))).collect()
        }
        None => factors.into_iter().zip(&sizes).map(|(f, &size)| (f, u64::try_from(size).ok())).collect(),
    })
}

fn apply(c: &mut Ctx, x: ValueId, axes: &[Axis], method: &Method) -> Result<ValueId> {
    let dtype = c.dtype(x);
    let nearest = method.mode == "nearest";
    let mut result = if nearest { x } else { c.b.convert(x, DType::F32)? };
    for axis in axes {
        if axis.size == 0 || axis.size.max(axis.output) > 1 << 22 || !axis.scale.is_finite() {
            return Err(errors::invalid(format!("axis {} cannot be resized to {}", axis.axis, axis.output)));
        }
        result = along_axis(c, result, axis, method)?;
    }
    c.b.convert(result, dtype)
}

/// Weighted sums of neighbours along one axis.
fn along_axis(c: &mut Ctx, x: ValueId, axis: &Axis, method: &Method) -> Result<ValueId> {
    let places: Vec<Option<f64>> = (0..axis.output).map(|y| source(axis, method, y as f64)).collect();
    let taps: Vec<Vec<(i64, f64)>> = places.iter().map(|&at| taps(axis, method, at.unwrap_or(0.0))).collect();
    let count = taps.iter().map(Vec::len).max().unwrap_or(1);
    let mut sum: Option<ValueId> = None;
    for tap in 0..count {
        let at = |row: &Vec<(i64, f64)>| row.get(tap).map_or(0, |tap| tap.0.clamp(0, axis.size as i64 - 1));
        let indices: Vec<i64> = taps.iter().map(at).collect();
        let indices = c.ints_const(DType::I64, &[axis.output], &indices);
        let mut part = c.b.gather(x, indices, axis.axis)?;
        if method.mode != "nearest" {
            let weights: Vec<f64> = taps.iter().map(|row| row.get(tap).map_or(0.0, |tap| tap.1)).collect();
            let weights = c.floats_const(DType::F32, &[axis.output], &weights);
            let weights = c.b.broadcast(weights, c.dims(part), &[axis.axis])?;
            part = c.b.mul(part, weights)?;
        }
        sum = Some(match sum {
            None => part,
            Some(sum) => c.b.add(sum, part)?,
        });
    }
    let sum = sum.unwrap_or(x);
    if places.iter().all(Option::is_some) {
        return Ok(sum);
    }
    let inside: Vec<i64> = places.iter().map(|at| at.is_some().into()).collect();
    let inside = c.ints_const(DType::Bool, &[axis.output], &inside);
    let inside = c.b.broadcast(inside, c.dims(sum), &[axis.axis])?;
    let outside = c.b.splat_like(sum, method.extrapolation)?;
    c.b.select(inside, sum, outside)
}

/// Where an output element lies in the input; `None` if outside of the region that is cropped.
fn source(axis: &Axis, method: &Method, y: f64) -> Option<f64> {
    let (size, width) = (axis.size as f64, axis.scale * axis.size as f64);
    let half_pixel = (y + 0.5) / axis.scale - 0.5;
    Some(match method.transformation.as_str() {
        "align_corners" if width == 1.0 => 0.0,
        "align_corners" => y * (size - 1.0) / (width - 1.0),
        "asymmetric" => y / axis.scale,
        "pytorch_half_pixel" if width == 1.0 => -0.5,
        "half_pixel_symmetric" => size / 2.0 * (1.0 - axis.output as f64 / width) + half_pixel,
        "tf_crop_and_resize" => {
            let (begin, end) = axis.roi;
            let along = if width == 1.0 {
                (end - begin) * (size - 1.0) / 2.0
            } else {
                y * (end - begin) * (size - 1.0) / (width - 1.0)
            };
            let at = along + begin * (size - 1.0);
            return (0.0..=size - 1.0).contains(&at).then_some(at);
        }
        _ => half_pixel,
    })
}

/// Neighbours and their weights. An element that is hit exactly counts as the right one of two.
fn taps(axis: &Axis, method: &Method, at: f64) -> Vec<(i64, f64)> {
    let whole = at.fract() == 0.0;
    let base = if whole { at as i64 - 1 } else { at.floor() as i64 };
    let ratio = if whole { 1.0 } else { at - at.floor() };
    // Blurred over more neighbours only when made smaller.
    let shrink = if method.antialias { axis.scale.min(1.0) } else { 1.0 };
    let mut taps: Vec<(i64, f64)> = match method.mode.as_str() {
        "nearest" => {
            let right = whole
                || match method.nearest.as_str() {
                    "round_prefer_floor" => ratio > 0.5,
                    "round_prefer_ceil" => ratio >= 0.5,
                    mode => mode == "ceil",
                };
            vec![(base + i64::from(right), 1.0)]
        }
        "cubic" => {
            let first = (-2.0 / shrink).floor() as i64 + 1;
            let weight = |i: i64| cubic(shrink * (i as f64 - ratio), method.cubic);
            (first..2 - first).map(|i| (base + i, weight(i))).collect()
        }
        _ => {
            let first = (-1.0 / shrink).floor() as i64 + 1;
            let weight = |i: i64| (1.0 - (shrink * (i as f64 - ratio)).abs()).max(0.0);
            (first..2 - first).map(|i| (base + i, weight(i))).collect()
        }
    };
    if method.exclude_outside {
        taps.iter_mut().filter(|tap| !(0..axis.size as i64).contains(&tap.0)).for_each(|tap| tap.1 = 0.0);
    }
    let sum: f64 = taps.iter().map(|tap| tap.1).sum();
    if method.exclude_outside || method.antialias {
        taps.iter_mut().for_each(|tap| tap.1 /= sum);
    }
    taps
}

/// Keys's cubic convolution.
pub(super) fn cubic(x: f64, a: f64) -> f64 {
    let x = x.abs();
    if x <= 1.0 {
        ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    } else if x < 2.0 {
        ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a
    } else {
        0.0
    }
}
