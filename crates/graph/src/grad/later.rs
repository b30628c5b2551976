//! Sums over all iterations of a loop that goes backward, such as the gradient of a weight. A term that is a product
//! or a sum itself is not added up in the loop: its factors are kept, and one product after the loop does the
//! work of all.

use crate::builder::Builder;
use crate::module::{Func, Node, ValueDef, ValueId};
use crate::op::{Dot, Op};
use pando_base::{BinaryFn, ReduceFn, Result};

/// A term of a sum over iterations.
pub(super) struct Term {
    op: Op,
    pub(super) factors: Vec<ValueId>,
}

/// The terms of `total = start + …` that can wait, and those that cannot. `None` if `total` is no such sum, or
/// `start` is needed for something else.
pub(super) fn split(func: &Func, total: ValueId, start: ValueId) -> Option<(Vec<Term>, Vec<ValueId>)> {
    let (mut later, mut rest, mut found) = (Vec::new(), Vec::new(), false);
    let mut stack = vec![total];
    while let Some(value) = stack.pop() {
        match defining(func, value) {
            _ if value == start => found = true,
            Some(Node { op: Op::Binary(BinaryFn::Add), operands, .. }) => stack.extend(operands),
            Some(node) if can_wait(&node.op) => {
                later.push(Term { op: node.op.clone(), factors: node.operands.to_vec() })
            }
            _ => rest.push(value),
        }
    }
    let operands = func.nodes.values().flat_map(|node| &node.operands);
    let uses = operands.chain(&func.results).filter(|&&value| value == start).count();
    (found && uses == 1 && !later.is_empty()).then_some((later, rest))
}

fn defining(func: &Func, value: ValueId) -> Option<&Node> {
    match func.values[value].def {
        ValueDef::Node(node, _) => Some(&func.nodes[node]),
        ValueDef::Param(_) => None,
    }
}

fn can_wait(op: &Op) -> bool {
    match op {
        Op::Dot(dot) => dot.batch.is_empty(),
        Op::Reduce { func, .. } => *func == ReduceFn::Sum,
        _ => false,
    }
}

impl Term {
    /// The sum of this term over all iterations. `stacks` are its factors, one row an iteration.
    pub(super) fn sum(&self, b: &mut Builder, stacks: &[ValueId]) -> Result<ValueId> {
        let op = match &self.op {
            Op::Dot(dot) => {
                let inner = dot.contract.iter().map(|(left, right)| (left + 1, right + 1));
                Op::Dot(Dot { contract: std::iter::once((0, 0)).chain(inner).collect(), ..dot.clone() })
            }
            Op::Reduce { func, axes } => {
                let axes = std::iter::once(0).chain(axes.iter().map(|axis| axis + 1)).collect();
                Op::Reduce { func: *func, axes }
            }
            op => unreachable!("{op} does not wait"),
        };
        b.op(op, stacks)
    }
}
