//! Sliding windows: every tile gets what its part of the result needs, the overlap with neighbours included.

use super::Emitter;
use crate::plan::{gradient_sources, window_gradient_kernel, window_kernel, window_source};
use pando_graph::{Node, ReduceWindow};
use pando_tile::{Region, VarId};

impl Emitter<'_> {
    pub(super) fn reduce_window(&mut self, window: &ReduceWindow, node: &Node) {
        let (operand, layout) = (node.operands[0], self.layout(node.results[0]));
        let source = window_source(window, &layout, &self.shape(operand));
        let input = self.fetch(operand, &source);
        let out = self.result(node);
        let operands = vec![(input, source.region), (out, layout.region)];
        self.compute(&self.label(node), window_kernel(window), &layout.grid, operands);
    }

    pub(super) fn window_gradient(&mut self, window: &ReduceWindow, node: &Node) {
        let (layout, values) = (self.layout(node.results[0]), [node.operands[0], node.operands[1]]);
        let [x, gradient] = values.map(|value| self.shape(value));
        let sources = gradient_sources(window, &layout, &x, &gradient);
        let mut operands: Vec<(VarId, Region)> = values
            .into_iter()
            .zip(&sources)
            .map(|(value, source)| (self.fetch(value, source), source.region.clone()))
            .collect();
        operands.push((self.result(node), layout.region));
        self.compute(&self.label(node), window_gradient_kernel(window), &layout.grid, operands);
    }
}
