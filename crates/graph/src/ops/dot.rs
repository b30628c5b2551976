//! dot: sums of products.
//! (C1) operands are numbers of one type (8-bit floats may differ in format and scale); (C2) each side's
//! batch and contracted axes are distinct and below its rank; (C3) paired axes have equal sizes;
//! (C4) the result type is a float if the operands are, an integer otherwise.

use super::{are_distinct_axes, check};
use crate::op::Dot;
use crate::types::{Dims, TensorType};
use pando_base::{DType, Result};

pub(super) fn infer(dot: &Dot, operands: &[&TensorType]) -> Result<TensorType> {
    let (lhs, rhs) = (operands[0], operands[1]);
    check_product_types("dot", lhs, rhs)?;
    let pairs = || dot.batch.iter().chain(&dot.contract);
    let distinct = are_distinct_axes(pairs().map(|pair| pair.0), lhs.rank())
        && are_distinct_axes(pairs().map(|pair| pair.1), rhs.rank());
    check(distinct, "dot", "C2", || format!("batch and contract are not distinct axes of {lhs} and {rhs}"))?;
    for &(l, r) in pairs() {
        check(lhs.dims[l] == rhs.dims[r], "dot", "C3", || {
            format!("axis {l} of {lhs} and axis {r} of {rhs} have different sizes")
        })?;
    }
    let dtype = result_type("dot", "C4", dot.dtype, lhs.dtype)?;
    Ok(TensorType { dtype, dims: result_dims(dot, lhs, rhs) })
}

fn result_dims(dot: &Dot, lhs: &TensorType, rhs: &TensorType) -> Dims {
    let batch = dot.batch.iter().map(|&(l, _)| &lhs.dims[l]);
    let lhs_free = dot.lhs_free(lhs.rank()).into_iter().map(|axis| &lhs.dims[axis]);
    let rhs_free = dot.rhs_free(rhs.rank()).into_iter().map(|axis| &rhs.dims[axis]);
    batch.chain(lhs_free).chain(rhs_free).cloned().collect()
}

impl Dot {
    /// The left operand's axes that are neither batch nor contracted, in order.
    pub fn lhs_free(&self, rank: usize) -> Vec<usize> {
        let used = |axis| self.batch.iter().chain(&self.contract).any(|pair| pair.0 == axis);
        (0..rank).filter(|&axis| !used(axis)).collect()
    }

    /// The right operand's axes that are neither batch nor contracted, in order.
    pub fn rhs_free(&self, rank: usize) -> Vec<usize> {
        let used = |axis| self.batch.iter().chain(&self.contract).any(|pair| pair.1 == axis);
        (0..rank).filter(|&axis| !used(axis)).collect()
    }
}

/// (C1) of dot and conv.
pub(super) fn check_product_types(op: &str, lhs: &TensorType, rhs: &TensorType) -> Result<()> {
    let (l, r) = (lhs.dtype, rhs.dtype);
    let is_f8 = |dtype| matches!(dtype, DType::F8(..));
    check((l == r || is_f8(l) && is_f8(r)) && l != DType::Bool, op, "C1", || {
        format!("the operand types {l} and {r} have no product")
    })
}

pub(super) fn result_type(op: &str, label: &str, stated: Option<DType>, operand: DType) -> Result<DType> {
    let dtype = stated.unwrap_or(operand);
    check(dtype != DType::Bool && dtype.is_float() == operand.is_float(), op, label, || {
        format!("products of {operand} cannot be summed in {dtype}")
    })?;
    Ok(dtype)
}
