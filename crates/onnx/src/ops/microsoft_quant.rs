//! Quantised operators of `com.microsoft`: the plain operator in f32 between dequantising and quantising, or exact
//! integer sums that are scaled. Which rounding comes where is as in ONNX Runtime, whose operators they are.

use super::conv::centred;
use super::quant::{cut, dynamic_quantize_linear, matmul_integer, quantised};
use super::{activation, layout, matmul, microsoft, pool};
use crate::ctx::Ctx;
use crate::elem::Elem;
use crate::errors;
use crate::import::Value;
use pando_base::{BinaryFn, DType, Result, UnaryFn};
use pando_graph::{Dims, ValueId};

/// A scale or zero point in f32, a scalar if it is one number.
fn number(c: &mut Ctx, position: usize) -> Result<Option<ValueId>> {
    let Some(value) = c.opt(position)? else { return Ok(None) };
    let value = c.b.convert(value, DType::F32)?;
    match c.dims(value).iter().all(|dim| dim.known() == Some(1)) {
        true => c.b.reshape(value, Dims::new()).map(Some),
        false => Ok(Some(value)),
    }
}

fn required(c: &mut Ctx, position: usize) -> Result<ValueId> {
    number(c, position)?.ok_or_else(|| errors::missing_input(position))
}

/// `(x - zero) · scale`; operands stand one after the other.
fn real(c: &mut Ctx, x: usize) -> Result<ValueId> {
    let codes = c.x(x)?;
    real_of(c, codes, [x + 1, x + 2])
}

/// With the scale and zero point at these places.
fn real_of(c: &mut Ctx, codes: ValueId, [scale, zero]: [usize; 2]) -> Result<ValueId> {
    let mut value = c.b.convert(codes, DType::F32)?;
    let scale = required(c, scale)?;
    if let Some(zero) = number(c, zero)? {
        value = c.minus(value, zero)?;
    }
    c.times(value, scale)
}

/// Codes of type `to` for a value, with the scale and zero point at `scale` and the place after it.
fn codes(c: &mut Ctx, value: ValueId, scale: usize, to: Elem) -> Result<Vec<Value>> {
    let (scale, zero) = (required(c, scale)?, number(c, scale + 1)?);
    let scaled = c.over(value, scale)?;
    let result = quantised(c, scaled, zero, to)?;
    Ok(vec![Value::typed(result, to)])
}

/// As [`codes`], but rounded with the zero point added: halves go to even codes.
fn codes_rounded_last(c: &mut Ctx, value: ValueId, scale: usize, to: Elem) -> Result<Vec<Value>> {
    let (scale, zero) = (required(c, scale)?, number(c, scale + 1)?);
    let mut scaled = c.over(value, scale)?;
    if let Some(zero) = zero {
        scaled = c.plus(scaled, zero)?;
    }
    let whole = c.un(UnaryFn::Round, scaled)?;
    Ok(vec![Value::typed(cut(c, whole, to)?, to)])
}

fn between(c: &mut Ctx, func: BinaryFn) -> Result<Vec<Value>> {
    let (x, y, to) = (real(c, 0)?, real(c, 3)?, c.elem(0)?);
    let result = c.bin(func, x, y)?;
    codes_rounded_last(c, result, 6, to)
}

pub(super) fn qlinear_add(c: &mut Ctx) -> Result<Vec<Value>> {
    between(c, BinaryFn::Add)
}

pub(super) fn qlinear_mul(c: &mut Ctx) -> Result<Vec<Value>> {
    between(c, BinaryFn::Mul)
}

/// An operator of one operand: codes, scale and zero point, then those of the result.
fn of_one(c: &mut Ctx, plain: impl FnOnce(&mut Ctx) -> Result<ValueId>) -> Result<Vec<Value>> {
    let (result, to) = (of_real(c, plain)?, c.elem(0)?);
    codes(c, result, 3, to)
}

