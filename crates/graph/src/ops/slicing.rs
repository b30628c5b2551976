//! Ops that take, add or join parts.
//!
//! slice: (C1) `begin`, `end` and `step` have one entry per dimension; (C2) steps are at least 1;
//! (C3) `begin <= end <= size`.
//! pad: (C1) the filler is a scalar of the operand's type; (C2) `low`, `high` and `interior` have one
//! entry per dimension; (C3) no size becomes negative.
//! concat: (C1) `axis` is below the rank; (C2) operands agree in everything but their size along `axis`.

use super::check;
use crate::dims;
use crate::op::{Pad, Slice};
use crate::types::{Dims, TensorType};
use pando_base::Result;

pub(super) fn slice(slice: &Slice, operand: &TensorType) -> Result<TensorType> {
    let rank = operand.rank();
    let complete = [slice.begin.len(), slice.end.len(), slice.step.len()] == [rank; 3];
    check(complete, "slice", "C1", || format!("begin, end and step need {rank} entries each for {operand}"))?;
    check(slice.step.iter().all(|&step| step > 0), "slice", "C2", || "a step is at least 1".into())?;
    let mut result = Dims::new();
    for axis in 0..rank {
        let (size, begin, end) = (&operand.dims[axis], slice.begin[axis], &slice.end[axis]);
        let dim = dims::sliced(size, begin, end, slice.step[axis]);
        check(dim.is_some(), "slice", "C3", || {
            format!("{begin} to {end} is not inside 0 to {size} (axis {axis} of {operand})")
        })?;
        result.extend(dim);
    }
    Ok(TensorType { dtype: operand.dtype, dims: result })
}

pub(super) fn pad(pad: &Pad, operands: &[&TensorType]) -> Result<TensorType> {
    let (operand, filler) = (operands[0], operands[1]);
    check(*filler == TensorType::scalar(operand.dtype), "pad", "C1", || {
        format!("the filler is {filler}, not {}[]", operand.dtype)
    })?;
    let rank = operand.rank();
    let complete = [pad.low.len(), pad.high.len(), pad.interior.len()] == [rank; 3];
    check(complete, "pad", "C2", || {
        format!("low, high and interior need {rank} entries each for {operand}")
    })?;
    let mut result = Dims::new();
    for axis in 0..rank {
        let (low, high, interior) = (pad.low[axis], pad.high[axis], pad.interior[axis]);
        let dim = dims::padded(&operand.dims[axis], low, high, interior);
        check(dim.is_some(), "pad", "C3", || {
            format!("low {low}, high {high}, interior {interior} give axis {axis} of {operand} no valid size")
        })?;
        result.extend(dim);
    }
    Ok(TensorType { dtype: operand.dtype, dims: result })
}

pub(super) fn concat(axis: usize, operands: &[&TensorType]) -> Result<TensorType> {
    let first = operands[0];
    check(axis < first.rank(), "concat", "C1", || format!("axis {axis} of {first}"))?;
    for operand in operands {
        let agrees = operand.dtype == first.dtype
            && operand.rank() == first.rank()
            && (0..first.rank()).all(|a| a == axis || operand.dims[a] == first.dims[a]);
        check(agrees, "concat", "C2", || format!("{first} and {operand} differ outside axis {axis}"))?;
    }
    let sizes: Vec<_> = operands.iter().map(|operand| operand.dims[axis].clone()).collect();
    let size = dims::sum(&sizes);
    check(size.is_some(), "concat", "C0", || "the sizes overflow".into())?;
    let mut result = first.clone();
    result.dims[axis] = size.expect("checked above");
    Ok(result)
}
