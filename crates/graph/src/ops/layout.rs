//! Ops that arrange all elements anew.
//!
//! reshape: (C1) the number of elements stays, as far as names allow to tell.
//! transpose: (C1) `perm` holds every axis once.
//! broadcast: (C1) `axes` has one entry per operand dimension; (C2) they rise and are below the result's
//! rank; (C3) each operand dimension is 1 or equal to its result dimension.
//! reverse: (C1) `axes` are distinct and below the rank.

use super::{are_distinct_axes, check};
use crate::dims;
use crate::types::{Dim, Dims, TensorType};
use pando_base::Result;

pub(super) fn reshape(dims: &Dims, operand: &TensorType) -> Result<TensorType> {
    let result = TensorType { dtype: operand.dtype, dims: dims.clone() };
    check(dims::may_have_equal_products(&operand.dims, dims), "reshape", "C1", || {
        format!("{operand} does not have as many elements as {result}")
    })?;
    Ok(result)
}

pub(super) fn transpose(perm: &[usize], operand: &TensorType) -> Result<TensorType> {
    let rank = operand.rank();
    let is_perm = perm.len() == rank && are_distinct_axes(perm.iter().copied(), rank);
    check(is_perm, "transpose", "C1", || format!("perm {perm:?} does not hold each axis of {operand} once"))?;
    Ok(TensorType::new(operand.dtype, perm.iter().map(|&axis| operand.dims[axis].clone())))
}

pub(super) fn broadcast(dims: &Dims, axes: &[usize], operand: &TensorType) -> Result<TensorType> {
    check(axes.len() == operand.rank(), "broadcast", "C1", || {
        format!("{} axes for the operand {operand}", axes.len())
    })?;
    let rises = axes.windows(2).all(|pair| pair[0] < pair[1]);
    check(rises && axes.iter().all(|&axis| axis < dims.len()), "broadcast", "C2", || {
        format!("axes {axes:?} do not rise below the result's rank {}", dims.len())
    })?;
    for (dim, &axis) in operand.dims.iter().zip(axes) {
        check(*dim == Dim::Known(1) || *dim == dims[axis], "broadcast", "C3", || {
            format!("a dimension of size {dim} cannot become {} (axis {axis})", dims[axis])
        })?;
    }
    Ok(TensorType { dtype: operand.dtype, dims: dims.clone() })
}

pub(super) fn reverse(axes: &[usize], operand: &TensorType) -> Result<TensorType> {
    check(are_distinct_axes(axes.iter().copied(), operand.rank()), "reverse", "C1", || {
        format!("axes {axes:?} are not distinct axes of {operand}")
    })?;
    Ok(operand.clone())
}
