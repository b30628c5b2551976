//! Convolutions.

use crate::ctx::Ctx;
use crate::errors;
use pando_base::{DType, Result};
use pando_graph::{Conv, Dim, ValueId};

/// One spatial attribute per axis, or ones.
pub(super) fn spatial(c: &Ctx, name: &str, rank: usize) -> Result<Vec<u64>> {
    let values = c.moderate_ints(name)?.unwrap_or_else(|| vec![1; rank]);
    let values: Option<Vec<u64>> = values.into_iter().map(|value| u64::try_from(value).ok()).collect();
    values
        .filter(|values| values.len() == rank)
        .ok_or_else(|| errors::wrong_attribute(name, format!("needs {rank} entries that are not negative")))
}

/// What a sliding window is padded with.
pub(super) fn pads(
    c: &Ctx,
    input: &[Dim],
    window: &[u64],
    strides: &[u64],
    dilations: &[u64],
) -> Result<Vec<(i64, i64)>> {
    let rank = window.len();
    let auto = c.string("auto_pad", "NOTSET");
    match auto.as_str() {
        "NOTSET" | "" => {
            let pads = c.moderate_ints("pads")?.unwrap_or_else(|| vec![0; 2 * rank]);
            if pads.len() != 2 * rank {
                return Err(errors::wrong_attribute("pads", format!("needs {} entries", 2 * rank)));
            }
            Ok((0..rank).map(|axis| (pads[axis], pads[axis + rank])).collect())
        }
        "VALID" => Ok(vec![(0, 0); rank]),
        "SAME_UPPER" | "SAME_LOWER" => (0..rank)
            .map(|axis| {
                let size = input[axis].known();
                let span =
                    ((window[axis].saturating_sub(1)).saturating_mul(dilations[axis])).saturating_add(1);
                let total = match size {
                    Some(size) => {
                        let outputs = size.div_ceil(strides[axis].max(1));
                        (outputs.saturating_sub(1) * strides[axis]).saturating_add(span).saturating_sub(size)
                    }
                    None if strides[axis] == 1 => span - 1,
                    None => return Err(errors::needs_size("a padded dimension")),
                } as i64;
                let less = total / 2;
                Ok(if auto == "SAME_UPPER" { (less, total - less) } else { (total - less, less) })
            })
            .collect(),
        other => Err(errors::wrong_attribute("auto_pad", format!("'{other}' is not known"))),
    }
}

pub(super) fn conv(c: &mut Ctx) -> Result<ValueId> {
    let (x, w, bias) = (c.x(0)?, c.x(1)?, c.opt(2)?);
    let result = convolve(c, x, w, None)?;
    with_bias(c, result, bias)
}

pub(super) fn convolve(c: &mut Ctx, x: ValueId, w: ValueId, dtype: Option<DType>) -> Result<ValueId> {
    c.need_rank(w, 2..=usize::MAX)?;
    let rank = c.rank(w) - 2;
    if c.rank(x) != c.rank(w) {
        return Err(errors::invalid("the operand and the kernel differ in rank"));
    }
    let window: Vec<u64> = (0..rank).map(|axis| c.size(w, axis + 2)).collect::<Result<_>>()?;
    let (strides, kernel_dilation) = (spatial(c, "strides", rank)?, spatial(c, "dilations", rank)?);
    let padding = pads(c, &c.dims(x)[2..], &window, &strides, &kernel_dilation)?;
    let groups = u64::try_from(c.int("group", 1)).unwrap_or(0);
    let input_dilation = vec![1; rank];
    c.b.conv(x, w, Conv { strides, padding, input_dilation, kernel_dilation, groups, dtype })
}

/// Adds one number per channel.
pub(super) fn with_bias(c: &mut Ctx, x: ValueId, bias: Option<ValueId>) -> Result<ValueId> {
    let Some(bias) = bias else { return Ok(x) };
    c.need_rank(x, 2..=usize::MAX)?;
    let bias = c.b.broadcast(bias, c.dims(x), &[1])?;
    c.b.add(x, bias)
}

