//! Type inference: from an op and its operands' types to its results' types. One file per family; each
//! lists its constraints as (C1), (C2), … which return in the error text and in the tests. (C0) holds
//! for every op: the number of operands is right, and a result has fewer than 2^60 elements.
//! Never panics, whatever the sizes.

mod control;
mod conv;
mod dot;
mod elementwise;
mod indexing;
mod layout;
mod reduce;
mod slicing;
mod sort;
mod source;
#[cfg(test)]
mod tests;

use crate::dims;
use crate::errors;
use crate::module::Module;
use crate::op::Op;
use crate::types::TensorType;
use pando_base::Result;

/// The types of an op's results. `module` is where its constants and functions live.
pub fn infer(op: &Op, operands: &[&TensorType], module: &Module) -> Result<Vec<TensorType>> {
    check_operand_count(op, operands.len())?;
    let results = infer_family(op, operands, module)?;
    for result in &results {
        check(dims::check_size(&result.dims).is_some(), op.name(), "C0", || {
            errors::too_large(format!("the result {result}")).message().to_string()
        })?;
    }
    Ok(results)
}

fn infer_family(op: &Op, operands: &[&TensorType], module: &Module) -> Result<Vec<TensorType>> {
    let one = |ty: Result<TensorType>| ty.map(|ty| vec![ty]);
    match op {
        Op::Constant(id) => one(source::constant(*id, module)),
        Op::Iota { dtype, dims, axis } => one(source::iota(*dtype, dims, *axis)),
        Op::Random { distribution, dtype, dims } => {
            one(source::random(*distribution, *dtype, dims, operands[0]))
        }
        Op::Unary(func) => one(elementwise::unary(*func, operands[0])),
        Op::Binary(func) => one(elementwise::binary(*func, operands)),
        Op::Compare(func) => one(elementwise::compare(*func, operands)),
        Op::Select => one(elementwise::select(operands)),
        Op::Convert(dtype) => Ok(vec![operands[0].with_dtype(*dtype)]),
        Op::Bitcast(dtype) => one(elementwise::bitcast(*dtype, operands[0])),
        Op::Reshape { dims } => one(layout::reshape(dims, operands[0])),
        Op::Transpose { perm } => one(layout::transpose(perm, operands[0])),
        Op::Broadcast { dims, axes } => one(layout::broadcast(dims, axes, operands[0])),
        Op::Reverse { axes } => one(layout::reverse(axes, operands[0])),
        Op::Slice(slice) => one(slicing::slice(slice, operands[0])),
        Op::Pad(pad) => one(slicing::pad(pad, operands)),
        Op::Concat { axis } => one(slicing::concat(*axis, operands)),
        Op::Gather { axis } => one(indexing::gather(*axis, operands)),
        Op::Scatter { axis, combine } => one(indexing::scatter(*axis, *combine, operands)),
        Op::Dot(dot) => one(dot::infer(dot, operands)),
        Op::Conv(conv) => one(conv::infer(conv, operands)),
        Op::Reduce { func, axes } => one(reduce::reduce(*func, axes, operands[0])),
        Op::ReduceWindow(window) => one(reduce::reduce_window(window, operands[0])),
        Op::Scan(scan) => one(reduce::scan(scan, operands[0])),
        Op::Sort(sort) => sort::infer(sort, operands),
        Op::Call(func) => control::call(*func, operands, module),
        Op::If { then_func, else_func } => control::if_else(*then_func, *else_func, operands, module),
        Op::While { cond, body } => control::while_loop(*cond, *body, operands, module),
        Op::Repeat { count, body } => control::repeat(*count, *body, operands, module),
    }
}

/// (C0), first half.
fn check_operand_count(op: &Op, found: usize) -> Result<()> {
    let (least, most) = match op {
        Op::Constant(_) | Op::Iota { .. } => (0, 0),
        Op::Binary(_) | Op::Compare(_) | Op::Pad(_) | Op::Gather { .. } | Op::Dot(_) | Op::Conv(_) => (2, 2),
        Op::Select | Op::Scatter { .. } => (3, 3),
        Op::Concat { .. } | Op::Sort(_) | Op::If { .. } => (1, usize::MAX),
        Op::Call(_) | Op::While { .. } | Op::Repeat { .. } => (0, usize::MAX),
        _ => (1, 1),
    };
    check((least..=most).contains(&found), op.name(), "C0", || match most {
        usize::MAX => format!("takes at least {least} operand(s), found {found}"),
        _ => format!("takes {least} operand(s), found {found}"),
    })
}

/// An error with the constraint's label unless `holds`.
fn check(holds: bool, op: &str, label: &str, what: impl FnOnce() -> String) -> Result<()> {
    if holds { Ok(()) } else { Err(errors::constraint(op, label, what())) }
}

/// Axes are below the rank and none comes twice.
fn are_distinct_axes(axes: impl IntoIterator<Item = usize>, rank: usize) -> bool {
    let mut seen = vec![false; rank];
    axes.into_iter().all(|axis| axis < rank && !std::mem::replace(&mut seen[axis], true))
}
