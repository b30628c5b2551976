//! Elementwise operations, iota, random numbers and broadcast: every tile computes its block of the result.

use super::Emitter;
use crate::layouts::project;
use crate::plan::everywhere;
use pando_graph::{Distribution, Node, Op};
use pando_tile::{Kernel, Region, Span, VarId};

impl Emitter<'_> {
    pub(super) fn elementwise(&mut self, node: &Node) {
        let layout = self.layout(node.results[0]);
        let mut operands: Vec<(VarId, Region)> = node
            .operands
            .iter()
            .map(|&operand| (self.fetch(operand, &layout), layout.region.clone()))
            .collect();
        operands.push((self.result(node), layout.region.clone()));
        self.compute(&self.label(node), kernel(&node.op), &layout.grid, operands);
    }

    pub(super) fn iota(&mut self, axis: usize, node: &Node) {
        let layout = self.layout(node.results[0]);
        let out = self.result(node);
        self.compute(
            &self.label(node),
            Kernel::Iota { axis: axis as u8 },
            &layout.grid,
            vec![(out, layout.region)],
        );
    }

    /// Every tile has the seed and draws its elements.
    pub(super) fn random(&mut self, distribution: Distribution, node: &Node) {
        let layout = self.layout(node.results[0]);
        let seeds = everywhere(&layout, &self.shape(node.operands[0]));
        let seed = self.fetch(node.operands[0], &seeds);
        let out = self.result(node);
        let operands = vec![(seed, seeds.region), (out, layout.region)];
        self.compute(&self.label(node), Kernel::Random { distribution }, &layout.grid, operands);
    }

    /// The operand's part of each block is brought to the tile, which repeats it.
    pub(super) fn broadcast(&mut self, axes: &[usize], node: &Node) {
        let (operand, layout) = (node.operands[0], self.layout(node.results[0]));
        let shape = self.shape(operand);
        let source = self.fetch(operand, &project(&layout, &shape, axes));
        let region = axes
            .iter()
            .zip(shape.iter())
            .map(|(&axis, &size)| if size == 1 { Span::full(1) } else { layout.region[axis] })
            .collect();
        let kernel = Kernel::Broadcast { dims: axes.iter().map(|&axis| axis as u8).collect() };
        let out = self.result(node);
        self.compute(
            &self.label(node),
            kernel,
            &layout.grid,
            vec![(source, region), (out, layout.region.clone())],
        );
    }
}

fn kernel(op: &Op) -> Kernel {
    match op {
        Op::Unary(func) => Kernel::Unary(*func),
        Op::Binary(func) => Kernel::Binary(*func),
        Op::Compare(func) => Kernel::Compare(*func),
        Op::Select => Kernel::Select,
        Op::Convert(_) => Kernel::Cast,
        // The same bits, under another type.
        Op::Bitcast(_) => Kernel::Copy,
        _ => unreachable!("{op} is not elementwise"),
    }
}
