//! sort: orders keys along an axis and moves payloads with them.
//! (C1) `axis` is below the rank; (C2) all operands have the keys' dimensions.

use super::check;
use crate::op::Sort;
use crate::types::TensorType;
use pando_base::Result;

pub(super) fn infer(sort: &Sort, operands: &[&TensorType]) -> Result<Vec<TensorType>> {
    let keys = operands[0];
    check(sort.axis < keys.rank(), "sort", "C1", || format!("axis {} of {keys}", sort.axis))?;
    for operand in operands {
        check(operand.dims == keys.dims, "sort", "C2", || {
            format!("the payload {operand} does not have the dimensions of the keys {keys}")
        })?;
    }
    Ok(operands.iter().map(|&operand| operand.clone()).collect())
}
