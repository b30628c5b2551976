//! Rewrites that change no bit of any result, whatever the operands: so nothing here adds a float zero,
//! for x + 0 loses the sign of -0, and nothing reorders float arithmetic.

use super::Builder;
use crate::module::ValueId;
use crate::op::{Op, Pad, Slice};
use crate::types::{Dim, TensorType};
use pando_base::{BinaryFn, Result, UnaryFn};
use smallvec::{SmallVec, smallvec};

type Values = SmallVec<[ValueId; 1]>;

/// Values equal to the op's results, if there is a simpler way to them.
pub(super) fn simplify(
    b: &mut Builder,
    op: &Op,
    operands: &[ValueId],
    types: &[TensorType],
) -> Result<Option<Values>> {
    if is_identity(b, op, operands, types) {
        return Ok(Some(smallvec![operands[0]]));
    }
    let one = |value: Option<ValueId>| value.map(|value| -> Values { smallvec![value] });
    match op {
        Op::Unary(func) => Ok(one(involution(b, *func, operands[0]))),
        Op::Binary(func) => Ok(one(binary(b, *func, operands[0], operands[1]))),
        Op::Select => Ok(one(select(b, operands))),
        Op::Transpose { perm } => Ok(one(transpose_twice(b, perm, operands[0])?)),
        Op::Reshape { dims } => match b.def(operands[0]) {
            Some(Op::Reshape { .. }) => {
                let source = source(b, operands[0]);
                b.op(Op::Reshape { dims: dims.clone() }, &[source]).map(|value| one(Some(value)))
            }
            _ => Ok(None),
        },
        Op::If { then_func, else_func } => match known_flag(b, operands[0]) {
            Some(true) => b.insert(Op::Call(*then_func), &operands[1..]).map(Some),
            Some(false) => b.insert(Op::Call(*else_func), &operands[1..]).map(Some),
            None => Ok(None),
        },
        Op::Repeat { count: 0, .. } => Ok(Some(SmallVec::from_slice(operands))),
        _ => Ok(None),
    }
}

/// Ops whose only result is their first operand, bit for bit.
fn is_identity(b: &Builder, op: &Op, operands: &[ValueId], types: &[TensorType]) -> bool {
    match op {
        Op::Convert(_) | Op::Bitcast(_) | Op::Reshape { .. } => b.ty(operands[0]) == &types[0],
        Op::Broadcast { .. } => b.ty(operands[0]) == &types[0],
        Op::Transpose { perm } => perm.is_sorted(),
        Op::Reverse { axes } => axes.iter().all(|&axis| types[0].dims[axis] == Dim::Known(1)),
        Op::Concat { .. } => operands.len() == 1,
        Op::Slice(slice) => takes_all(slice, b.ty(operands[0])),
        Op::Pad(pad) => adds_nothing(pad),
        Op::Sort(sort) => operands.len() == 1 && types[0].dims[sort.axis] == Dim::Known(1),
        _ => false,
    }
}

fn takes_all(slice: &Slice, operand: &TensorType) -> bool {
    slice.begin.iter().all(|&begin| begin == 0)
        && slice.end == operand.dims
        && slice.step.iter().all(|&step| step == 1)
}

fn adds_nothing(pad: &Pad) -> bool {
    pad.low.iter().chain(&pad.high).all(|&edge| edge == 0) && pad.interior.iter().all(|&gap| gap == 0)
}

/// The first operand of the node that defines a value.
fn source(b: &Builder, value: ValueId) -> ValueId {
    let node = b.def_node(value).expect("the caller saw the defining op");
    b.func().nodes[node].operands[0]
}

/// -(-x) and not(not(x)) are x; |(|x|)| is |x|.
fn involution(b: &Builder, func: UnaryFn, operand: ValueId) -> Option<ValueId> {
    let twice = b.def(operand) == Some(&Op::Unary(func));
    match func {
        UnaryFn::Neg | UnaryFn::Not if twice => Some(source(b, operand)),
        UnaryFn::Abs if twice => Some(operand),
        _ => None,
    }
}

fn binary(b: &Builder, func: BinaryFn, x: ValueId, y: ValueId) -> Option<ValueId> {
    if x == y && matches!(func, BinaryFn::Max | BinaryFn::Min | BinaryFn::And | BinaryFn::Or) {
        return Some(x);
    }
    let is_float = b.ty(x).dtype.is_float();
    let is_one = |value| splat(b, value) == Some(1.0);
    // Signed zeros differ: compare bits.
    let is_zero = |value, zero: f64| splat(b, value).is_some_and(|v| v.to_bits() == zero.to_bits());
    match func {
        BinaryFn::Mul if is_one(y) => Some(x),
        BinaryFn::Mul if is_one(x) => Some(y),
        BinaryFn::Div if is_one(y) => Some(x),
        BinaryFn::Sub if is_zero(y, 0.0) => Some(x),
        BinaryFn::Add if is_float && is_zero(y, -0.0) => Some(x),
        BinaryFn::Add if is_float && is_zero(x, -0.0) => Some(y),
        BinaryFn::Add | BinaryFn::Or | BinaryFn::Xor if !is_float && is_zero(y, 0.0) => Some(x),
        BinaryFn::Add | BinaryFn::Or | BinaryFn::Xor if !is_float && is_zero(x, 0.0) => Some(y),
        BinaryFn::Shl | BinaryFn::Shr if is_zero(y, 0.0) => Some(x),
        _ => None,
    }
}

impl Builder {
    /// The number that every element of a constant is, also through a broadcast.
    pub(crate) fn splat_of(&self, value: ValueId) -> Option<f64> {
        splat(self, value)
    }
}

fn splat(b: &Builder, mut value: ValueId) -> Option<f64> {
    while let Some(Op::Broadcast { .. }) = b.def(value) {
        value = source(b, value);
    }
    if let Some(Op::Constant(id)) = b.def(value) {
        let constant = &b.module.consts[*id];
        if let crate::ConstData::Splat(value) = constant.data {
            return Some(constant.dtype.round(value));
        }
    }
    let elements = b.known(value)?.to_f64();
    let first = *elements.first()?;
    elements.iter().all(|element| element.to_bits() == first.to_bits()).then_some(first)
}

fn known_flag(b: &Builder, condition: ValueId) -> Option<bool> {
    splat(b, condition).map(|flag| flag != 0.0)
}

fn select(b: &Builder, operands: &[ValueId]) -> Option<ValueId> {
    let [condition, on_true, on_false] = [operands[0], operands[1], operands[2]];
    match known_flag(b, condition) {
        _ if on_true == on_false => Some(on_true),
        Some(true) => Some(on_true),
        Some(false) => Some(on_false),
        None => None,
    }
}

fn transpose_twice(b: &mut Builder, perm: &[usize], operand: ValueId) -> Result<Option<ValueId>> {
    let Some(Op::Transpose { perm: inner }) = b.def(operand) else { return Ok(None) };
    let perm = perm.iter().map(|&axis| inner[axis]).collect();
    let source = source(b, operand);
    b.op(Op::Transpose { perm }, &[source]).map(Some)
}
