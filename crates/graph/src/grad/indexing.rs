//! Rules of gather and scatter, which are each other's: both clamp indices.

use super::layout::inverse;
use super::{Gradients, Visit, reduce};
use crate::builder::Builder;
use crate::dims;
use crate::module::ValueId;
use crate::types::{Dim, TensorType};
use pando_base::{CompareFn, DType, ReduceFn, Result};
use rustc_hash::FxHashSet;
use smallvec::smallvec;

pub(super) fn gather(b: &mut Builder, at: &Visit, axis: usize) -> Result<Gradients> {
    let (data, indices) = (at.operand(0), at.operand(1));
    let (ty, index_dims) = (b.ty(data).clone(), b.ty(indices).dims.clone());
    let mut count = index_dims.clone();
    if count.len() != 1 {
        let sizes = b.ty(indices).require_shape()?;
        count = smallvec![Dim::Known(sizes.num_elements())];
    }
    let indices = b.reshape(indices, count.clone())?;
    let rows = b.reshape(at.gradient(), dims::replace(&ty.dims, axis, &count))?;
    let zeros = b.splat(&ty, 0.0)?;
    Ok(smallvec![Some(b.scatter(zeros, indices, rows, axis, Some(ReduceFn::Sum))?), None])
}

pub(super) fn scatter(
    b: &mut Builder,
    at: &Visit,
    axis: usize,
    combine: Option<ReduceFn>,
) -> Result<Gradients> {
    let gradient = at.gradient();
    match combine {
        None => at.each(|position| match position {
            0 => {
                let zeros = b.splat_like(at.operand(2), 0.0)?;
                b.scatter(gradient, at.operand(1), zeros, axis, None)
            }
            _ => overwriting(b, at, axis),
        }),
        Some(ReduceFn::Sum) => at.each(|position| match position {
            0 => Ok(gradient),
            _ => b.gather(gradient, at.operand(1), axis),
        }),
        Some(func) => combining(b, at, axis, func),
    }
}

/// Of several updates of a row the last one stays.
fn overwriting(b: &mut Builder, at: &Visit, axis: usize) -> Result<ValueId> {
    let (indices, updates) = (at.operand(1), at.operand(2));
    let gathered = b.gather(at.gradient(), indices, axis)?;
    let rows = b.ty(at.operand(0)).dims[axis].clone();
    if are_distinct(b, indices, &rows) {
        return Ok(gathered);
    }
    let number = TensorType { dtype: DType::I32, dims: b.ty(indices).dims.clone() };
    let own = b.iota(number, 0)?;
    let nobody = b.splat(&TensorType::new(DType::I32, [rows]), 0.0)?;
    let last = b.scatter(nobody, indices, own, 0, None)?;
    let last = b.gather(last, indices, 0)?;
    let stays = b.compare(CompareFn::Eq, last, own)?;
    let stays = b.broadcast(stays, b.ty(updates).dims.clone(), &[axis])?;
    let zeros = b.splat_like(updates, 0.0)?;
    b.select(stays, gathered, zeros)
}

fn are_distinct(b: &Builder, indices: ValueId, rows: &Dim) -> bool {
    if b.ty(indices).dims[0] == Dim::Known(1) {
        return true;
    }
    let (Some(indices), Some(rows)) = (b.known(indices), rows.known()) else { return false };
    let mut seen = FxHashSet::default();
    indices.to_ints().into_iter().all(|index| seen.insert(index.clamp(0, i128::from(rows) - 1)))
}

/// Product, maximum or minimum: as the reduction of each row with all that is scattered to it.
fn combining(b: &mut Builder, at: &Visit, axis: usize, func: ReduceFn) -> Result<Gradients> {
    let (data, indices, updates) = (at.operand(0), at.operand(1), at.operand(2));
    let group = reduce::Group { func, all: at.result(), gradient: at.gradient() };
    let spread = |b: &mut Builder, whole: ValueId, member: usize| match member {
        0 => Ok(whole),
        _ => b.gather(whole, indices, axis),
    };
    let collect = |b: &mut Builder, func: ReduceFn, members: [ValueId; 2]| {
        b.scatter(members[0], indices, members[1], axis, Some(func))
    };
    let [data, updates] = reduce::members(b, &group, [data, updates], spread, collect)?;
    Ok(smallvec![Some(data), None, Some(updates)])
}

/// The sum of `gradient` elements at the places along `axis` that `positions`, of its dimensions, says:
/// `result[…, positions[…, i, …], …] += gradient[…, i, …]`.
pub(super) fn scatter_along(
    b: &mut Builder,
    gradient: ValueId,
    positions: ValueId,
    axis: usize,
) -> Result<ValueId> {
    let ty = b.ty(gradient).clone();
    // With the axis first, an element's place in all elements is its position × the rest + its place there.
    let mut perm: Vec<usize> = (0..ty.rank()).collect();
    perm.remove(axis);
    perm.insert(0, axis);
    let (gradient, positions) = (b.transpose(gradient, &perm)?, b.transpose(positions, &perm)?);
    let moved = b.ty(gradient).clone();
    let shape = moved.require_shape()?;
    let (rows, rest) = (shape[0], shape[1..].iter().product::<u64>());
    let positions = b.reshape(positions, [rows, rest])?;
    let stride = b.splat_like(positions, rest as f64)?;
    let column = b.iota(TensorType::new(DType::I32, [rows, rest]), 1)?;
    let row_start = b.mul(positions, stride)?;
    let places = b.add(row_start, column)?;
    let places = b.reshape(places, [rows * rest])?;
    let updates = b.reshape(gradient, [rows * rest])?;
    let zeros = b.splat_like(updates, 0.0)?;
    let sum = b.scatter(zeros, places, updates, 0, Some(ReduceFn::Sum))?;
    let sum = b.reshape(sum, moved.dims)?;
    b.transpose(sum, &inverse(&perm))
}
