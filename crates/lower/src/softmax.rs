//! Recognises the end of a softmax, where a division may be a multiplication with an inverse.

use pando_base::{BinaryFn, DType, ReduceFn, UnaryFn};
use pando_graph::{Func, Node, Op, ValueDef, ValueId};

/// Whether the operands of a division are `exp(x - max(x))` and its repeated sums. Such a sum is from 1 up; it must have
/// so few terms that its inverse is one of the type's normal numbers, too.
pub fn ends_softmax(func: &Func, operands: &[ValueId]) -> bool {
    let [shares, sums] = *operands else { return false };
    let Some(axes) = reduced_axes(func, sums, ReduceFn::Sum, shares) else { return false };
    let shape = func.ty(shares).shape();
    let terms = shape.map(|shape| axes.iter().map(|&axis| shape[axis]).product::<u64>());
    let fits = terms.is_some_and(|terms| terms <= most_terms(func.ty(shares).dtype));
    fits && is_power_of_distance(func, shares, axes)
}

/// `exp(x - max(x))`, the largest being that over these axes.
fn is_power_of_distance(func: &Func, value: ValueId, axes: &[usize]) -> bool {
    let Some(Node { op: Op::Unary(UnaryFn::Exp), operands, .. }) = maker(func, value) else { return false };
    let Some(Node { op: Op::Binary(BinaryFn::Sub), operands, .. }) = maker(func, operands[0]) else {
        return false;
    };
    reduced_axes(func, operands[1], ReduceFn::Max, operands[0]) == Some(axes)
}

/// The axes over which `of` is reduced, if the value is that, repeated along the same axes.
fn reduced_axes(func: &Func, value: ValueId, wanted: ReduceFn, of: ValueId) -> Option<&[usize]> {
    let Node { op: Op::Broadcast { axes: kept, .. }, operands, .. } = maker(func, value)? else {
        return None;
    };
    let Node { op: Op::Reduce { func: reduce, axes }, operands, .. } = maker(func, operands[0])? else {
        return None;
    };
    let others = (0..func.ty(of).rank()).filter(|axis| !axes.contains(axis));
    (*reduce == wanted && operands[0] == of && others.eq(kept.iter().copied())).then_some(axes)
}

/// Powers of two below the inverse of the least normal number: 2^14 for f16, whatever fits a memory for the others.
fn most_terms(dtype: DType) -> u64 {
    match dtype {
        DType::F16 => 1 << 14,
        DType::F32 | DType::BF16 => 1 << 40,
        _ => 0,
    }
}

fn maker(func: &Func, value: ValueId) -> Option<&Node> {
    match func.values[value].def {
        ValueDef::Node(node, _) => Some(&func.nodes[node]),
        ValueDef::Param(_) => None,
    }
}
