//! How rows are scattered: the result may be split along its other dimensions (each tile does its part of
//! every update), along its rows (each tile sees every update and does those of its rows), and, if they are
//! combined, the updates over tiles (partial results, which are then combined).

use super::reduce_cycles;
use super::{Method, Planner, receive_cycles, stages_for, superstep_cycles, vertex_cycles};
use crate::layouts::{normalize, part_counts};
use crate::plan::gather::largest;
use pando_base::{DType, ReduceFn};
use pando_graph::Node;
use pando_tile::kernel::ScatterAttrs;
use pando_tile::{Grid, Kernel, Layout, OperandType, Part, Region, Span};

/// Axes of a scatter's grid.
pub const UPDATES: usize = 0;
pub const ROWS: usize = 1;
pub const WIDTH: usize = 2;

#[derive(Clone, Debug, PartialEq)]
pub struct ScatterPlan {
    pub axis: usize,
    pub combine: Option<ReduceFn>,
    /// Parts per axis, in the order of the axis constants.
    pub parts: [u64; 3],
    /// The dimension of the data that is split for width, if any.
    pub width_dim: Option<usize>,
    pub width_grain: u64,
    pub stages: Vec<u64>,
    pub cycles: u64,
    pub temporary_bytes: u64,
}

impl ScatterPlan {
    pub fn grid(&self) -> Grid {
        Grid::packed(0, &self.parts.map(|parts| parts as u32))
    }

    pub fn data_region(&self, data: &[u64]) -> Region {
        self.region(data, ROWS)
    }

    pub fn updates_region(&self, updates: &[u64]) -> Region {
        self.region(updates, UPDATES)
    }

    pub fn indices_region(&self, indices: &[u64]) -> Region {
        indices.iter().map(|&size| Span::Part(Part::even(UPDATES, size, 1))).collect()
    }

    fn region(&self, shape: &[u64], along: usize) -> Region {
        let span = |(dim, &size): (usize, &u64)| match dim {
            _ if dim == self.axis => Span::Part(Part::even(along, size, 1)),
            _ if Some(dim) == self.width_dim => Span::Part(Part::even(WIDTH, size, self.width_grain)),
            _ => Span::full(size),
        };
        shape.iter().enumerate().map(span).collect()
    }

    pub fn kernel(&self, rows: u64) -> Kernel {
        let onto = self.parts[UPDATES] == 1;
        Kernel::Scatter(ScatterAttrs { combine: self.combine, axis: self.axis as u8, size: rows, onto })
    }
}

impl Planner<'_> {
    pub(super) fn scatter(&mut self, axis: usize, combine: Option<ReduceFn>, node: &Node) -> Method {
        if combine.is_none()
            && let Some(method) = self.replaced_row(axis, node)
        {
            return method;
        }
        let [data, indices, updates] = [0, 1, 2].map(|operand| node.operands[operand]);
        let out = node.results[0];
        let plan = self.search_scatter(axis, combine, node);
        let layout = |region: Region| Layout { grid: plan.grid(), region };
        let data_layout = layout(plan.data_region(&self.shape(data)));
        let indices_layout = layout(plan.indices_region(&self.shape(indices)));
        let updates_layout = layout(plan.updates_region(&self.shape(updates)));
        let home = if plan.parts[UPDATES] == 1 {
            normalize(&data_layout, &self.shape(out))
        } else {
            self.balanced(&self.shape(out), self.dtype(out))
        };
        self.want(data, &home);
        self.want(indices, &indices_layout);
        self.want(updates, &updates_layout);
        self.set(node, home);
        Method::Scatter(plan)
    }

    fn search_scatter(&self, axis: usize, combine: Option<ReduceFn>, node: &Node) -> ScatterPlan {
        let tiles = u64::from(self.tiles());
        let (data, count) = (self.shape(node.operands[0]), self.shape(node.operands[1])[0]);
        let width_dim = largest(&data, Some(axis));
        let last = width_dim == Some(data.rank() - 1);
        let width_grain = if last { (8 / self.dtype(node.results[0]).size_bytes()).max(1) } else { 1 };
        let width = width_dim.map_or(1, |dim| data[dim].div_ceil(width_grain));
        let room = self.room(node);
        let mut best: Option<((u64, u64), ScatterPlan)> = None;
        for width in part_counts(width, tiles) {
            for rows in part_counts(data[axis], tiles / width) {
                let most = if combine.is_some() { tiles / width / rows } else { 1 };
                for updates in part_counts(count, most) {
                    let stages = if updates > 1 { stages_for(updates) } else { Vec::new() };
                    let parts = [updates, rows, width];
                    let (cycles, temporary_bytes) = (0, 0);
                    let mut plan = ScatterPlan {
                        axis,
                        combine,
                        parts,
                        width_dim,
                        width_grain,
                        stages,
                        cycles,
                        temporary_bytes,
                    };
                    (plan.cycles, plan.temporary_bytes) = self.scatter_cost(&plan, node);
                    let key = (plan.temporary_bytes.saturating_sub(room), plan.cycles);
                    if best.as_ref().is_none_or(|(best_key, _)| key < *best_key) {
                        best = Some((key, plan));
                    }
                }
            }
        }
        best.expect("one part each is always a candidate").1
    }

    /// Cycles and bytes on the busiest tile.
    fn scatter_cost(&self, plan: &ScatterPlan, node: &Node) -> (u64, u64) {
        let [data, indices, updates] = [0, 1, 2].map(|operand| self.shape(node.operands[operand]));
        let chip = &self.machine.chip;
        // Coordinate 0 holds the largest share of every axis.
        let lens = |region: &Region, shape: &[u64]| plan.grid().block(region, shape, &[0, 0, 0]).lens();
        let data_lens = lens(&plan.data_region(&data), &data);
        let index_lens = lens(&plan.indices_region(&indices), &indices);
        let update_lens = lens(&plan.updates_region(&updates), &updates);
        let dtype = self.dtype(node.results[0]);
        let block = OperandType { dtype, lens: &data_lens };
        let moved = [
            OperandType { dtype: self.dtype(node.operands[1]), lens: &index_lens },
            OperandType { dtype, lens: &update_lens },
        ];
        let operands = [block, moved[0], moved[1], block];
        let whole = plan.parts[UPDATES] == 1;
        let operands = if whole { &operands[..] } else { &operands[1..] };
        let kernel = plan.kernel(data[plan.axis]);
        let mut cycles =
            vertex_cycles(kernel.cycles(operands, chip), chip.workers) + superstep_cycles(self.machine);
        cycles += moved.iter().map(|o| receive_cycles(self.machine, o.num_bytes(), false)).sum::<u64>();
        let mut bytes: u64 = operands.iter().map(OperandType::num_bytes).sum();
        let mut left = plan.parts[UPDATES];
        let total = super::total_dtype(plan.combine.unwrap_or(ReduceFn::Max), dtype);
        for &groups in &plan.stages {
            let elements = block.num_elements() * plan.parts[ROWS] * plan.parts[WIDTH];
            let (depth, share) =
                (left.div_ceil(groups), (elements * groups).div_ceil(chip.tiles.into()).max(1));
            let gathered = depth * share * total.size_bytes();
            bytes = bytes.max(block.num_elements() * total.size_bytes() + gathered);
            cycles += receive_cycles(self.machine, gathered, false);
            cycles += reduce_cycles(chip, depth, share, DType::F32) + superstep_cycles(self.machine);
            left = groups;
        }
        (cycles, bytes)
    }
}