/// com.microsoft: a convolution with an activation and perhaps a summand.
pub(super) fn fused_conv(c: &mut Ctx) -> Result<ValueId> {
    let mut x = conv(c)?;
    if let Some(summand) = c.opt(3)? {
        x = c.plus(x, summand)?;
    }
    let params = c.floats("activation_params").unwrap_or_default();
    match c.string("activation", "").as_str() {
        "" => Ok(x),
        "Clip" => {
            let low = c.max_n(x, params.first().copied().unwrap_or(f64::NEG_INFINITY))?;
            c.min_n(low, params.get(1).copied().unwrap_or(f64::INFINITY))
        }
        name => super::activation::by_name(c, name, params.first().copied(), params.get(1).copied(), x),
    }
}

/// The kernel mirrored and with its channels exchanged over an operand spread by the strides.
pub(super) fn conv_transpose(c: &mut Ctx) -> Result<ValueId> {
    let (x, w, bias) = (c.x(0)?, c.x(1)?, c.opt(2)?);
    let rank = c.rank(w).saturating_sub(2);
    let shape = c.shape(w)?;
    let groups = u64::try_from(c.int("group", 1)).unwrap_or(0).max(1);
    let [inputs, outputs, window @ ..] = &shape[..] else {
        return Err(errors::invalid("the kernel needs rank 2 at least"));
    };
    if c.rank(x) != shape.len() || inputs % groups != 0 {
        return Err(errors::invalid("the operand, the kernel and the groups do not fit"));
    }
    let spatial_axes: Vec<usize> = (2..rank + 2).collect();
    let mirrored = c.b.reverse(w, &spatial_axes)?;
    let split: Vec<u64> =
        [groups, inputs / groups, *outputs].into_iter().chain(window.iter().copied()).collect();
    let split = c.reshape_to(mirrored, &split)?;
    let perm: Vec<usize> = [0, 2, 1].into_iter().chain(3..rank + 3).collect();
    let exchanged = c.b.transpose(split, &perm)?;
    let kernel: Vec<u64> =
        [groups * outputs, inputs / groups].into_iter().chain(window.iter().copied()).collect();
    let kernel = c.reshape_to(exchanged, &kernel)?;
    let (strides, dilations) = (spatial(c, "strides", rank)?, spatial(c, "dilations", rank)?);
    let padding = transposed_pads(c, x, window, &strides, &dilations)?;
    let conv = Conv {
        strides: vec![1; rank],
        padding,
        input_dilation: strides,
        kernel_dilation: dilations,
        groups,
        dtype: None,
    };
    let result = c.b.conv(x, kernel, conv)?;
    with_bias(c, result, bias)
}

/// What is left of the full padding after the attributes' crop.
fn transposed_pads(
    c: &Ctx,
    x: ValueId,
    window: &[u64],
    strides: &[u64],
    dilations: &[u64],
) -> Result<Vec<(i64, i64)>> {
    let rank = window.len();
    let auto = c.string("auto_pad", "NOTSET");
    let given =
        c.moderate_ints("pads")?.filter(|pads| pads.len() == 2 * rank).unwrap_or_else(|| vec![0; 2 * rank]);
    let extra =
        c.moderate_ints("output_padding")?.filter(|pads| pads.len() == rank).unwrap_or_else(|| vec![0; rank]);
    let output = c.moderate_ints("output_shape")?;
    let mut result = Vec::new();
    for axis in 0..rank {
        let span = (window[axis].saturating_sub(1).saturating_mul(dilations[axis])) as i64;
        let stride = strides[axis] as i64;
        let cropped = if output.is_some() || auto.starts_with("SAME") {
            let size = c.size(x, axis + 2)? as i64;
            let target = match &output {
                Some(shape) => shape.get(shape.len().saturating_sub(rank) + axis).copied().unwrap_or(0),
                None => size.saturating_mul(stride),
            };
            let room = (size - 1).saturating_mul(stride).saturating_add(span).min(1 << 60);
            let total = room + extra[axis] + 1 - target.min(1 << 60);
            let half = total.div_euclid(2);
            // SAME_UPPER and no stated side: the larger crop comes after for SAME_UPPER, before otherwise.
            if auto == "SAME_UPPER" { (half, total - half) } else { (total - half, half) }
        } else {
            (given[axis], given[axis + rank])
        };
        result.push((span - cropped.0, span - cropped.1 + extra[axis]));
    }
    Ok(result)
}

/// Integers minus their zero points, multiplied and summed exactly.
pub(super) fn conv_integer(c: &mut Ctx) -> Result<ValueId> {
    let x = centred(c, 0, 2, None)?;
    let w = centred(c, 1, 3, Some(0))?;
    convolve(c, x, w, None)
}

