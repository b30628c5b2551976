//! Reverse-mode differentiation: appends to the innermost function of a builder what computes the gradients of
//! some of its values. One walk over the nodes from last to first; each node's rule turns the gradients of its
//! results into those of its operands. Only nodes between `wrt` and the outputs are visited.
//!
//! `elementwise.rs`, `layout.rs`, `indexing.rs`, `dot.rs`, `conv.rs`, `reduce.rs`, `window.rs`, `scan.rs` and
//! `sort.rs` hold the rules; `control.rs`, `repeat.rs` and `while_loop.rs` those of ops that run functions, `composites.rs` those of
//! the standard composites; `sums.rs` adds the gradients of a value that is used several times. Integers and bools
//! have no gradient. Where a function has none (ties of a maximum, zeros of an absolute value), rules give what
//! PyTorch gives.
//!
//! Cost: linear in the nodes of the function.

mod composites;
mod control;
mod conv;
mod dot;
mod elementwise;
mod indexing;
mod joint;
mod later;
mod layout;
mod reduce;
mod repeat;
mod scan;
mod sort;
mod sums;
mod while_loop;
mod window;

use crate::builder::Builder;
use crate::errors;
use crate::module::{Node, NodeId, ValueId};
use crate::op::Op;
use crate::types::Dim;
use crate::validate::describe_node;
use pando_base::{IdSet, ReduceFn, Result, UnaryFn};
use smallvec::SmallVec;
use sums::Sums;

pub(crate) use composites::batch_axes;
pub(crate) use control::{GradientFunc, GradientKey};
pub use window::extreme_window_gradient;

/// For each operand its gradient, if it has one that matters.
type Gradients = SmallVec<[Option<ValueId>; 3]>;

/// The name of the identity that gradients do not pass.
const DETACH: &str = "detach";

impl Builder {
    /// Appends the gradients of `Σ ⟨seed, output⟩` with respect to each of `wrt`: values of the innermost
    /// function, parameters or not. `None` where no output depends on it through floats (a step such as `floor`
    /// breaks the dependence). A seed has the type of its output, a gradient that of its value.
    pub fn gradients(
        &mut self,
        outputs: &[(ValueId, ValueId)],
        wrt: &[ValueId],
    ) -> Result<Vec<Option<ValueId>>> {
        for &(output, seed) in outputs {
            if self.ty(output) != self.ty(seed) {
                return Err(errors::wrong_seed(self.ty(output), self.ty(seed)));
            }
        }
        let active = self.depending_on(wrt);
        let mut sums = Sums::default();
        for &(output, seed) in outputs.iter().filter(|(output, _)| active.contains(*output)) {
            sums.add(output, seed);
        }
        let walked = self.walk(&active, &mut sums);
        self.restore_order();
        walked?;
        wrt.iter().map(|&value| sums.total(self, value)).collect()
    }

    /// Rules append nodes, and none of them changes what the values before it are.
    fn walk(&mut self, active: &IdSet<ValueId>, sums: &mut Sums) -> Result<()> {
        let nodes: Vec<NodeId> = self.func().nodes.ids().collect();
        for node in nodes.into_iter().rev() {
            self.visit(node, active, sums)
                .map_err(|error| error.context(describe_node(self.func(), node)))?;
        }
        Ok(())
    }

    /// The value itself, as a constant to [`Builder::gradients`].
    pub fn detach(&mut self, x: ValueId) -> Result<ValueId> {
        self.composite(DETACH, "", &[x], |_, args| Ok(args[0]))
    }

    /// The float values that `wrt` reaches, itself included. Values without elements depend on nothing.
    fn depending_on(&self, wrt: &[ValueId]) -> IdSet<ValueId> {
        let func = self.func();
        let counts = |value: ValueId| {
            let ty = func.ty(value);
            ty.dtype.is_float() && !ty.dims.contains(&Dim::Known(0))
        };
        let mut active: IdSet<ValueId> = wrt.iter().copied().filter(|&value| counts(value)).collect();
        for node in func.nodes.values().filter(|node| self.is_differentiable(&node.op)) {
            let mut operands = node.operands.iter().enumerate();
            if operands.any(|(position, &value)| active.contains(value) && passes(&node.op, position)) {
                node.results.iter().filter(|&&value| counts(value)).for_each(|&value| {
                    active.insert(value);
                });
            }
        }
        active
    }

