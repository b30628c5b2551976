//! How rows are looked up: the table may be split along its other dimensions (each tile looks up its part of
//! every row), along the looked-up one (each tile answers for its rows, the answers are added), and the
//! indices over tiles (each tile looks up its share, with a copy of the table's part).

use super::reduce_cycles;
use super::{Method, Planner, receive_cycles, stages_for, superstep_cycles, vertex_cycles};
use crate::layouts::{normalize, part_counts};
use pando_base::{DType, Shape};
use pando_graph::Node;
use pando_machine::Chip;
use pando_tile::{Grid, Kernel, Layout, OperandType, Part, Region, Span};

/// Axes of a lookup's grid.
pub const ROWS: usize = 0;
pub const INDICES: usize = 1;
pub const WIDTH: usize = 2;

#[derive(Clone, Debug, PartialEq)]
pub struct GatherPlan {
    pub axis: usize,
    /// Parts per axis, in the order of the axis constants.
    pub parts: [u64; 3],
    /// The dimension of the data that is split for width, if any.
    pub width_dim: Option<usize>,
    pub width_grain: u64,
    /// The dimension of the indices that is split, if any.
    pub index_dim: Option<usize>,
    pub stages: Vec<u64>,
    pub cycles: u64,
}

/// A dimension of a list of sizes with the largest size, but not `except`.
pub(super) fn largest(shape: &[u64], except: Option<usize>) -> Option<usize> {
    (0..shape.len())
        .filter(|&dim| Some(dim) != except && shape[dim] > 1)
        .max_by_key(|&dim| (shape[dim], shape.len() - dim))
}

impl GatherPlan {
    pub fn grid(&self) -> Grid {
        Grid::packed(0, &[self.parts[ROWS] as u32, self.parts[INDICES] as u32, self.parts[WIDTH] as u32])
    }

    fn width_span(&self, size: u64) -> Span {
        Span::Part(Part::even(WIDTH, size, self.width_grain))
    }

    pub fn data_region(&self, data: &[u64]) -> Region {
        data.iter()
            .enumerate()
            .map(|(dim, &size)| match dim {
                _ if dim == self.axis => Span::Part(Part::even(ROWS, size, 1)),
                _ if Some(dim) == self.width_dim => self.width_span(size),
                _ => Span::full(size),
            })
            .collect()
    }

    pub fn indices_region(&self, indices: &[u64]) -> Region {
        let span = |(dim, &size): (usize, &u64)| {
            if Some(dim) == self.index_dim {
                Span::Part(Part::even(INDICES, size, 1))
            } else {
                Span::full(size)
            }
        };
        indices.iter().enumerate().map(span).collect()
    }

    pub fn out_region(&self, data: &[u64], indices: &[u64]) -> Region {
        let (data_region, indices_region) = (self.data_region(data), self.indices_region(indices));
        let before = data_region[..self.axis].iter();
        before.chain(&indices_region).chain(&data_region[self.axis + 1..]).copied().collect()
    }
}

/// Bytes of a table where it is used beyond an eighth more than an even share: a table for which a few tiles have no
/// room for anything else is worth a few cycles. Small ones may lie as they like.
fn uneven_bytes(block: OperandType, table: &Shape, chip: &Chip) -> u64 {
    const SMALL_BYTES: u64 = 8 << 10;
    let even = table.num_elements() * block.dtype.size_bytes() / u64::from(chip.tiles);
    block.num_bytes().saturating_sub(even * 9 / 8 + SMALL_BYTES)
}