/// An operand as i32 without its zero point, which may have an entry along `axis`.
pub(super) fn centred(c: &mut Ctx, x: usize, zero: usize, axis: Option<usize>) -> Result<ValueId> {
    let x = c.x(x)?;
    let x = c.b.convert(x, DType::I32)?;
    let Some(zero) = c.opt(zero)? else { return Ok(x) };
    let zero = c.b.convert(zero, DType::I32)?;
    let zero = along(c, zero, x, axis)?;
    c.b.sub(x, zero)
}

/// A scalar, or a vector with an entry along an axis of `x`, in the dimensions of `x`.
pub(super) fn along(c: &mut Ctx, value: ValueId, x: ValueId, axis: Option<usize>) -> Result<ValueId> {
    let dims = c.dims(x);
    match (axis, c.rank(value)) {
        (Some(axis), 1) if c.dims(value)[0] != Dim::Known(1) => c.b.broadcast(value, dims, &[axis]),
        (_, 0 | 1) => {
            let scalar = c.b.reshape(value, pando_graph::Dims::new())?;
            c.b.broadcast(scalar, dims, &[])
        }
        _ => c.expand(value, &dims),
    }
}

/// Columns of windows added back to where they were taken from.
pub(super) fn col2im(c: &mut Ctx) -> Result<ValueId> {
    let x = c.x(0)?;
    let as_sizes =
        |ints: Vec<i64>| ints.into_iter().map(|size| size.clamp(0, 1 << 40) as u64).collect::<Vec<u64>>();
    let (image, window) = (as_sizes(c.known_ints(1)?), as_sizes(c.known_ints(2)?));
    let rank = image.len();
    let (strides, dilations) = (spatial(c, "strides", rank)?, spatial(c, "dilations", rank)?);
    let pads =
        c.moderate_ints("pads")?.filter(|pads| pads.len() == 2 * rank).unwrap_or_else(|| vec![0; 2 * rank]);
    let shape = c.shape(x)?;
    let taps = window.iter().fold(1u64, |n, &size| n.saturating_mul(size));
    let ([batch, rows, blocks], true) = (&shape[..], window.len() == rank && taps > 0) else {
        return Err(errors::invalid("the columns do not fit the window"));
    };
    let counts: Vec<u64> = (0..rank)
        .map(|axis| {
            let span = (window[axis].saturating_sub(1) * dilations[axis] + 1) as i64;
            let room = image[axis] as i64 + pads[axis] + pads[axis + rank] - span;
            (room.max(0) / strides[axis].max(1) as i64 + 1) as u64
        })
        .collect();
    if counts.iter().fold(1u64, |n, &size| n.saturating_mul(size)) != *blocks || rows % taps != 0 {
        return Err(errors::invalid("the columns do not fit the image"));
    }
    if taps.saturating_mul(*blocks) > 1 << 24 {
        return Err(errors::too_much_work("an image of more than 2^24 column elements"));
    }
    let mut places = Vec::new();
    let total = image.iter().fold(1u64, |n, &size| n.saturating_mul(size));
    for tap in pando_base::Shape::new(&window).indices() {
        for block in pando_base::Shape::new(&counts).indices() {
            let place = (0..rank).try_fold(0i64, |place, axis| {
                let at = (block[axis] * strides[axis] + tap[axis] * dilations[axis]) as i64 - pads[axis];
                (0..image[axis] as i64).contains(&at).then_some(place * image[axis] as i64 + at)
            });
            // Padding goes to one place more, which is cut off.
            places.push(place.unwrap_or(total as i64));
        }
    }
    let channels = rows / taps;
    let places = c.ints_const(DType::I64, &[places.len() as u64], &places);
    let columns = c.reshape_to(x, &[*batch, channels, taps * blocks])?;
    let ty = pando_graph::TensorType::new(c.dtype(x), [*batch, channels, total + 1]);
    let zeros = c.b.splat(&ty, 0.0)?;
    let sums = c.b.scatter(zeros, places, columns, 2, Some(pando_base::ReduceFn::Sum))?;
    let sums = c.part(sums, 2, 0, total)?;
    let out: Vec<u64> = [*batch, channels].into_iter().chain(image).collect();
    c.reshape_to(sums, &out)
}