    fn is_differentiable(&self, op: &Op) -> bool {
        match op {
            Op::Unary(UnaryFn::Floor | UnaryFn::Ceil | UnaryFn::Round | UnaryFn::Sign) => false,
            Op::Bitcast(_) => false,
            Op::Call(func) => self.module().funcs[*func].composite.as_deref() != Some(DETACH),
            _ => true,
        }
    }

    fn visit(&mut self, node: NodeId, active: &IdSet<ValueId>, sums: &mut Sums) -> Result<()> {
        let node = &self.func().nodes[node];
        let reached = node.results.iter().any(|&value| sums.contains(value));
        if !reached || !node.operands.iter().any(|&value| active.contains(value)) {
            return Ok(());
        }
        let node = node.clone();
        let results = node.results.iter().map(|&value| sums.total(self, value)).collect::<Result<_>>()?;
        let wanted = node.operands.iter().map(|&value| active.contains(value)).collect();
        let at = Visit { node: &node, results, wanted };
        let gradients = rule(self, &at)?;
        for ((&operand, gradient), wanted) in node.operands.iter().zip(gradients).zip(&at.wanted) {
            if let Some(gradient) = gradient.filter(|_| *wanted) {
                debug_assert_eq!(self.ty(gradient), self.ty(operand), "the gradient of {}", node.op);
                sums.add(operand, gradient);
            }
        }
        Ok(())
    }
}

/// Whether gradients pass from an op's results to this operand, if both are floats.
fn passes(op: &Op, position: usize) -> bool {
    match op {
        Op::Gather { .. } => position == 0,
        Op::Scatter { .. } => position != 1,
        _ => true,
    }
}

/// A node under visit.
struct Visit<'a> {
    node: &'a Node,
    /// The gradients of its results; not all `None`.
    results: SmallVec<[Option<ValueId>; 1]>,
    /// Whose gradient is wanted, by operand.
    wanted: SmallVec<[bool; 3]>,
}

impl Visit<'_> {
    /// The gradient of the only result.
    fn gradient(&self) -> ValueId {
        self.results[0].expect("a visited node has a gradient")
    }

    fn operand(&self, position: usize) -> ValueId {
        self.node.operands[position]
    }

    fn result(&self) -> ValueId {
        self.node.results[0]
    }

    /// The gradient that `f` makes of each operand that wants one.
    fn each(&self, mut f: impl FnMut(usize) -> Result<ValueId>) -> Result<Gradients> {
        let gradient = |(position, &wanted): (usize, &bool)| wanted.then(|| f(position)).transpose();
        self.wanted.iter().enumerate().map(gradient).collect()
    }
}

fn rule(b: &mut Builder, at: &Visit) -> Result<Gradients> {
    match &at.node.op {
        Op::Unary(func) => elementwise::unary(b, at, *func),
        Op::Binary(func) => elementwise::binary(b, at, *func),
        Op::Select => elementwise::select(b, at),
        Op::Convert(_) => elementwise::convert(b, at),
        Op::Reshape { .. } => layout::reshape(b, at),
        Op::Transpose { perm } => layout::transpose(b, at, perm),
        Op::Broadcast { axes, .. } => layout::broadcast(b, at, axes),
        Op::Slice(slice) => layout::slice(b, at, slice),
        Op::Pad(pad) => layout::pad(b, at, pad),
        Op::Concat { axis } => layout::concat(b, at, *axis),
        Op::Reverse { axes } => at.each(|_| b.reverse(at.gradient(), axes)),
        Op::Gather { axis } => indexing::gather(b, at, *axis),
        Op::Scatter { axis, combine } => indexing::scatter(b, at, *axis, *combine),
        Op::Dot(dot) => dot::dot(b, at, dot),
        Op::Conv(conv) => conv::conv(b, at, conv),
        Op::Reduce { func, axes } => reduce::reduce(b, at, *func, axes),
        Op::ReduceWindow(window) if window.func == ReduceFn::Sum => window::sum(b, at, window),
        Op::ReduceWindow(window) => window::selection(b, at, window),
        Op::Scan(scan) => scan::scan(b, at, scan),
        Op::Sort(sort) => sort::sort(b, at, sort),
        Op::Call(func) => control::call(b, at, *func),
        Op::If { then_func, else_func } => control::if_else(b, at, *then_func, *else_func),
        Op::Repeat { count, body } => repeat::repeat(b, at, *count, *body),
        Op::While { cond, body } => while_loop::while_loop(b, at, *cond, *body),
        Op::Constant(_) | Op::Iota { .. } | Op::Random { .. } | Op::Compare(_) | Op::Bitcast(_) => {
            unreachable!("gradients pass no {}", at.node.op)
        }
    }
}
