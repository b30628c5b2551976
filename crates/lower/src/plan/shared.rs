//! One layout of weights for all products of a training step that use them: forward, backward, and the one that makes
//! their gradient. Each product has a layout that it would like best; the one with which all of them together take least
//! is taken, as PopLibs' planner weighs one plan for all passes against one for each (poplar.md section 3.4).

use super::matmul::Operand;
use super::{MatmulPlan, Planner, receive_cycles, superstep_cycles};
use crate::layouts::normalize;
use pando_graph::{Dot, Node, NodeId, Op, ValueDef, ValueId};
use pando_tile::Layout;
use rustc_hash::FxHashMap;

/// A product and its operand or result that is of a family, or is transposed from one.
struct Use<'a> {
    dot: &'a Dot,
    node: &'a Node,
    /// The operand; nothing for the result.
    operand: Option<usize>,
    /// Which of the family's dimensions each dimension is, if they are in another order.
    perm: Option<&'a [usize]>,
}

impl<'a> Planner<'a> {
    /// The matrix products of which each family is an operand or the result, perhaps transposed, in order.
    pub(super) fn products_of_families(&self) -> FxHashMap<ValueId, Vec<NodeId>> {
        let mut products: FxHashMap<ValueId, Vec<NodeId>> = FxHashMap::default();
        for (id, node) in self.func.nodes.iter().filter(|(_, node)| matches!(node.op, Op::Dot(_))) {
            let operands = node.operands.iter().copied();
            let sources = operands.clone().filter_map(|operand| Some(self.transposed_from(operand)?.0));
            for value in operands.chain(sources).chain([node.results[0]]) {
                let Some(family) = self.families.of(value) else { continue };
                let known = products.entry(family).or_default();
                if known.last() != Some(&id) {
                    known.push(id);
                }
            }
        }
        products
    }

    /// Decides the layout of the family of a value that is an operand of products.
    pub(super) fn share_weights(&mut self, value: ValueId, products: &[NodeId]) {
        let uses = self.uses_of(value, products);
        let reads = uses.iter().filter(|at| at.operand.is_some());
        let candidates: Vec<Layout> = reads.map(|at| self.favourite(at, value)).collect();
        let costs: Vec<u64> = candidates
            .iter()
            .map(|layout| uses.iter().map(|at| self.cycles_with(at, layout, value)).sum())
            .collect();
        // Estimates are not so exact that less than a sixteenth counts.
        let best = (0..costs.len()).min_by_key(|&at| costs[at]).expect("a product uses the value");
        let best = if costs[best] < costs[0] - costs[0] / 16 { best } else { 0 };
        let (shape, tiles) = (self.shape(value), self.tiles());
        self.families.decide(value, &candidates[best], &shape, tiles);
    }

    fn uses_of(&self, value: ValueId, products: &[NodeId]) -> Vec<Use<'a>> {
        let func = self.func;
        let mut uses = Vec::new();
        for &product in products {
            let node = &func.nodes[product];
            let Op::Dot(dot) = &node.op else { continue };
            let places = node.operands.iter().enumerate().map(|(at, &operand)| (Some(at), operand));
            for (operand, used) in places.chain([(None, node.results[0])]) {
                if self.families.are_one(value, used) {
                    uses.push(Use { dot, node, operand, perm: None });
                } else if let (Some(_), Some((source, perm))) = (operand, self.transposed_from(used))
                    && self.families.are_one(value, source)
                {
                    uses.push(Use { dot, node, operand, perm: Some(perm) });
                }
            }
        }
        uses
    }

    fn transposed_from(&self, value: ValueId) -> Option<(ValueId, &'a [usize])> {
        let ValueDef::Node(node, _) = self.func.values[value].def else { return None };
        match &self.func.nodes[node] {
            Node { op: Op::Transpose { perm }, operands, .. } => Some((operands[0], perm)),
            _ => None,
        }
    }

    /// How the family lies best for one product.
    fn favourite(&mut self, at: &Use, value: ValueId) -> Layout {
        let operand = at.operand.expect("of products that read it");
        let operands = [0, 1].map(|side| Operand { layout: None, is_free: side == operand });
        let plan = self.matmul_plan_for(at.dot, at.node, &operands);
        let mut wanted = self.own_layout(&plan, at);
        if let Some(perm) = at.perm {
            let region = wanted.region.clone();
            perm.iter().zip(region).for_each(|(&dim, span)| wanted.region[dim] = span);
        }
        self.shared_out(&wanted, value)
    }

    /// What the plan has of the operand or the result on each tile.
    fn own_layout(&self, plan: &MatmulPlan, at: &Use) -> Layout {
        let shapes = [self.shape(at.node.operands[0]), self.shape(at.node.operands[1])];
        let shapes = [&*shapes[0], &*shapes[1]];
        let region = match at.operand {
            Some(operand) => plan.operand_regions(shapes)[operand].clone(),
            None => plan.out_region(shapes),
        };
        Layout { grid: plan.grid.clone(), region }
    }

    /// Cycles of a product if the family lies so. A result that is complete where it is made has to be brought there.
    fn cycles_with(&mut self, at: &Use, layout: &Layout, value: ValueId) -> u64 {
        let oriented = match at.perm {
            Some(perm) => {
                let region = perm.iter().map(|&dim| layout.region[dim]).collect();
                Layout { grid: layout.grid.clone(), region }
            }
            None => layout.clone(),
        };
        let lies = |side: usize| (at.operand == Some(side)).then(|| oriented.clone());
        let operands = [0, 1].map(|side| Operand { layout: lies(side), is_free: false });
        let plan = self.matmul_plan_for(at.dot, at.node, &operands);
        let (shape, element_bytes) = (self.shape(value), self.dtype(value).size_bytes());
        let block_bytes = Self::largest_lens(layout, &shape).iter().product::<u64>() * element_bytes;
        let sent = receive_cycles(self.machine, block_bytes, false);
        let more = match at.operand {
            // Who has most of it sends longest, if that takes longer than to receive.
            Some(operand) => {
                let arrival = [plan.cost.lhs_exchange_cycles, plan.cost.rhs_exchange_cycles];
                let received = arrival[operand ^ usize::from(plan.swapped)];
                if received == 0 { 0 } else { sent.saturating_sub(received) }
            }
            None if !plan.stages.is_empty() => 0,
            None if normalize(&self.own_layout(&plan, at), &shape) == normalize(layout, &shape) => 0,
            None => sent + superstep_cycles(self.machine),
        };
        plan.cost.cycles() + more
    }
}
