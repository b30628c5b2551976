//! Which elementwise operations run as part of the vertex that uses them, so that what is between two
//! functions is neither stored nor sent: results with one user of the same layout, and broadcasts.
//!
//! Before: every node has a method and every value a layout. After: nodes that are computed where they are
//! used have [`Method::Fused`].

use super::{Method, Plan};
use pando_base::SideTable;
use pando_graph::{Func, Node, NodeId, Op, ValueDef, ValueId};
use pando_tile::kernel::MAX_INPUTS;
use rustc_hash::FxHashSet;

/// Longer chains would spill registers. Assumption, no source: of 16 registers of 64 bits (hardware.md
/// section 2) half hold inputs and half what is between.
const MAX_STEPS: usize = 12;

pub(super) fn fuse(func: &Func, plan: &mut Plan) {
    let users = all_users(func);
    // For nodes that may be roots of a chain: its inputs and number of functions.
    let mut chains: SideTable<NodeId, Option<(FxHashSet<ValueId>, usize)>> = SideTable::default();
    for (id, node) in func.nodes.iter() {
        if is_repeated(func, plan, node, &users) {
            plan.methods[id] = Some(Method::Fused);
        }
        if !may_chain(&node.op) {
            continue;
        }
        let mut inputs: FxHashSet<ValueId> = node.operands.iter().copied().collect();
        let mut steps = 1;
        for &operand in &node.operands {
            let ValueDef::Node(source, _) = func.values[operand].def else { continue };
            let Some((more, its_steps)) = &chains[source] else { continue };
            if !inputs.contains(&operand) || !is_private(func, plan, operand, id, &users) {
                continue;
            }
            let joined: FxHashSet<ValueId> =
                inputs.iter().chain(more).copied().filter(|&input| input != operand).collect();
            if joined.len() <= MAX_INPUTS && steps + its_steps <= MAX_STEPS {
                (inputs, steps) = (joined, steps + its_steps);
                plan.methods[source] = Some(Method::Fused);
            }
        }
        chains[id] = Some((inputs, steps));
    }
}

/// Bits of another type have no function.
fn may_chain(op: &Op) -> bool {
    op.is_elementwise() && !matches!(op, Op::Bitcast(_))
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
