//! Ops that combine elements.
//!
//! reduce: (C1) `axes` are distinct and below the rank; (C2) the function exists for the type.
//! reduce_window: (C1) attributes have one entry per dimension; (C2) window, strides and dilations are at
//! least 1; (C3) the window fits into the padded operand; (C4) the function exists for the type.
//! scan: (C1) `axis` is below the rank; (C2) the function is sum, prod, max or min of numbers.

use super::elementwise::reduce_suits;
use super::{are_distinct_axes, check};
use crate::dims::{self, Sliding};
use crate::op::{ReduceWindow, Scan};
use crate::types::{Dim, Dims, TensorType};
use pando_base::{DType, ReduceFn, Result};

pub(super) fn reduce(func: ReduceFn, axes: &[usize], operand: &TensorType) -> Result<TensorType> {
    check(are_distinct_axes(axes.iter().copied(), operand.rank()), "reduce", "C1", || {
        format!("axes {axes:?} are not distinct axes of {operand}")
    })?;
    check(reduce_suits(func, operand.dtype), "reduce", "C2", || {
        format!("{func} does not exist for {}", operand.dtype)
    })?;
    let kept = (0..operand.rank()).filter(|axis| !axes.contains(axis));
    Ok(TensorType::new(operand.dtype, kept.map(|axis| operand.dims[axis].clone())))
}

pub(super) fn reduce_window(window: &ReduceWindow, operand: &TensorType) -> Result<TensorType> {
    let rank = operand.rank();
    let lengths = [&window.window, &window.strides, &window.dilation].map(Vec::len);
    check(lengths == [rank; 3] && window.padding.len() == rank, "reduce_window", "C1", || {
        format!("window, strides, padding and dilation need {rank} entries each for {operand}")
    })?;
    let mut steps = window.window.iter().chain(&window.strides).chain(&window.dilation);
    check(steps.all(|&step| step > 0), "reduce_window", "C2", || {
        "window, strides and dilation are at least 1".into()
    })?;
    check(reduce_suits(window.func, operand.dtype), "reduce_window", "C4", || {
        format!("{} does not exist for {}", window.func, operand.dtype)
    })?;
    let mut result = Dims::new();
    for (axis, size) in operand.dims.iter().enumerate() {
        let dim = dims::sliding(size, &Dim::Known(window.window[axis]), window.sliding(axis));
        check(dim.is_some(), "reduce_window", "C3", || {
            let (low, high) = window.padding[axis];
            format!("a window of {} does not fit into {size} padded by {low} and {high}", window.window[axis])
        })?;
        result.extend(dim);
    }
    Ok(TensorType { dtype: operand.dtype, dims: result })
}

pub(super) fn scan(scan: &Scan, operand: &TensorType) -> Result<TensorType> {
    check(scan.axis < operand.rank(), "scan", "C1", || format!("axis {} of {operand}", scan.axis))?;
    let arithmetic = !matches!(scan.func, ReduceFn::And | ReduceFn::Or) && operand.dtype != DType::Bool;
    check(arithmetic, "scan", "C2", || format!("{} of {} does not exist", scan.func, operand.dtype))?;
    Ok(operand.clone())
}

impl ReduceWindow {
    /// How the window slides along a dimension.
    pub fn sliding(&self, axis: usize) -> Sliding {
        Sliding {
            stride: self.strides[axis],
            padding: self.padding[axis],
            input_dilation: 1,
            window_dilation: self.dilation[axis],
        }
    }
}
