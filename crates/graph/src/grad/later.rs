//! Sums over all iterations of a loop that goes backward, such as the gradient of a weight. A term that is a product
//! or a sum itself is not added up in the loop: its factors are kept, and one product after the loop does the
//! work of all. Nor is a row that each iteration adds at its own place: all rows together are the sum.

use crate::builder::Builder;
use crate::consts::ConstData;
use crate::module::{Func, Module, Node, ValueDef, ValueId};
use crate::op::{Dot, Op};
use pando_base::{BinaryFn, ReduceFn, Result};

/// A term of a sum over iterations: what `op` makes of its factors, or, if that is a reversal, rows.
pub(super) struct Term {
    op: Op,
    pub(super) factors: Vec<ValueId>,
}

/// A loop's body, as far as it matters here.
pub(super) struct Body<'a> {
    pub func: &'a Func,
    pub count: u64,
    /// Where its constants are.
    pub module: &'a Module,
}

impl Body<'_> {
    /// The terms of `total = start + …` that can wait, and those that cannot. `None` if `total` is no such sum, or
    /// `start` is needed for something else.
    pub(super) fn split(&self, total: ValueId, start: ValueId) -> Option<(Vec<Term>, Vec<ValueId>)> {
        let (mut later, mut rest, mut found) = (Vec::new(), Vec::new(), false);
        let mut stack = vec![total];
        while let Some(value) = stack.pop() {
            match self.node(value) {
                _ if value == start => found = true,
                Some(Node { op: Op::Binary(BinaryFn::Add), operands, .. }) => stack.extend(operands),
                Some(node) if can_wait(&node.op) => {
                    later.push(Term { op: node.op.clone(), factors: node.operands.to_vec() })
                }
                Some(node) => match self.row(node) {
                    Some(row) => {
                        later.push(row);
                        stack.push(node.operands[0]);
                    }
                    None => rest.push(value),
                },
                None => rest.push(value),
            }
        }
        let operands = self.func.nodes.values().flat_map(|node| &node.operands);
        let uses = operands.chain(&self.func.results).filter(|&&value| value == start).count();
        (found && uses == 1 && !later.is_empty()).then_some((later, rest))
    }

    /// Whether `total` is `start` with the iteration's own row made zero, and whatever else looks at `start` looks at that
    /// row: then no iteration sees what another one has done, and all rows are zero in the end.
    pub(super) fn clears_own_row(&self, total: ValueId, start: ValueId) -> bool {
        let Some(Node { op: Op::Scatter { axis: 0, combine: None }, operands, .. }) = self.node(total) else {
            return false;
        };
        let (place, update) = (self.before_reshape(operands[1]), operands[2]);
        let own = place == self.func.params[0] || self.counts_down(place);
        let whole = self.func.ty(start).dims.first() == Some(&self.count.into());
        let may_see = |node: &Node| {
            let reads_row = matches!(node.op, Op::Gather { axis: 0 })
                && node.operands[0] == start
                && self.before_reshape(node.operands[1]) == place;
            let clears = node.results.contains(&total);
            reads_row || clears || !node.operands.iter().any(|&value| value == start || value == total)
        };
        let returned = |value: ValueId| self.func.results.iter().filter(|&&other| other == value).count();
        operands[0] == start
            && own
            && whole
            && self.is_zero(update)
            && returned(start) == 0
            && returned(total) == 1
            && self.func.nodes.values().all(may_see)
    }

    fn is_zero(&self, value: ValueId) -> bool {
        match self.node(value) {
            Some(Node { op: Op::Constant(id), .. }) => {
                matches!(self.module.consts[*id].data, ConstData::Splat(x) if x == 0.0)
                    || self.module.consts[*id].shape.num_elements() == 1
                        && self.module.consts[*id].materialize().get_f64(0) == 0.0
            }
            Some(Node { op: Op::Broadcast { .. } | Op::Reshape { .. }, operands, .. }) => {
                self.is_zero(operands[0])
            }
            _ => false,
        }
    }

    fn node(&self, value: ValueId) -> Option<&Node> {
        match self.func.values[value].def {
            ValueDef::Node(node, _) => Some(&self.func.nodes[node]),
            ValueDef::Param(_) => None,
        }
    }

    /// A scatter that adds one row, whose number is the iteration's or counts down.
    fn row(&self, node: &Node) -> Option<Term> {
        let Op::Scatter { axis: 0, combine: Some(ReduceFn::Sum) } = node.op else { return None };
        let (place, update) = (self.before_reshape(node.operands[1]), self.before_reshape(node.operands[2]));
        let dims = &self.func.ty(node.operands[0]).dims;
        let fits = dims[0] == self.count.into() && self.func.ty(update).dims[..] == dims[1..];
        let axes = if place == self.func.params[0] {
            vec![]
        } else if self.counts_down(place) {
            vec![0]
        } else {
            return None;
        };
        fits.then(|| Term { op: Op::Reverse { axes }, factors: vec![update] })
    }

    fn before_reshape(&self, value: ValueId) -> ValueId {
        match self.node(value) {
            Some(Node { op: Op::Reshape { .. }, operands, .. }) => operands[0],
            _ => value,
        }
    }

    fn counts_down(&self, place: ValueId) -> bool {
        let Some(Node { op: Op::Binary(BinaryFn::Sub), operands, .. }) = self.node(place) else {
            return false;
        };
        let Some(Node { op: Op::Constant(id), .. }) = self.node(operands[0]) else { return false };
        let last = self.module.consts[*id].materialize().to_ints();
        operands[1] == self.func.params[0] && last == [i128::from(self.count) - 1]
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
            op => op.clone(),
        };
        b.op(op, stacks)
    }
}
