//! Products and convolutions: operands to their blocks, one vertex per tile, partial sums combined.

use super::Emitter;
use crate::plan::{ConvPlan, MatmulPlan};
use pando_base::{DType, ReduceFn, Shape};
use pando_graph::Node;
use pando_tile::kernel::ConvMethod;
use pando_tile::{Grid, Kernel, Layout, Part, Region, Span, VarId};

/// A product on a grid of tiles.
struct Product {
    kernel: Kernel,
    grid: Grid,
    lhs: Region,
    rhs: Region,
    out: Region,
    /// What a vertex needs besides its operands.
    scratch: Option<(VarId, Region)>,
    /// Whether the vertex takes the right operand first.
    swapped: bool,
    /// Axes of the grid that split the summed dimensions.
    summed: Vec<usize>,
    partials: DType,
}

impl Emitter<'_> {
    pub(super) fn matmul(&mut self, node: &Node, plan: &MatmulPlan) {
        let shapes = [self.shape(node.operands[0]), self.shape(node.operands[1])];
        let pairs = |pairs: &[(usize, usize)]| pairs.iter().map(|&(a, b)| (a as u8, b as u8)).collect();
        let [lhs, rhs] = plan.operand_regions([&shapes[0], &shapes[1]]);
        let product = Product {
            kernel: Kernel::MatMul {
                batch: pairs(&plan.dims.batch),
                contract: pairs(&plan.dims.contract),
                order: plan.order.clone(),
                partials: plan.partials,
            },
            grid: plan.grid.clone(),
            lhs,
            rhs,
            out: plan.out_region([&shapes[0], &shapes[1]]),
            scratch: None,
            swapped: plan.swapped,
            summed: plan.inner_axes().collect(),
            partials: plan.partials,
        };
        self.contract(node, product, &plan.stages);
    }

    pub(super) fn conv(&mut self, node: &Node, plan: &ConvPlan) {
        let (input, weights) = (self.shape(node.operands[0]), self.shape(node.operands[1]));
        let output = self.shape(node.results[0]);
        let unfolds = plan.attrs.method == ConvMethod::Unfolded;
        let product = Product {
            kernel: Kernel::Conv(plan.attrs.clone()),
            grid: plan.grid(),
            lhs: plan.input_region(&input, &weights, &output),
            rhs: plan.weights_region(&weights),
            out: plan.out_region(&output),
            scratch: unfolds.then(|| self.windows(node, plan)),
            swapped: false,
            summed: vec![0, 1],
            partials: plan.attrs.partials,
        };
        self.contract(node, product, &plan.stages);
    }

    /// Each tile's own room for the windows that it writes out: a dimension for every axis of the grid.
    fn windows(&mut self, node: &Node, plan: &ConvPlan) -> (VarId, Region) {
        let shape: Shape = plan.parts.iter().copied().chain([plan.window_elements]).collect();
        let own = plan.parts.iter().enumerate().map(|(axis, &parts)| Span::Part(Part::even(axis, parts, 1)));
        let region: Region = own.chain([Span::full(plan.window_elements)]).collect();
        let name = format!("{}.windows", self.base_name(node.results[0]));
        let layout = Layout { grid: plan.grid(), region: region.clone() };
        (self.temp(&name, self.dtype(node.operands[0]), shape, &layout), region)
    }

    fn contract(&mut self, node: &Node, product: Product, stages: &[u64]) {
        let Product { kernel, grid, lhs: lhs_region, rhs: rhs_region, out: out_region, .. } = product;
        let at = |region: &Region| Layout { grid: grid.clone(), region: region.clone() };
        let lhs = self.fetch(node.operands[0], &at(&lhs_region));
        let rhs = self.fetch(node.operands[1], &at(&rhs_region));
        let label = self.label(node);
        let extent = |axis: usize| u64::from(grid.axes[axis].extent);
        let summed: Vec<usize> = product.summed.iter().copied().filter(|&axis| extent(axis) > 1).collect();
        // Partial sums keep the parts that they are of as dimensions in front.
        let own = summed.iter().map(|&axis| Span::Part(Part::even(axis, extent(axis), 1)));
        let region: Region = own.chain(out_region).collect();
        let out = if summed.is_empty() {
            self.result(node)
        } else {
            let parts = summed.iter().map(|&axis| extent(axis));
            let shape: Shape = parts.chain(self.shape(node.results[0]).iter().copied()).collect();
            let name = format!("{}.partials", self.base_name(node.results[0]));
            self.temp(&name, product.partials, shape, &at(&region))
        };
        let mut operands = vec![(lhs, lhs_region), (rhs, rhs_region), (out, region)];
        if product.swapped {
            operands.swap(0, 1);
        }
        operands.extend(product.scratch);
        self.compute(&label, kernel, &grid, operands);
        if !summed.is_empty() {
            let axes: Vec<usize> = (0..summed.len()).collect();
            self.combine(out, &axes, ReduceFn::Sum, stages, node);
        }
    }
}
