//! Which elementwise operations run as part of the vertex that uses them, so that what is between two
//! functions is neither stored nor sent: results with one user of the same layout, broadcasts, and slices of what
//! lies there already. A result that others need later is stored on the way.
//!
//! Before: every node has a method and every value a layout. After: nodes that are computed where they are
//! used have [`Method::Fused`], [`Method::Kept`] or [`Method::View`].

use super::in_place::{is_dense, reshaped, sliced};
use super::smooth::smooth;
use super::{Method, Plan};
use crate::prepare::constant_number;
use pando_base::SideTable;
use pando_graph::{Func, Module, Node, NodeId, Op, ValueDef, ValueId};
use pando_tile::kernel::MAX_INPUTS;
use rustc_hash::FxHashSet;

/// Longer chains would spill registers. Assumption, no source: of 16 registers of 64 bits (hardware.md
/// section 2) half hold inputs and half what is between.
const MAX_STEPS: usize = 16;

/// A chain that ends in a node: what it reads, how many functions it has, and a value that it computes for others,
/// too.
#[derive(Clone)]
struct Chain {
    inputs: FxHashSet<ValueId>,
    steps: usize,
    kept: Option<ValueId>,
}

pub(super) fn fuse(module: &Module, func: &Func, plan: &mut Plan) {
    let fuser = Fuser { module, func, users: all_users(func) };
    fuser.views(plan);
    fuser.chains(plan);
}

struct Fuser<'a> {
    module: &'a Module,
    func: &'a Func,
    users: SideTable<ValueId, Vec<NodeId>>,
}

impl Fuser<'_> {
    fn chains(&self, plan: &mut Plan) {
        let func = self.func;
        let mut chains: SideTable<NodeId, Option<Chain>> = SideTable::default();
        for (id, node) in func.nodes.iter() {
            if is_repeated(func, plan, node, &self.users) {
                plan.methods[id] = Some(Method::Fused);
            }
            if !may_chain(&node.op) {
                continue;
            }
            let inputs = node.operands.iter().copied().filter(|&operand| !self.is_number(operand)).collect();
            let mut chain = Chain { inputs, steps: 1, kept: None };
            for &operand in &node.operands {
                self.join(&mut chain, operand, id, plan, &chains);
            }
            if let Some(found) = smooth(self.module, func, node)
                && found.parts.iter().all(|&part| plan.methods[part] == Some(Method::Fused))
            {
                chain.steps -= found.parts.len();
            }
            chains[id] = Some(chain);
        }
    }

    /// The chain of an operand becomes part of the node's if nobody else needs its result before, and it is not too
    /// long.
    fn join(
        &self,
        chain: &mut Chain,
        operand: ValueId,
        id: NodeId,
        plan: &mut Plan,
        chains: &SideTable<NodeId, Option<Chain>>,
    ) {
        let ValueDef::Node(source, _) = self.func.values[operand].def else { return };
        let Some(more) = &chains[source] else { return };
        let private = is_private(self.func, plan, operand, id, &self.users);
        let kept = match (private, more.kept) {
            (true, kept) => kept,
            (false, None)
                if self.is_used_later(operand, id, source, plan)
                    && lies_alike(self.func, plan, operand, id) =>
            {
                Some(operand)
            }
            _ => return,
        };
        let is_late = kept.is_none_or(|kept| self.is_used_later(kept, id, source, plan));
        if !chain.inputs.contains(&operand) || !is_late || (kept.is_some() && chain.kept.is_some()) {
            return;
        }
        let joined: FxHashSet<ValueId> =
            chain.inputs.iter().chain(&more.inputs).copied().filter(|&input| input != operand).collect();
        if joined.len() > MAX_INPUTS || chain.steps + more.steps > MAX_STEPS {
            return;
        }
        *chain = Chain { inputs: joined, steps: chain.steps + more.steps, kept: kept.or(chain.kept) };
        plan.methods[source] = Some(if private { Method::Fused } else { Method::Kept });
    }

    /// Whether all uses of a value outside the chain of `source`, which becomes part of the node's, come later than
    /// the node and are no elementwise functions, which would rather be one vertex with it themselves.
    fn is_used_later(&self, value: ValueId, id: NodeId, source: NodeId, plan: &Plan) -> bool {
        let inside = |user: NodeId| user == id || user == source || plan.methods[user] == Some(Method::Fused);
        let others = || self.users[value].iter().filter(|&&user| !inside(user));
        let is_result = self.func.results.contains(&value);
        (is_result || others().count() > 0)
            && others().all(|&user| user > id && !may_chain(&self.func.nodes[user].op))
    }

    /// What needs no vertex and no copy, since its users read the source. From the last node on: a user may be a
    /// view itself.
    fn views(&self, plan: &mut Plan) {
        let nodes: Vec<(NodeId, &Node)> = self.func.nodes.iter().collect();
        for (id, node) in nodes.into_iter().rev() {
            if self.is_view(node, plan) {
                plan.methods[id] = Some(Method::View);
            }
        }
    }

    fn is_view(&self, node: &Node, plan: &Plan) -> bool {
        let shape = |value: ValueId| self.func.ty(value).shape().expect("sizes were checked to be numbers");
        let (Some(&source), value) = (node.operands.first(), node.results[0]) else { return false };
        let lies = || plan.layouts[source].as_ref();
        let stays = match &node.op {
            Op::Slice(slice) if is_dense(slice) => {
                lies().and_then(|layout| sliced(layout, &shape(source), &shape(value)))
            }
            Op::Reshape { .. } => lies().and_then(|layout| reshaped(layout, &shape(source), &shape(value))),
            _ => None,
        };
        let users = &self.users[value];
        let is_constant = self.is_constant(source);
        stays.is_some()
            && stays == plan.layouts[value]
            && !is_constant
            && !users.is_empty()
            && !self.func.results.contains(&value)
            && users.iter().all(|&user| self.reads_through(value, user, plan))
    }

    fn reads_through(&self, value: ValueId, user: NodeId, plan: &Plan) -> bool {
        let node = &self.func.nodes[user];
        let is_index = matches!(node.op, Op::Gather { .. } | Op::Scatter { .. })
            && plan.methods[user] == Some(Method::Direct)
            && node.operands.iter().enumerate().all(|(at, &operand)| operand != value || at == 1);
        let is_input = may_chain(&node.op)
            && self.func.ty(node.results[0]).rank() > 0
            && lies_alike(self.func, plan, value, user);
        is_index || is_input || plan.methods[user] == Some(Method::View)
    }

    fn is_constant(&self, value: ValueId) -> bool {
        matches!(self.func.values[value].def, ValueDef::Node(node, _) if matches!(self.func.nodes[node].op, Op::Constant(_)))
    }

    /// Whether a vertex has it as a number.
    fn is_number(&self, value: ValueId) -> bool {
        self.is_constant(value) && constant_number(self.module, self.func, value).is_some()
    }
}

