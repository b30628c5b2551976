//! Ops that run functions. (C0) also: there is at least one result.
//!
//! call: (C1) the function exists; (C2) operands have the types of its parameters.
//! if: (C1) both functions exist; (C2) the condition is `bool[]`; (C3) the other operands have the types
//! of both functions' parameters; (C4) both give the same types.
//! while: (C1) both functions exist; (C2) `cond` takes the operands' types and gives `bool[]`; (C3) `body`
//! takes and gives the operands' types.
//! repeat: (C1) the function exists; (C2) it takes `i32[]` and the operands' types and gives the operands'
//! types; (C3) `count` is below 2^31.

use super::check;
use crate::errors;
use crate::module::{Func, FuncId, Module};
use crate::types::TensorType;
use pando_base::{DType, Result};

pub(super) fn call(func: FuncId, operands: &[&TensorType], module: &Module) -> Result<Vec<TensorType>> {
    let func = lookup("call", func, module)?;
    check_types("call", "C2", "the operands", operands, "the parameters", &func.param_types())?;
    results("call", func)
}

pub(super) fn if_else(
    then_func: FuncId,
    else_func: FuncId,
    operands: &[&TensorType],
    module: &Module,
) -> Result<Vec<TensorType>> {
    let (then_func, else_func) = (lookup("if", then_func, module)?, lookup("if", else_func, module)?);
    check(*operands[0] == TensorType::scalar(DType::Bool), "if", "C2", || {
        format!("the condition is {}, not bool[]", operands[0])
    })?;
    for func in [then_func, else_func] {
        check_types("if", "C3", "the operands", &operands[1..], "the parameters", &func.param_types())?;
    }
    let (then_types, else_types) = (then_func.result_types(), else_func.result_types());
    check_types("if", "C4", "the results of one side", &then_types, "the results of the other", &else_types)?;
    results("if", then_func)
}

pub(super) fn while_loop(
    cond: FuncId,
    body: FuncId,
    operands: &[&TensorType],
    module: &Module,
) -> Result<Vec<TensorType>> {
    let (cond, body) = (lookup("while", cond, module)?, lookup("while", body, module)?);
    check_types("while", "C2", "the operands", operands, "the condition's parameters", &cond.param_types())?;
    let flag = TensorType::scalar(DType::Bool);
    check_types("while", "C2", "the condition's results", &cond.result_types(), "the flag", &[&flag])?;
    check_types("while", "C3", "the operands", operands, "the body's parameters", &body.param_types())?;
    check_types("while", "C3", "the operands", operands, "the body's results", &body.result_types())?;
    results("while", body)
}

pub(super) fn repeat(
    count: u64,
    body: FuncId,
    operands: &[&TensorType],
    module: &Module,
) -> Result<Vec<TensorType>> {
    let body = lookup("repeat", body, module)?;
    let counter = TensorType::scalar(DType::I32);
    let mut expected = vec![&counter];
    expected.extend(operands);
    check_types(
        "repeat",
        "C2",
        "the counter and operands",
        &expected,
        "the parameters",
        &body.param_types(),
    )?;
    check_types("repeat", "C2", "the operands", operands, "the results", &body.result_types())?;
    check(count < 1 << 31, "repeat", "C3", || format!("the count {count} is not below 2^31"))?;
    results("repeat", body)
}

/// (C1) of every op here.
fn lookup<'a>(op: &str, func: FuncId, module: &'a Module) -> Result<&'a Func> {
    let found = module.funcs.get(func);
    let in_range = |func: &Func| func.params.iter().chain(&func.results).all(|&v| func.values.contains(v));
    found
        .filter(|func| in_range(func))
        .ok_or_else(|| errors::constraint(op, "C1", errors::unknown_id("the function", func)))
}

fn check_types(
    op: &str,
    label: &str,
    left_what: &str,
    left: &[&TensorType],
    right_what: &str,
    right: &[&TensorType],
) -> Result<()> {
    let show = |types: &[&TensorType]| types.iter().map(|ty| ty.to_string()).collect::<Vec<_>>().join(", ");
    check(left == right, op, label, || {
        format!("{left_what} ({}) differ from {right_what} ({})", show(left), show(right))
    })
}

fn results(op: &str, func: &Func) -> Result<Vec<TensorType>> {
    check(!func.results.is_empty(), op, "C0", || format!("@{} has no results", func.name))?;
    Ok(func.result_types().into_iter().cloned().collect())
}
