//! Which elementwise nodes are computed in one pass. A node joins the group of its users if all of them are
//! in one group: then its result never reaches memory. Reshapes between members join too, since positions
//! stay the same.

use crate::flat::{Flat, FlatNode, Work};
use crate::recognise::Composite;
use pando_base::DType;
use pando_graph::Op;

/// Most members of a group: their registers must fit the L1 cache.
const MAX_MEMBERS: usize = 40;

/// The root of nodes whose work is done elsewhere: no node has this number.
const TAKEN: usize = usize::MAX;

/// The root of a group is its last node.
pub struct Groups {
    /// For each node, the root of its group.
    root: Vec<Option<usize>>,
}

impl Groups {
    pub fn of(flat: &Flat, fuse: bool) -> Groups {
        let mut root: Vec<Option<usize>> = vec![None; flat.nodes.len()];
        let mut members = vec![0; flat.nodes.len()];
        // Users of each value seen so far, walking backwards: none, one group, or something else.
        let mut users: Vec<Users> = vec![Users::None; flat.values.len()];
        flat.results.iter().for_each(|&value| users[value] = Users::Other);
        for (index, node) in flat.nodes.iter().enumerate().rev() {
            let elementwise = is_elementwise(flat, node);
            if elementwise || is_reshape(node) {
                root[index] = match users[node.results[0]] {
                    Users::Group(group) if fuse && members[group] < MAX_MEMBERS => Some(group),
                    _ => elementwise.then_some(index),
                };
            }
            if let Some(group) = root[index] {
                members[group] += 1;
            }
            for &operand in &node.operands {
                users[operand] = users[operand].with(root[index]);
            }
        }
        Groups { root }
    }

    /// Takes a node out of its group: a step before does its work.
    pub fn take(&mut self, node: usize) {
        self.root[node] = Some(TAKEN);
    }

    pub fn root(&self, node: usize) -> Option<usize> {
        self.root[node]
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Users {
    None,
    Group(usize),
    Other,
}

impl Users {
    fn with(self, group: Option<usize>) -> Users {
        match (self, group) {
            (Users::None, Some(group)) => Users::Group(group),
            (Users::Group(old), Some(group)) if old == group => self,
            _ => Users::Other,
        }
    }
}

pub fn is_reshape(node: &FlatNode) -> bool {
    matches!(node.work, Work::Op(Op::Reshape { .. }))
}

/// All elements of an operand in some order: a view for whoever can read it so.
pub fn is_view(node: &FlatNode) -> bool {
    is_reshape(node) || matches!(node.work, Work::Op(Op::Transpose { .. }))
}

/// Elementwise in types that registers hold. A bitcast is a view; 8-bit floats have no registers.
pub fn is_elementwise(flat: &Flat, node: &FlatNode) -> bool {
    let op = match &node.work {
        Work::Op(op) => op,
        Work::Composite(Composite::Activation(_)) => return true,
        _ => return false,
    };
    let mut types = node.operands.iter().chain(&node.results).map(|&value| flat.values[value].dtype);
    op.is_elementwise() && !matches!(op, Op::Bitcast(_)) && !types.any(|ty| matches!(ty, DType::F8(..)))
}
