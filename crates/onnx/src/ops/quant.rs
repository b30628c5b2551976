//! Quantisation.

use super::cast::convert;
use super::conv::{along, centred, convolve};
use super::matmul;
use crate::ctx::Ctx;
use crate::elem::Elem;
use crate::errors;
use crate::import::Value;
use pando_base::{BinaryFn, DType, ReduceFn, Result, UnaryFn};
use pando_graph::{Dim, ValueId};

/// A scale or zero point in the dimensions of `x`: one number, one per index of an axis, or one per block
/// along it.
fn spread(c: &mut Ctx, value: ValueId, x: ValueId) -> Result<ValueId> {
    let (rank, own) = (c.rank(x), c.rank(value));
    let block = u64::try_from(c.int("block_size", 0)).unwrap_or(0);
    if own <= 1 || block == 0 {
        // A vector of one number stands for the whole, whatever axis is named.
        let along_axis = own == 1 && rank > 0 && c.dims(value)[0] != Dim::Known(1);
        let axis = if along_axis { Some(c.axis_of(c.int("axis", 1), rank)?) } else { None };
        return along(c, value, x, axis);
    }
    let axis = c.axis_of(c.int("axis", 1), rank)?;
    let size = c.size(x, axis)?;
    let mut wide = c.dims(value);
    wide.insert(axis + 1, Dim::Known(block));
    let kept: Vec<usize> = (0..=rank).filter(|&other| other != axis + 1).collect();
    let repeated = c.b.broadcast(value, wide, &kept)?;
    let merged = c.flatten(repeated, axis, axis + 2)?;
    c.part(merged, axis, 0, size)
}

/// Rounded to the nearest, ties to even, moved by the zero point, and cut to the type's range.
pub(super) fn quantised(c: &mut Ctx, scaled: ValueId, zero: Option<ValueId>, to: Elem) -> Result<ValueId> {
    let scaled = c.b.convert(scaled, DType::F32)?;
    let mut whole = c.un(UnaryFn::Round, scaled)?;
    if let Some(zero) = zero {
        let zero = c.b.convert(zero, DType::F32)?;
        whole = c.plus(whole, zero)?;
    }
    cut(c, whole, to)
}

/// Whole numbers cut to the type's range.
pub(super) fn cut(c: &mut Ctx, whole: ValueId, to: Elem) -> Result<ValueId> {
    let (Some((low, high)), Some(dtype)) = (to.int_range(), to.dtype()) else {
        return Err(errors::unsupported_elem(to));
    };
    let above = c.max_n(whole, low as f64)?;
    let inside = c.min_n(above, high as f64)?;
    c.b.convert(inside, dtype)
}

pub(super) fn quantize_linear(c: &mut Ctx) -> Result<Vec<Value>> {
    let (x, scale, zero) = (c.x(0)?, c.x(1)?, c.opt(2)?);
    let stated = c.int("output_dtype", 0) as i32;
    let to = match (zero, stated) {
        (Some(_), _) => c.elem(2)?,
        (None, 0) => Elem::UINT8,
        (None, code) => Elem(code),
    };
    let precision = Elem(c.int("precision", 0) as i32).dtype();
    let dtype = precision.unwrap_or(if c.dtype(x).is_float() { c.dtype(x) } else { DType::F32 });
    let x = c.b.convert(x, dtype)?;
    let scale = c.b.convert(scale, dtype)?;
    let scale = spread(c, scale, x)?;
    let scaled = c.b.div(x, scale)?;
    let result = if to.int_range().is_some() {
        let zero = match zero {
            Some(zero) => {
                let zero = c.b.convert(zero, DType::F32)?;
                Some(spread(c, zero, x)?)
            }
            None => None,
        };
        quantised(c, scaled, zero, to)?
    } else {
        let saturate = c.flag("saturate", true);
        convert(c.b, scaled, to, saturate)?
    };
    Ok(vec![Value::typed(result, to)])
}

pub(super) fn dequantize_linear(c: &mut Ctx) -> Result<Vec<Value>> {
    let (x, scale, zero) = (c.x(0)?, c.x(1)?, c.opt(2)?);
    let elem =
        c.int_opt("output_dtype").filter(|&code| code != 0).map_or(c.elem(1)?, |code| Elem(code as i32));
    let to = elem.dtype().ok_or_else(|| errors::unsupported_elem(elem))?;
    let mut value = c.b.convert(x, DType::F32)?;
    if let Some(zero) = zero.filter(|&zero| !c.dtype(zero).is_float()) {
        let zero = c.b.convert(zero, DType::F32)?;
        let zero = spread(c, zero, value)?;
        value = c.b.sub(value, zero)?;
    }
    let scale = c.b.convert(scale, DType::F32)?;
    let scale = spread(c, scale, value)?;
    let scaled = c.b.mul(value, scale)?;
    Ok(vec![Value::typed(c.b.convert(scaled, to)?, elem)])
}