/// An operator on what the codes of input 0 stand for.
fn of_real(c: &mut Ctx, plain: impl FnOnce(&mut Ctx) -> Result<ValueId>) -> Result<ValueId> {
    let x = real(c, 0)?;
    let value = Value::tensor(c.b, x);
    let codes = c.inputs[0].replace(value);
    let result = plain(c)?;
    c.inputs[0] = codes;
    Ok(result)
}

pub(super) fn qlinear_sigmoid(c: &mut Ctx) -> Result<Vec<Value>> {
    of_one(c, activation::sigmoid)
}

pub(super) fn qlinear_leaky_relu(c: &mut Ctx) -> Result<Vec<Value>> {
    of_one(c, activation::leaky_relu)
}

pub(super) fn qlinear_softmax(c: &mut Ctx) -> Result<Vec<Value>> {
    // The meaning of the axis changed with version 13 of the operator.
    c.version = c.int("opset", 13);
    of_one(c, activation::softmax)
}

pub(super) fn qlinear_average_pool(c: &mut Ctx) -> Result<Vec<Value>> {
    let (result, to) = (of_real(c, |c| channels_last(c, pool::average_pool))?, c.elem(0)?);
    codes_rounded_last(c, result, 3, to)
}

pub(super) fn qlinear_global_average_pool(c: &mut Ctx) -> Result<Vec<Value>> {
    of_one(c, |c| channels_last(c, pool::global_average_pool))
}

/// Runs an operator whose channels come second on an operand whose channels may come last.
fn channels_last(c: &mut Ctx, plain: impl FnOnce(&mut Ctx) -> Result<ValueId>) -> Result<ValueId> {
    if !c.flag("channels_last", false) {
        return plain(c);
    }
    let result = channels_second(c, plain)?;
    to_last(c, result)
}

/// As if the channels of input 0, which come last, came second.
fn channels_second(c: &mut Ctx, plain: impl FnOnce(&mut Ctx) -> Result<ValueId>) -> Result<ValueId> {
    let x = c.x(0)?;
    c.need_rank(x, 3..=usize::MAX)?;
    let rank = c.rank(x);
    let perm: Vec<usize> = [0, rank - 1].into_iter().chain(1..rank - 1).collect();
    let moved = c.b.transpose(x, &perm)?;
    c.inputs[0] = Some(Value::typed(moved, c.elem(0)?));
    plain(c)
}

fn to_last(c: &mut Ctx, x: ValueId) -> Result<ValueId> {
    let perm: Vec<usize> = [0].into_iter().chain(2..c.rank(x)).chain([1]).collect();
    c.b.transpose(x, &perm)
}

pub(super) fn nhwc_max_pool(c: &mut Ctx) -> Result<ValueId> {
    let result = channels_second(c, |c| match pool::max_pool(c)?.first() {
        Some(Value::Tensor(max)) => Ok(max.id),
        _ => Err(errors::missing_input(0)),
    })?;
    to_last(c, result)
}

/// The result's scale and zero point come first, then each part's codes, scale and zero point.
pub(super) fn qlinear_concat(c: &mut Ctx) -> Result<Vec<Value>> {
    let to = c.elem(2)?;
    let parts = (2..c.inputs.len()).step_by(3).map(|x| real(c, x)).collect::<Result<Vec<_>>>()?;
    let joined = layout::concat_of(c, &parts, c.int("axis", 1))?;
    codes(c, joined, 0, to)
}

/// Integer sums times both scales, and a bias.
fn scaled_sums(c: &mut Ctx, sums: ValueId, scales: [ValueId; 2], bias: Option<ValueId>) -> Result<ValueId> {
    let factor = c.times(scales[0], scales[1])?;
    let sums = c.b.convert(sums, DType::F32)?;
    let result = c.times(sums, factor)?;
    match bias {
        Some(bias) => c.plus(result, bias),
        None => Ok(result),
    }
}

/// `A, B, scale of A, scale of B, zero of A, zero of B, bias`.
pub(super) fn matmul_integer_to_float(c: &mut Ctx) -> Result<ValueId> {
    let (scales, bias) = ([required(c, 2)?, required(c, 3)?], c.opt(6)?);
    c.inputs.resize(7, None);
    c.inputs.drain(2..4);
    c.inputs.truncate(4);
    let sums = matmul_integer(c)?;
    scaled_sums(c, sums, scales, bias)
}

