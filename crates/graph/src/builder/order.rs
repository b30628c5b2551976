//! Changes of the innermost function that differentiation needs: a node that takes another's place, and the order
//! of nodes after that.

use super::Builder;
use crate::module::{Func, NodeId, ValueDef, ValueId};
use pando_base::{Arena, Id, SideTable};

impl Builder {
    /// From now on `old`, the results of one node, are what `new`, the first results of another, were: ids that
    /// stand already mean the new node's values. Until [`Builder::restore_order`] nodes may stand behind their
    /// uses.
    pub(crate) fn supersede(&mut self, old: &[ValueId], new: &[ValueId]) {
        let func = &mut self.frame().func;
        for (&old, &new) in old.iter().zip(new) {
            let (old_def, new_def) = (func.values[old].def, func.values[new].def);
            for (value, def) in [(old, new_def), (new, old_def)] {
                let ValueDef::Node(node, position) = def else { unreachable!("results are of nodes") };
                func.nodes[node].results[position as usize] = value;
                func.values[value].def = def;
            }
        }
        self.frame().disordered = true;
    }

    /// Moves nodes before their uses, where they are not; the order is otherwise kept.
    pub(crate) fn restore_order(&mut self) {
        let frame = self.frame();
        if !std::mem::take(&mut frame.disordered) {
            return;
        }
        let order = operands_first(&frame.func);
        let mut new_ids: SideTable<NodeId, NodeId> = SideTable::with_default(NodeId::from_index(0));
        let mut nodes = Arena::new();
        for old in order {
            new_ids[old] = nodes.push(frame.func.nodes[old].clone());
        }
        frame.func.nodes = nodes;
        frame.shared.values_mut().for_each(|node| *node = new_ids[*node]);
        for (_, value) in frame.func.values.iter_mut() {
            if let ValueDef::Node(node, _) = &mut value.def {
                *node = new_ids[*node];
            }
        }
    }
}

fn operands_first(func: &Func) -> Vec<NodeId> {
    let mut order = Vec::with_capacity(func.nodes.len());
    let mut placed = vec![false; func.nodes.len()];
    for root in func.nodes.ids() {
        let mut stack = vec![root];
        while let Some(&node) = stack.last() {
            let waiting = stack.len();
            if !placed[node.index()] {
                let above =
                    func.nodes[node].operands.iter().filter_map(|&value| match func.values[value].def {
                        ValueDef::Node(node, _) if !placed[node.index()] => Some(node),
                        _ => None,
                    });
                stack.extend(above);
            }
            if stack.len() == waiting {
                stack.pop();
                if !std::mem::replace(&mut placed[node.index()], true) {
                    order.push(node);
                }
            }
        }
    }
    order
}
