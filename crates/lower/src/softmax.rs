//! Recognises the end of a softmax, where a division may be a multiplication with an inverse.

use pando_base::{BinaryFn, DType, ReduceFn, UnaryFn};
use pando_graph::{Func, Node, Op, ValueDef, ValueId};

/// Whether the operands of a division are `exp(x - max(x))` and its repeated sums. Such a sum is from 1 up; it must have
/// so few terms that its inverse is one of the type's normal numbers, too.
pub fn ends_softmax(func: &Func, operands: &[ValueId]) -> bool {
    let [shares, sums] = *operands else { return false };
    let summed = repeated_reduction(func, sums, ReduceFn::Sum);
    let Some((sum, _)) = summed.filter(|&(_, of)| of == shares) else { return false };
    let terms = elements(func, shares) / elements(func, sum).max(1);
    is_power_of_distance(func, shares) && terms <= most_terms(func.ty(shares).dtype)
}

/// `exp(x - max(x))`.
fn is_power_of_distance(func: &Func, value: ValueId) -> bool {
    let Some(Node { op: Op::Unary(UnaryFn::Exp), operands, .. }) = maker(func, value) else { return false };
    let Some(Node { op: Op::Binary(BinaryFn::Sub), operands, .. }) = maker(func, operands[0]) else {
        return false;
    };
    repeated_reduction(func, operands[1], ReduceFn::Max).is_some_and(|(_, of)| of == operands[0])
}

/// The reduction that is repeated, and what it reduces.
fn repeated_reduction(func: &Func, value: ValueId, wanted: ReduceFn) -> Option<(ValueId, ValueId)> {
    let Node { op: Op::Broadcast { .. }, operands, .. } = maker(func, value)? else { return None };
    match maker(func, operands[0])? {
        Node { op: Op::Reduce { func, .. }, operands: reduced, .. } if *func == wanted => {
            Some((operands[0], reduced[0]))
        }
        _ => None,
    }
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

fn elements(func: &Func, value: ValueId) -> u64 {
    func.ty(value).shape().map_or(0, |shape| shape.num_elements())
}
