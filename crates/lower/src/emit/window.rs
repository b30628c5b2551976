//! Sliding windows: every tile gets what its part of the result needs, the overlap with neighbours included.

use super::Emitter;
use crate::plan::{window_kernel, window_source};
use pando_graph::{Node, ReduceWindow};

impl Emitter<'_> {
    pub(super) fn reduce_window(&mut self, window: &ReduceWindow, node: &Node) {
        let (operand, layout) = (node.operands[0], self.layout(node.results[0]));
        let source = window_source(window, &layout, &self.shape(operand));
        let input = self.fetch(operand, &source);
        let out = self.result(node);
        let operands = vec![(input, source.region), (out, layout.region)];
        self.compute(&self.label(node), window_kernel(window), &layout.grid, operands);
    }
}