impl Planner<'_> {
    pub(super) fn gather(&mut self, axis: usize, node: &Node) -> Method {
        if let Some(method) = self.row(axis, node) {
            return method;
        }
        let (data, indices, out) = (node.operands[0], node.operands[1], node.results[0]);
        let (data_shape, index_shape) = (self.shape(data), self.shape(indices));
        let plan = self.search_gather(
            axis,
            &data_shape,
            &index_shape,
            self.dtype(data),
            self.dtype(indices),
            self.is_free(data),
        );
        let layout = |region: Region| Layout { grid: plan.grid(), region };
        self.want(data, &layout(plan.data_region(&data_shape)));
        self.want(indices, &layout(plan.indices_region(&index_shape)));
        let own = layout(plan.out_region(&data_shape, &index_shape));
        let home = if plan.parts[ROWS] == 1 { own } else { self.shared_out(&own, out) };
        self.plan.layouts[out] = Some(normalize(&home, &self.shape(out)));
        Method::Gather(plan)
    }

    fn search_gather(
        &self,
        axis: usize,
        data: &Shape,
        indices: &Shape,
        dtype: DType,
        index_dtype: DType,
        free: bool,
    ) -> GatherPlan {
        let tiles = u64::from(self.tiles());
        let (width_dim, index_dim) = (largest(data, Some(axis)), largest(indices, None));
        let grain = if width_dim == Some(data.rank() - 1) { (8 / dtype.size_bytes()).max(1) } else { 1 };
        let size = |shape: &[u64], dim: Option<usize>| dim.map_or(1, |dim| shape[dim]);
        let width_units = size(data, width_dim).div_ceil(grain);
        let mut best: Option<((u64, u64), GatherPlan)> = None;
        for width in part_counts(width_units, tiles) {
            for index in part_counts(size(indices, index_dim), tiles / width) {
                for rows in part_counts(data[axis], tiles / width / index) {
                    let mut plan = GatherPlan {
                        axis,
                        parts: [rows, index, width],
                        width_dim,
                        width_grain: grain,
                        index_dim,
                        stages: if rows > 1 { stages_for(rows) } else { Vec::new() },
                        cycles: 0,
                    };
                    let (cycles, over) = self.gather_cost(&plan, data, indices, dtype, index_dtype, free);
                    plan.cycles = cycles;
                    let key = (over, cycles);
                    if best.as_ref().is_none_or(|(best_key, _)| key < *best_key) {
                        best = Some((key, plan));
                    }
                }
            }
        }
        best.expect("one part each is always a candidate").1
    }

    /// Cycles on the busiest tile, and bytes there that are too many.
    fn gather_cost(
        &self,
        plan: &GatherPlan,
        data: &Shape,
        indices: &Shape,
        dtype: DType,
        index_dtype: DType,
        free: bool,
    ) -> (u64, u64) {
        let chip = &self.machine.chip;
        let grid = plan.grid();
        // Coordinate 0 holds the largest share of every axis.
        let lens = |region: &Region, shape: &[u64]| grid.block(region, shape, &[0, 0, 0]).lens();
        let data_lens = lens(&plan.data_region(data), data);
        let index_lens = lens(&plan.indices_region(indices), indices);
        let out_lens: Vec<u64> = data_lens[..plan.axis]
            .iter()
            .chain(&index_lens)
            .chain(&data_lens[plan.axis + 1..])
            .copied()
            .collect();
        let operands = [
            OperandType { dtype, lens: &data_lens },
            OperandType { dtype: index_dtype, lens: &index_lens },
            OperandType { dtype, lens: &out_lens },
        ];
        let kernel = Kernel::Gather { axis: plan.axis as u8, size: data[plan.axis] };
        let stays = free && plan.parts[INDICES] == 1;
        let mut cycles =
            vertex_cycles(kernel.cycles(&operands, chip), chip.workers) + superstep_cycles(self.machine);
        cycles += receive_cycles(self.machine, operands[1].num_bytes(), false);
        cycles += if stays { 0 } else { receive_cycles(self.machine, operands[0].num_bytes(), false) };
        let mut left = plan.parts[ROWS];
        for &groups in &plan.stages {
            let whole = operands[2].num_elements() * plan.parts[INDICES] * plan.parts[WIDTH];
            let (depth, share) = (left.div_ceil(groups), (whole * groups).div_ceil(chip.tiles.into()).max(1));
            cycles += receive_cycles(self.machine, depth * share * dtype.size_bytes(), false);
            cycles += reduce_cycles(chip, depth, share, dtype) + superstep_cycles(self.machine);
            left = groups;
        }
        let temporary: u64 = operands.iter().map(OperandType::num_bytes).sum();
        (
            cycles,
            temporary.saturating_sub(self.temporary_bytes())
                + if free { uneven_bytes(operands[0], data, chip) } else { 0 },
        )
    }
}