/// `A` in f32, `B, scale of B, zero of B, bias`: A is quantised as its range asks.
pub(super) fn dynamic_quantize_matmul(c: &mut Ctx) -> Result<ValueId> {
    let (scale, bias) = (required(c, 2)?, c.opt(4)?);
    let (weights, weights_zero) = (c.value(1)?.clone(), c.value_opt(3).cloned());
    let [codes, x_scale, zero]: [Value; 3] =
        dynamic_quantize_linear(c)?.try_into().expect("quantising gives codes, a scale and a zero point");
    let Value::Tensor(x_scale) = x_scale else { return Err(errors::missing_input(0)) };
    c.inputs = vec![Some(codes), Some(weights), Some(zero), weights_zero];
    let sums = matmul_integer(c)?;
    scaled_sums(c, sums, [x_scale.id, scale], bias)
}

/// Attention whose projection is of codes: `x, weights, bias, scale of x, scale of the weights, mask, zero of x, zero of
/// the weights, past`.
pub(super) fn qattention(c: &mut Ctx) -> Result<Vec<Value>> {
    let (scales, bias) = ([required(c, 3)?, required(c, 4)?], c.opt(2)?);
    let given = std::mem::take(&mut c.inputs);
    let pick = |places: &[usize]| places.iter().map(|&at| given.get(at).cloned().flatten()).collect();
    c.inputs = pick(&[0, 1, 6, 7]);
    let sums = matmul_integer(c)?;
    let projected = scaled_sums(c, sums, scales, bias)?;
    // Where those of Attention are.
    c.inputs = pick(&[0, 1, 2, 5, 8]);
    microsoft::attention_of(c, projected)
}

/// `ids of words, of segments, tables of words, places and segments, scale and bias of the norm, mask`, then the scales of
/// the five, then their zero points.
pub(super) fn qembed_layer_normalization(c: &mut Ctx) -> Result<Vec<Value>> {
    let numbers = |table: usize| [6 + table, 11 + table];
    let (gamma, beta) = (c.x(5)?, c.x(6)?);
    let norm = (real_of(c, gamma, numbers(5))?, Some(real_of(c, beta, numbers(6))?));
    microsoft::embed_layer_norm_of(c, None, norm, |c, table, ids| {
        let (codes, numbers) = (c.x(table)?, numbers(table));
        let rows = c.b.gather(codes, ids, 0)?;
        real_of(c, rows, numbers)
    })
}

/// `A, scale, zero, B, scale, zero, C, scale of the result, zero of the result`; C is added to the integer sums. Without
/// the last two the result is in f32.
pub(super) fn qgemm(c: &mut Ctx) -> Result<Vec<Value>> {
    // Numbers of the right side count per column of the result.
    let columns = usize::from(!c.flag("transB", false));
    let (x, y) = (centred(c, 0, 2, None)?, centred(c, 3, 5, Some(columns))?);
    let mut sums = matmul::matrix_product(c, x, y)?;
    if let Some(bias) = c.opt(6)? {
        sums = c.plus(sums, bias)?;
    }
    let (x_scale, y_scale) = (required(c, 1)?, required(c, 4)?);
    let x_scale = c.times_n(x_scale, c.float("alpha", 1.0))?;
    let factor = c.times(x_scale, y_scale)?;
    let sums = c.b.convert(sums, DType::F32)?;
    let Some(result_scale) = number(c, 7)? else {
        let result = c.times(sums, factor)?;
        return Ok(vec![Value::tensor(c.b, result)]);
    };
    let factor = c.over(factor, result_scale)?;
    let scaled = c.times(sums, factor)?;
    let (zero, to) = (number(c, 8)?, c.elem(0)?);
    Ok(vec![Value::typed(quantised(c, scaled, zero, to)?, to)])
}
