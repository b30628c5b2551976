//! Products and convolutions: operands to their blocks, one vertex per tile, partial sums combined.

use super::Emitter;
use crate::plan::{ConvPlan, MatmulPlan};
use pando_base::{DType, ReduceFn, Shape};
use pando_graph::Node;
use pando_tile::{Grid, Kernel, Layout, Part, Region, Span};

/// Both planners put the axis that splits the summed dimension first.
const SUMMED: usize = 0;

impl Emitter<'_> {
    pub(super) fn matmul(&mut self, node: &Node, plan: &MatmulPlan) {
        let (lhs, rhs) = (self.shape(node.operands[0]), self.shape(node.operands[1]));
        let pairs = |pairs: &[(usize, usize)]| pairs.iter().map(|&(a, b)| (a as u8, b as u8)).collect();
        let kernel = Kernel::MatMul {
            batch: pairs(&plan.dims.batch),
            contract: pairs(&plan.dims.contract),
            partials: plan.partials,
        };
        let regions = [plan.lhs_region(&lhs), plan.rhs_region(&rhs), plan.out_region(&lhs, &rhs)];
        self.contract(node, kernel, plan.grid(), regions, plan.partials, &plan.stages);
    }

    pub(super) fn conv(&mut self, node: &Node, plan: &ConvPlan) {
        let (input, weights) = (self.shape(node.operands[0]), self.shape(node.operands[1]));
        let output = self.shape(node.results[0]);
        let regions = [
            plan.input_region(&input, &weights, &output),
            plan.weights_region(&weights),
            plan.out_region(&output),
        ];
        let kernel = Kernel::Conv(plan.attrs.clone());
        self.contract(node, kernel, plan.grid(), regions, plan.attrs.partials, &plan.stages);
    }

    fn contract(
        &mut self,
        node: &Node,
        kernel: Kernel,
        grid: Grid,
        [lhs_region, rhs_region, out_region]: [Region; 3],
        partials: DType,
        stages: &[u64],
    ) {
        let at = |region: &Region| Layout { grid: grid.clone(), region: region.clone() };
        let lhs = self.fetch(node.operands[0], &at(&lhs_region));
        let rhs = self.fetch(node.operands[1], &at(&rhs_region));
        let label = self.label(node);
        let parts = u64::from(grid.axes[SUMMED].extent);
        if parts == 1 {
            let out = self.result(node);
            return self.compute(
                &label,
                kernel,
                &grid,
                vec![(lhs, lhs_region), (rhs, rhs_region), (out, out_region)],
            );
        }
        let shape: Shape =
            std::iter::once(parts).chain(self.shape(node.results[0]).iter().copied()).collect();
        let first = Span::Part(Part::even(SUMMED, parts, 1));
        let partial_region: Region = std::iter::once(first).chain(out_region).collect();
        let name = format!("{}.partials", self.base_name(node.results[0]));
        let partial = self.temp(&name, partials, shape, &at(&partial_region));
        self.compute(
            &label,
            kernel,
            &grid,
            vec![(lhs, lhs_region), (rhs, rhs_region), (partial, partial_region)],
        );
        self.combine(partial, &[0], ReduceFn::Sum, stages, node);
    }
}
