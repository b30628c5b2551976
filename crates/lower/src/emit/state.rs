//! State that a program updates: new values are computed beside the old ones and copied over them as soon as nothing
//! reads the old ones any more. Assumption: the copy is a step of its own; kernels that update in place would save it.

use super::Emitter;
use crate::plan::{Method, Plan};
use pando_base::SideTable;
use pando_graph::{Func, Node, NodeId, ValueDef, ValueId};
use pando_tile::{Copy, CopyMap};
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// Which new values can be copied after which node.
pub(super) struct Settling {
    ready: BTreeMap<NodeId, Vec<(ValueId, ValueId)>>,
}

impl Settling {
    pub fn new(func: &Func, plan: &Plan, state: &[(usize, usize)], is_main: bool) -> Self {
        let mut ready: BTreeMap<NodeId, Vec<(ValueId, ValueId)>> = BTreeMap::new();
        let last_reads = last_reads(func, plan);
        let vertices = vertices(func, plan);
        for &(param, result) in state.iter().filter(|_| is_main) {
            let (old, new) = (func.params[param], func.results[result]);
            let last = last_reads[old];
            let made = match func.values[new].def {
                ValueDef::Node(node, _) => Some(vertices[node].unwrap_or(node)),
                ValueDef::Param(_) => None,
            };
            // What stays as it is needs no copy; what becomes another parameter waits for that one's readers, too.
            if let (Some(node), true) = (last.max(made), old != new) {
                ready.entry(node).or_default().push((old, new));
            }
        }
        Settling { ready }
    }

    pub fn ready(&mut self, after: NodeId) -> Vec<(ValueId, ValueId)> {
        self.ready.remove(&after).unwrap_or_default()
    }
}

/// The node with which each value is last read: where a reader is part of another node's vertex, that node.
pub(super) fn last_reads(func: &Func, plan: &Plan) -> SideTable<ValueId, Option<NodeId>> {
    let mut last: SideTable<ValueId, Option<NodeId>> = SideTable::default();
    let nodes: Vec<(NodeId, &Node)> = func.nodes.iter().collect();
    for (id, node) in nodes.into_iter().rev() {
        let fused = matches!(plan.methods[id], Some(Method::Fused | Method::Kept | Method::View));
        let users = node.results.iter().filter_map(|&value| last[value]).max();
        let read = if fused { users.unwrap_or(id) } else { id };
        for &operand in &node.operands {
            last[operand] = last[operand].max(Some(read));
        }
    }
    last
}

/// For nodes that are computed in another node's vertex, that node: the end of the chain of first users.
fn vertices(func: &Func, plan: &Plan) -> SideTable<NodeId, Option<NodeId>> {
    let mut first: SideTable<ValueId, Option<NodeId>> = SideTable::default();
    let mut vertices: SideTable<NodeId, Option<NodeId>> = SideTable::default();
    let nodes: Vec<(NodeId, &Node)> = func.nodes.iter().collect();
    for (id, node) in nodes.into_iter().rev() {
        if matches!(plan.methods[id], Some(Method::Fused | Method::Kept)) {
            vertices[id] = first[node.results[0]].map(|user| vertices[user].unwrap_or(user));
        }
        node.operands.iter().for_each(|&operand| first[operand] = Some(id));
    }
    vertices
}

impl Emitter<'_> {
    pub(super) fn settle(&mut self, param: ValueId, value: ValueId) {
        let (src, dst) = (self.home(value), self.home(param));
        let map = CopyMap::identity(&self.shape(value));
        self.pending.push(Copy { src, dsts: SmallVec::from_slice(&[dst]), map });
        let name = format!("state/{}", self.base_name(param));
        self.flush(&name);
    }

    /// The parameter whose place a result takes.
    pub(super) fn state_of(&self, result: usize) -> Option<usize> {
        self.options.state.iter().find(|&&(_, index)| index == result).map(|&(param, _)| param)
    }
}
