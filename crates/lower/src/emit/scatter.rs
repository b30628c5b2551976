//! Scattered rows.

use super::Emitter;
use crate::plan::{ScatterPlan, UPDATES, total_dtype};
use pando_base::{BinaryFn, ReduceFn, Shape};
use pando_graph::Node;
use pando_tile::{Kernel, Layout, Part, Region, Span};

impl Emitter<'_> {
    /// Where the updates are split, each tile combines its own onto neutral elements; these partial results
    /// are combined, and then with the data.
    pub(super) fn scatter(&mut self, node: &Node, plan: &ScatterPlan) {
        let [data, indices, updates] = [0, 1, 2].map(|operand| node.operands[operand]);
        let grid = plan.grid();
        let at = |region: &Region| Layout { grid: grid.clone(), region: region.clone() };
        let data_shape = self.shape(data);
        let data_region = plan.data_region(&data_shape);
        let index_region = plan.indices_region(&self.shape(indices));
        let update_region = plan.updates_region(&self.shape(updates));
        let (kernel, label) = (plan.kernel(data_shape[plan.axis]), self.label(node));
        if plan.parts[UPDATES] == 1 {
            let data_var = self.fetch(data, &at(&data_region));
            let index_var = self.fetch(indices, &at(&index_region));
            let update_var = self.fetch(updates, &at(&update_region));
            let out = self.result(node);
            let operands = vec![
                (data_var, data_region.clone()),
                (index_var, index_region),
                (update_var, update_region),
                (out, data_region),
            ];
            return self.compute(&label, kernel, &grid, operands);
        }
        let index_var = self.fetch(indices, &at(&index_region));
        let update_var = self.fetch(updates, &at(&update_region));
        let func = plan.combine.expect("only updates that are combined are split");
        let parts = plan.parts[UPDATES];
        let shape: Shape = std::iter::once(parts).chain(data_shape.iter().copied()).collect();
        let first = Span::Part(Part::even(UPDATES, parts, 1));
        let partial_region: Region = std::iter::once(first).chain(data_region).collect();
        let dtype = self.dtype(data);
        let name = self.base_name(node.results[0]);
        let partial =
            self.temp(&format!("{name}.partials"), total_dtype(func, dtype), shape, &at(&partial_region));
        let operands =
            vec![(index_var, index_region), (update_var, update_region), (partial, partial_region)];
        self.compute(&label, kernel, &grid, operands);
        let layout = self.layout(node.results[0]);
        let total = self.combine_into(partial, &[0], func, &plan.stages, node, |emitter| {
            emitter.temp(&format!("{name}.total"), dtype, data_shape.clone(), &layout)
        });
        let data_var = self.fetch(data, &layout);
        let out = self.result(node);
        let region = &layout.region;
        let operands = [data_var, total, out].map(|var| (var, region.clone())).to_vec();
        self.compute(&label, Kernel::Binary(binary(func)), &layout.grid, operands);
    }
}

fn binary(func: ReduceFn) -> BinaryFn {
    match func {
        ReduceFn::Sum => BinaryFn::Add,
        ReduceFn::Prod => BinaryFn::Mul,
        ReduceFn::Max => BinaryFn::Max,
        ReduceFn::Min => BinaryFn::Min,
        ReduceFn::And => BinaryFn::And,
        ReduceFn::Or => BinaryFn::Or,
    }
}
