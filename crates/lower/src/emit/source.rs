//! Iota, random numbers and broadcast: every tile makes its block of the result.

use super::Emitter;
use crate::layouts::project;
use crate::plan::everywhere;
use pando_graph::{Distribution, Node};
use pando_tile::{Kernel, Span};

impl Emitter<'_> {
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

    /// As [`Emitter::random`]: noise depends on the element's place only.
    pub(super) fn rounding(&mut self, node: &Node) {
        let layout = self.layout(node.results[0]);
        let x = self.fetch(node.operands[0], &layout);
        let seeds = everywhere(&layout, &self.shape(node.operands[1]));
        let seed = self.fetch(node.operands[1], &seeds);
        let out = self.result(node);
        let operands = vec![(seed, seeds.region), (x, layout.region.clone()), (out, layout.region)];
        self.compute(&self.label(node), Kernel::Round, &layout.grid, operands);
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
