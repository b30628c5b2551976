//! Ops that work element by element. Broadcasting is explicit: operands have equal dimensions.
//!
//! unary: (C1) the function exists for the element type.
//! binary: (C1) the operand types are equal; (C2) the function exists for the element type.
//! compare: (C1) the operand types are equal.
//! select: (C1) the condition is bool; (C2) both choices have one type; (C3) the condition has their
//! dimensions.
//! bitcast: (C1) both types have one size and neither is bool.

use super::check;
use crate::types::TensorType;
use pando_base::{BinaryFn, CompareFn, DType, ReduceFn, Result, UnaryFn};

pub(super) fn unary(func: UnaryFn, operand: &TensorType) -> Result<TensorType> {
    let dtype = operand.dtype;
    let suits = match func {
        UnaryFn::Neg | UnaryFn::Abs | UnaryFn::Sign => dtype != DType::Bool,
        UnaryFn::Not => !dtype.is_float(),
        _ => dtype.is_float(),
    };
    check(suits, func.name(), "C1", || format!("does not exist for {dtype}"))?;
    Ok(operand.clone())
}

pub(super) fn binary(func: BinaryFn, operands: &[&TensorType]) -> Result<TensorType> {
    check_equal(func.name(), operands)?;
    let dtype = operands[0].dtype;
    check(binary_suits(func, dtype), func.name(), "C2", || format!("does not exist for {dtype}"))?;
    Ok(operands[0].clone())
}

fn binary_suits(func: BinaryFn, dtype: DType) -> bool {
    match func {
        BinaryFn::Atan2 => dtype.is_float(),
        BinaryFn::And | BinaryFn::Or | BinaryFn::Xor => !dtype.is_float(),
        BinaryFn::Shl | BinaryFn::Shr => dtype.is_int(),
        _ => dtype != DType::Bool,
    }
}

/// Whether a reduction exists for an element type.
pub(super) fn reduce_suits(func: ReduceFn, dtype: DType) -> bool {
    match func {
        ReduceFn::And | ReduceFn::Or => !dtype.is_float(),
        _ => dtype != DType::Bool,
    }
}

pub(super) fn compare(func: CompareFn, operands: &[&TensorType]) -> Result<TensorType> {
    check_equal(func.name(), operands)?;
    Ok(operands[0].with_dtype(DType::Bool))
}

fn check_equal(op: &str, operands: &[&TensorType]) -> Result<()> {
    check(operands[0] == operands[1], op, "C1", || {
        format!("the operand types differ: {} and {}", operands[0], operands[1])
    })
}

pub(super) fn select(operands: &[&TensorType]) -> Result<TensorType> {
    let [condition, on_true, on_false] = [operands[0], operands[1], operands[2]];
    check(condition.dtype == DType::Bool, "select", "C1", || {
        format!("the condition is {condition}, not bool")
    })?;
    check(on_true == on_false, "select", "C2", || format!("the choices differ: {on_true} and {on_false}"))?;
    check(condition.dims == on_true.dims, "select", "C3", || {
        format!("the condition is {condition}, the choices are {on_true}")
    })?;
    Ok(on_true.clone())
}

pub(super) fn bitcast(dtype: DType, operand: &TensorType) -> Result<TensorType> {
    let from = operand.dtype;
    let suits = from.size_bytes() == dtype.size_bytes() && from != DType::Bool && dtype != DType::Bool;
    check(suits, "bitcast", "C1", || format!("{from} has no bits in common with {dtype}"))?;
    Ok(operand.with_dtype(dtype))
}
