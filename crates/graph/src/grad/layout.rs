//! Rules of ops that move elements: the gradient moves back, and is added up where elements were copied.

use super::{Gradients, Visit};
use crate::builder::Builder;
use crate::dims;
use crate::module::ValueId;
use crate::op::{Pad, Slice};
use crate::types::{Dim, known_dims};
use pando_base::{DType, ReduceFn, Result, Shape};
use smallvec::smallvec;

pub(super) fn reshape(b: &mut Builder, at: &Visit) -> Result<Gradients> {
    let dims = b.ty(at.operand(0)).dims.clone();
    at.each(|_| b.reshape(at.gradient(), dims.clone()))
}

pub(super) fn transpose(b: &mut Builder, at: &Visit, perm: &[usize]) -> Result<Gradients> {
    at.each(|_| b.transpose(at.gradient(), &inverse(perm)))
}

pub(super) fn inverse(perm: &[usize]) -> Vec<usize> {
    let mut inverse = vec![0; perm.len()];
    for (to, &from) in perm.iter().enumerate() {
        inverse[from] = to;
    }
    inverse
}

pub(super) fn broadcast(b: &mut Builder, at: &Visit, axes: &[usize]) -> Result<Gradients> {
    at.each(|position| sum_to(b, at.gradient(), at.operand(position), axes))
}

/// The sum over all axes along which `x` was repeated to become as large as `gradient`.
pub(super) fn sum_to(b: &mut Builder, gradient: ValueId, x: ValueId, axes: &[usize]) -> Result<ValueId> {
    let (from, to) = (b.ty(x).dims.clone(), b.ty(gradient).dims.clone());
    let own = |axis: &usize| axes.iter().position(|own| own == axis);
    let is_repeated = |axis: &usize| own(axis).is_none_or(|own| from[own] != to[*axis]);
    let repeated: Vec<usize> = (0..to.len()).filter(is_repeated).collect();
    let sum = b.reduce(ReduceFn::Sum, gradient, &repeated)?;
    b.reshape(sum, from)
}

/// The extent of `size` elements, `step` apart.
pub(super) fn extent(size: u64, step: u64) -> u64 {
    size.saturating_sub(1) * step + size.min(1)
}

pub(super) fn zero(b: &mut Builder, dtype: DType) -> ValueId {
    b.scalar(dtype, 0.0)
}

pub(super) fn slice(b: &mut Builder, at: &Visit, slice: &Slice) -> Result<Gradients> {
    let [from, to] = [b.ty(at.operand(0)).clone(), b.ty(at.result()).clone()];
    if takes_a_prefix_of_names(slice, &from.dims, &to.dims) {
        return Ok(smallvec![Some(at.gradient())]);
    }
    let (from, to) = (from.require_shape()?, to.require_shape()?);
    // A step over no neighbour may be absurdly large.
    let step: Vec<u64> = (0..to.rank()).map(|axis| if to[axis] > 1 { slice.step[axis] } else { 1 }).collect();
    let high = |axis: usize| from[axis] as i64 - (slice.begin[axis] + extent(to[axis], step[axis])) as i64;
    let pad = Pad {
        low: slice.begin.iter().map(|&begin| begin as i64).collect(),
        high: (0..to.rank()).map(high).collect(),
        interior: step.iter().map(|step| step - 1).collect(),
    };
    let zero = zero(b, b.ty(at.gradient()).dtype);
    at.each(|_| b.pad(at.gradient(), zero, pad.clone()))
}

/// Nothing is cut off: the only slice of named sizes whose gradient's sizes are known to fit.
fn takes_a_prefix_of_names(slice: &Slice, from: &[Dim], to: &[Dim]) -> bool {
    from == to && slice.begin.iter().all(|&begin| begin == 0) && slice.step.iter().all(|&step| step == 1)
}

pub(super) fn pad(b: &mut Builder, at: &Visit, pad: &Pad) -> Result<Gradients> {
    let shape = b.ty(at.operand(0)).require_shape()?;
    at.each(|position| match position {
        0 => unpad(b, at.gradient(), pad, &shape),
        _ => filler(b, at, pad),
    })
}

/// The elements that a pad has placed; zero for those that it has cropped.
pub(super) fn unpad(b: &mut Builder, gradient: ValueId, pad: &Pad, shape: &Shape) -> Result<ValueId> {
    let step: Vec<u64> = pad.interior.iter().map(|gap| gap + 1).collect();
    let cropped = |edge: &[i64]| -> Vec<i64> { edge.iter().map(|&edge| (-edge).max(0)).collect() };
    let missing =
        Pad { low: cropped(&pad.low), high: cropped(&pad.high), interior: vec![0; pad.interior.len()] };
    let zero = zero(b, b.ty(gradient).dtype);
    let whole = b.pad(gradient, zero, missing)?;
    let begin: Vec<u64> = pad.low.iter().map(|&low| low.max(0) as u64).collect();
    let end = (0..shape.rank()).map(|axis| Dim::Known(begin[axis] + extent(shape[axis], step[axis])));
    b.slice(whole, Slice { end: end.collect(), begin, step })
}

/// The sum over all positions that are filled.
fn filler(b: &mut Builder, at: &Visit, pad: &Pad) -> Result<ValueId> {
    let gradient = at.gradient();
    let ty = b.ty(at.operand(0)).with_dtype(DType::Bool);
    let (taken, free) = (b.splat(&ty, 0.0)?, b.scalar(DType::Bool, 1.0));
    let filled = b.pad(taken, free, pad.clone())?;
    let zero = b.splat_like(gradient, 0.0)?;
    let counted = b.select(filled, gradient, zero)?;
    let axes: Vec<usize> = (0..ty.rank()).collect();
    b.reduce(ReduceFn::Sum, counted, &axes)
}

pub(super) fn concat(b: &mut Builder, at: &Visit, axis: usize) -> Result<Gradients> {
    let shapes: Vec<Shape> =
        at.node.operands.iter().map(|&part| b.ty(part).require_shape()).collect::<Result<_>>()?;
    at.each(|position| {
        let start: u64 = shapes[..position].iter().map(|shape| shape[axis]).sum();
        part(b, at.gradient(), axis, start, shapes[position][axis])
    })
}

/// `size` elements from `start` on, along an axis.
pub(super) fn part(b: &mut Builder, x: ValueId, axis: usize, start: u64, size: u64) -> Result<ValueId> {
    let shape = b.ty(x).require_shape()?;
    let mut slice =
        Slice { begin: vec![0; shape.rank()], end: known_dims(&shape), step: vec![1; shape.rank()] };
    slice.begin[axis] = start;
    slice.end[axis] = dims::offset(&Dim::Known(start), size.into()).expect("a part of a shape");
    b.slice(x, slice)
}
