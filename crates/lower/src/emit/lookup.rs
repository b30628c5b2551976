//! Row lookups.

use super::Emitter;
use crate::plan::GatherPlan;
use pando_base::{DType, ReduceFn, Shape};
use pando_graph::Node;
use pando_tile::{Kernel, Layout, Part, Region, Span};

/// The axis that splits the looked-up dimension.
const ROWS: usize = 0;

impl Emitter<'_> {
    /// Where the looked-up dimension is split, each tile answers for the rows it has and gives zero for the
    /// others; the answers are added.
    pub(super) fn gather(&mut self, node: &Node, plan: &GatherPlan) {
        let (data, indices) = (node.operands[0], node.operands[1]);
        let (data_shape, index_shape) = (self.shape(data), self.shape(indices));
        let grid = plan.grid();
        let at = |region: &Region| Layout { grid: grid.clone(), region: region.clone() };
        let data_region = plan.data_region(&data_shape);
        let index_region = plan.indices_region(&index_shape);
        let out_region = plan.out_region(&data_shape, &index_shape);
        let data_var = self.fetch(data, &at(&data_region));
        let index_var = self.fetch(indices, &at(&index_region));
        let kernel = Kernel::Gather { axis: plan.axis as u8, size: data_shape[plan.axis] };
        let label = self.label(node);
        let parts = plan.parts[ROWS];
        if parts == 1 {
            let out = self.result(node);
            let operands = vec![(data_var, data_region), (index_var, index_region), (out, out_region)];
            return self.compute(&label, kernel, &grid, operands);
        }
        let shape: Shape =
            std::iter::once(parts).chain(self.shape(node.results[0]).iter().copied()).collect();
        let partial_region: Region =
            std::iter::once(Span::Part(Part::even(ROWS, parts, 1))).chain(out_region).collect();
        let name = format!("{}.partials", self.base_name(node.results[0]));
        let dtype = self.dtype(node.results[0]);
        let partial = self.temp(&name, dtype, shape, &at(&partial_region));
        let operands = vec![(data_var, data_region), (index_var, index_region), (partial, partial_region)];
        self.compute(&label, kernel, &grid, operands);
        let func = if dtype == DType::Bool { ReduceFn::Or } else { ReduceFn::Sum };
        self.combine(partial, &[0], func, &plan.stages, node);
    }
}