/// Bits of another type have no function.
fn may_chain(op: &Op) -> bool {
    op.is_elementwise() && !matches!(op, Op::Bitcast(_))
}

/// The number that all elements of a value are, as far as constants and their repetitions tell.
pub(crate) fn number_of(module: &Module, func: &Func, value: ValueId) -> Option<f64> {
    let ValueDef::Node(node, _) = func.values[value].def else { return None };
    match &func.nodes[node] {
        Node { op: Op::Constant(_), .. } => constant_number(module, func, value),
        Node { op: Op::Broadcast { .. }, operands, .. } => constant_number(module, func, operands[0]),
        _ => None,
    }
}

/// The nodes that use each value, in order.
pub(super) fn all_users(func: &Func) -> SideTable<ValueId, Vec<NodeId>> {
    let mut users: SideTable<ValueId, Vec<NodeId>> = SideTable::default();
    for (id, node) in func.nodes.iter() {
        for &operand in &node.operands {
            if users[operand].last() != Some(&id) {
                users[operand].push(id);
            }
        }
    }
    users
}

/// Whether only this node uses the value, on the tiles that have it.
fn is_private(
    func: &Func,
    plan: &Plan,
    value: ValueId,
    user: NodeId,
    users: &SideTable<ValueId, Vec<NodeId>>,
) -> bool {
    users[value] == [user] && !func.results.contains(&value) && lies_alike(func, plan, value, user)
}

fn lies_alike(func: &Func, plan: &Plan, value: ValueId, user: NodeId) -> bool {
    plan.layouts[value] == plan.layouts[func.nodes[user].results[0]]
}

/// Whether a broadcast need not be stored: every user repeats the operand itself.
fn is_repeated(func: &Func, plan: &Plan, node: &Node, users: &SideTable<ValueId, Vec<NodeId>>) -> bool {
    let value = node.results[0];
    let suits = |&user: &NodeId| may_chain(&func.nodes[user].op) && lies_alike(func, plan, value, user);
    matches!(node.op, Op::Broadcast { .. })
        && !func.results.contains(&value)
        && !users[value].is_empty()
        && users[value].iter().all(suits)
}