pub(super) fn dynamic_quantize_linear(c: &mut Ctx) -> Result<Vec<Value>> {
    let x = c.x(0)?;
    let axes: Vec<usize> = (0..c.rank(x)).collect();
    let (high, low) = (c.b.reduce(ReduceFn::Max, x, &axes)?, c.b.reduce(ReduceFn::Min, x, &axes)?);
    let (high, low) = (c.max_n(high, 0.0)?, c.min_n(low, 0.0)?);
    let range = c.b.sub(high, low)?;
    let empty = c.cmp_n(pando_base::CompareFn::Eq, range, 0.0)?;
    let one = c.b.splat_like(range, 1.0)?;
    let range = c.b.select(empty, one, range)?;
    let scale = c.over_n(range, 255.0)?;
    let steps = c.b.div(low, scale)?;
    let zero = c.b.neg(steps)?;
    let zero = c.max_n(zero, 0.0)?;
    let zero = c.min_n(zero, 255.0)?;
    let zero = c.un(UnaryFn::Round, zero)?;
    let scaled = c.over(x, scale)?;
    let quantised = quantised(c, scaled, Some(zero), Elem::UINT8)?;
    let zero = c.b.convert(zero, DType::U8)?;
    Ok([quantised, scale, zero].map(|id| Value::tensor(c.b, id)).to_vec())
}

/// Zero points of a matrix product's left side count per row, of its right side per column.
fn matrix_operand(c: &mut Ctx, x: usize, zero: usize, rows: bool) -> Result<ValueId> {
    let value = c.x(x)?;
    c.need_rank(value, 1..=usize::MAX)?;
    let rank = c.rank(value);
    let per_row = match c.opt(zero)? {
        Some(zero) => c.rank(zero) == 1,
        None => false,
    };
    let axis = per_row.then(|| if rows { rank.saturating_sub(2) } else { rank - 1 });
    centred(c, x, zero, axis)
}

pub(super) fn matmul_integer(c: &mut Ctx) -> Result<ValueId> {
    let (x, y) = (matrix_operand(c, 0, 2, true)?, matrix_operand(c, 1, 3, false)?);
    matmul::product(c, x, y, None)
}

/// Exact integer sums, times `scale_x · scale_y / scale_result`, quantised.
fn requantise(c: &mut Ctx, sums: ValueId, factor: ValueId, zero: usize) -> Result<Vec<Value>> {
    let (zero_value, to) = (c.x(zero)?, c.elem(zero)?);
    let sums = c.b.convert(sums, DType::F32)?;
    let scaled = c.times(sums, factor)?;
    let result = quantised(c, scaled, Some(zero_value), to)?;
    Ok(vec![Value::typed(result, to)])
}

/// The product of two scales over a third, in f32.
fn factor(c: &mut Ctx, scales: [usize; 3]) -> Result<ValueId> {
    let mut values = Vec::new();
    for position in scales {
        let scale = c.x(position)?;
        values.push(c.b.convert(scale, DType::F32)?);
    }
    let product = c.times(values[0], values[1])?;
    c.bin(BinaryFn::Div, product, values[2])
}

pub(super) fn qlinear_matmul(c: &mut Ctx) -> Result<Vec<Value>> {
    let (x, y) = (matrix_operand(c, 0, 2, true)?, matrix_operand(c, 3, 5, false)?);
    let sums = matmul::product(c, x, y, None)?;
    // A scale per row of the left side stands in a column.
    let left = c.x(1)?;
    let factor = if c.rank(left) == 1 && c.dims(left)[0] != Dim::Known(1) {
        let column = c.unsqueeze(left, &[1])?;
        let (right, result) = (c.x(4)?, c.x(6)?);
        let product = c.times(column, right)?;
        c.over(product, result)?
    } else {
        factor(c, [1, 4, 6])?
    };
    requantise(c, sums, factor, 7)
}

pub(super) fn qlinear_conv(c: &mut Ctx) -> Result<Vec<Value>> {
    let x = centred(c, 0, 2, None)?;
    let w = centred(c, 3, 5, Some(0))?;
    let mut sums = convolve(c, x, w, None)?;
    let bias = c.opt(8)?;
    sums = super::conv::with_bias(c, sums, bias)?;
    let factor = factor(c, [1, 4, 6])?;
    let factor = along(c, factor, sums, Some(1))?;
    requantise(c, sums, factor, 7)
}
