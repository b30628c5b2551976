//! Products with sparse matrices: one vertex a tile with its bucket, partial sums of bands of columns combined.

use super::Emitter;
use crate::plan::{COLUMNS, SparsePlan};
use pando_base::{ReduceFn, Shape};
use pando_graph::Node;
use pando_tile::{Kernel, Layout, Part, Region, Span};

impl Emitter<'_> {
    pub(super) fn sparse_matmul(&mut self, node: &Node, plan: &SparsePlan) {
        let grid = plan.grid();
        let at = |region: &Region| Layout { grid: grid.clone(), region: region.clone() };
        let x_region = plan.x_region(&self.shape(node.operands[0]));
        let mut operands = vec![(self.fetch(node.operands[0], &at(&x_region)), x_region)];
        for &value in &node.operands[1..] {
            let region = plan.bucket_region(&self.shape(value));
            operands.push((self.fetch(value, &at(&region)), region));
        }
        let (label, shape) = (self.label(node), self.shape(node.results[0]));
        let out_region = plan.out_region(&shape);
        let bands = plan.parts[COLUMNS];
        if bands == 1 {
            operands.push((self.result(node), out_region));
            return self.compute(&label, Kernel::SparseMatMul, &grid, operands);
        }
        let partial_shape: Shape = std::iter::once(bands).chain(shape.iter().copied()).collect();
        let own = Span::Part(Part::even(COLUMNS, bands, 1));
        let region: Region = std::iter::once(own).chain(out_region).collect();
        let name = format!("{}.partials", self.base_name(node.results[0]));
        let partial = self.temp(&name, plan.partials, partial_shape, &at(&region));
        operands.push((partial, region));
        self.compute(&label, Kernel::SparseMatMul, &grid, operands);
        self.combine(partial, &[0], ReduceFn::Sum, &plan.stages, node);
    }
}
