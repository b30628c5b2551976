//! Ops that address rows by computed indices. Indices out of range are clamped to the nearest row.
//!
//! gather: (C1) `axis` is below the data's rank; (C2) indices are integers; (C3) there are rows.
//! scatter: (C1) `axis` is below the data's rank; (C2) indices are integers of rank 1; (C3) updates have
//! the data's type with as many rows as indices; (C4) `combine` exists for the type; (C5) there are rows.

use super::{check, elementwise};
use crate::dims;
use crate::types::{Dim, TensorType};
use pando_base::{ReduceFn, Result};

pub(super) fn gather(axis: usize, operands: &[&TensorType]) -> Result<TensorType> {
    let (data, indices) = (operands[0], operands[1]);
    check(axis < data.rank(), "gather", "C1", || format!("axis {axis} of {data}"))?;
    check(indices.dtype.is_int(), "gather", "C2", || format!("indices are {indices}, not integers"))?;
    check(data.dims[axis] != Dim::Known(0), "gather", "C3", || format!("axis {axis} of {data} has no rows"))?;
    Ok(TensorType { dtype: data.dtype, dims: dims::replace(&data.dims, axis, &indices.dims) })
}

pub(super) fn scatter(
    axis: usize,
    combine: Option<ReduceFn>,
    operands: &[&TensorType],
) -> Result<TensorType> {
    let (data, indices, updates) = (operands[0], operands[1], operands[2]);
    check(axis < data.rank(), "scatter", "C1", || format!("axis {axis} of {data}"))?;
    check(indices.dtype.is_int() && indices.rank() == 1, "scatter", "C2", || {
        format!("indices are {indices}, not integers of rank 1")
    })?;
    let expected = TensorType { dtype: data.dtype, dims: dims::replace(&data.dims, axis, &indices.dims) };
    check(*updates == expected, "scatter", "C3", || format!("updates are {updates}, not {expected}"))?;
    check(combine.is_none_or(|func| elementwise::reduce_suits(func, data.dtype)), "scatter", "C4", || {
        format!("combine does not exist for {}", data.dtype)
    })?;
    check(data.dims[axis] != Dim::Known(0), "scatter", "C5", || {
        format!("axis {axis} of {data} has no rows")
    })?;
    Ok(data.clone())
}
