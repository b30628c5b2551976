//! How a product with a sparse matrix is split: rows and columns of the matrix into bands, so that each tile keeps the
//! blocks of one row band and one column band, and the batch, so that several tiles keep the same blocks. What bands of
//! columns give is added. The planner knows the number of blocks only; bands are filled with the pattern, if it is
//! known, before planning.

use super::reduce_cycles;
use super::{Method, Planner, receive_cycles, stages_for, superstep_cycles, vertex_cycles};
use crate::Options;
use crate::layouts::{normalize, part_counts};
use pando_base::DType;
use pando_graph::Node;
use pando_machine::Machine;
use pando_tile::{Grid, Kernel, Layout, OperandType, Part, Region, Span};

/// Axes of a sparse product's grid.
pub const COLUMNS: usize = 0;
const BATCH: usize = 1;
const ROWS: usize = 2;

#[derive(Clone, Debug, PartialEq)]
pub struct SparsePlan {
    /// Bands of columns, parts of the batch, bands of rows.
    pub parts: [u64; 3],
    /// Side of a block.
    pub side: u64,
    pub partials: DType,
    pub stages: Vec<u64>,
    pub cycles: u64,
}

/// What the cost of a split depends on.
pub(crate) struct Sizes {
    pub batch: u64,
    pub rows: u64,
    pub columns: u64,
    pub side: u64,
    pub blocks: u64,
    pub dtype: DType,
    pub partials: DType,
    /// How much room a bucket has over the mean, as a share of it; nothing if it takes the fullest band.
    pub room: Option<f64>,
}

impl Sizes {
    /// The cheapest bands of columns, parts of the batch and bands of rows, and their cycles. A bucket that is to take
    /// the fullest band has more slots than the mean.
    pub fn best(&self, machine: &Machine, options: &Options) -> ([u64; 3], u64) {
        let tiles = u64::from(machine.chip.tiles);
        let memory = machine.chip.sram.bytes_per_tile as f64 * options.available_memory_proportion;
        let mut best: Option<((bool, u64), [u64; 3])> = None;
        for columns in part_counts(self.columns / self.side, tiles) {
            for rows in part_counts(self.rows / self.side, tiles / columns) {
                for batch in part_counts(self.batch, tiles / columns / rows) {
                    let parts = [columns, batch, rows];
                    let (cycles, bytes) = self.cost(parts, self.slots(columns * rows), machine);
                    let key = (bytes as f64 > memory, cycles);
                    if best.as_ref().is_none_or(|(least, _)| key < *least) {
                        best = Some((key, parts));
                    }
                }
            }
        }
        let ((_, cycles), parts) = best.expect("one part each is always a candidate");
        (parts, cycles)
    }

    /// The fullest of so many buckets, if blocks are spread at random. Assumption: three standard deviations above the
    /// mean.
    pub fn slots(&self, buckets: u64) -> u64 {
        let mean = self.blocks as f64 / buckets as f64;
        let spread = match self.room {
            _ if buckets == 1 => 0.0,
            Some(share) => share * mean,
            None => 3.0 * mean.sqrt(),
        };
        ((mean + spread).ceil() as u64).clamp(1, self.blocks.max(1))
    }

    /// Cycles, and bytes of the busiest tile.
    fn cost(&self, [columns, batch, rows]: [u64; 3], slots: u64, machine: &Machine) -> (u64, u64) {
        let chip = &machine.chip;
        let share = |size: u64, parts: u64| (size / self.side).div_ceil(parts) * self.side;
        let (n, k, m) = (self.batch.div_ceil(batch), share(self.columns, columns), share(self.rows, rows));
        let lens: [&[u64]; 5] = [&[n, k], &[slots, self.side, self.side], &[slots], &[slots], &[n, m]];
        let types = [self.dtype, self.dtype, DType::I32, DType::I32, self.partials];
        let operands: Vec<OperandType> =
            types.into_iter().zip(lens).map(|(dtype, lens)| OperandType { dtype, lens }).collect();
        let mut cycles = vertex_cycles(Kernel::SparseMatMul.cycles(&operands, chip), chip.workers)
            + receive_cycles(machine, operands[0].num_bytes(), rows.is_multiple_of(2))
            + superstep_cycles(machine);
        let mut left = columns;
        if left > 1 {
            for groups in stages_for(left) {
                let elements = (n * m * batch * rows * groups).div_ceil(chip.tiles.into()).max(1);
                let depth = left.div_ceil(groups);
                cycles += receive_cycles(machine, depth * elements * self.partials.size_bytes(), false)
                    + reduce_cycles(chip, depth, elements, self.partials)
                    + superstep_cycles(machine);
                left = groups;
            }
        }
        (cycles, operands.iter().map(OperandType::num_bytes).sum())
    }
}

impl SparsePlan {
    pub fn grid(&self) -> Grid {
        Grid::packed(0, &self.parts.map(|parts| parts as u32))
    }

    pub fn x_region(&self, shape: &[u64]) -> Region {
        let batch = Span::Part(Part::even(BATCH, shape[0], 1));
        [batch, Span::Part(Part::even(COLUMNS, shape[1], self.side))].into_iter().collect()
    }

    /// Of values and indices: their bucket.
    pub fn bucket_region(&self, shape: &[u64]) -> Region {
        let bands = [ROWS, COLUMNS].map(|axis| Span::Part(Part::even(axis, self.parts[axis], 1)));
        bands.into_iter().chain(shape[2..].iter().map(|&size| Span::full(size))).collect()
    }

    pub fn out_region(&self, shape: &[u64]) -> Region {
        let batch = Span::Part(Part::even(BATCH, shape[0], 1));
        [batch, Span::Part(Part::even(ROWS, shape[1], self.side))].into_iter().collect()
    }
}

impl Planner<'_> {
    /// Buckets say how rows and columns are split; the batch takes the tiles that are left.
    pub(super) fn sparse_matmul(&mut self, node: &Node) -> Method {
        let [x, values, rows, columns] = [0, 1, 2, 3].map(|at| node.operands[at]);
        let (out, shapes) = (node.results[0], [x, values].map(|value| self.shape(value)));
        let [x_shape, buckets] = &shapes;
        let (bands, side) = ([buckets[0], buckets[1]], buckets[3]);
        let partials = self.partials(self.dtype(x), self.dtype(out));
        let tiles = u64::from(self.tiles());
        let room = (tiles / (bands[0] * bands[1])).max(1);
        let batch = part_counts(x_shape[0], room).pop().unwrap_or(1);
        let sizes = Sizes {
            batch: x_shape[0],
            rows: self.shape(out)[1],
            columns: x_shape[1],
            side,
            blocks: buckets[0] * buckets[1] * buckets[2],
            dtype: self.dtype(x),
            partials,
            room: None,
        };
        let parts = [bands[1], batch, bands[0]];
        let (cycles, _) = sizes.cost(parts, buckets[2], self.machine);
        let stages = if bands[1] > 1 { stages_for(bands[1]) } else { Vec::new() };
        let plan = SparsePlan { parts, side, partials, stages, cycles };
        let layout = |region: Region| Layout { grid: plan.grid(), region };
        for value in [values, rows, columns] {
            self.want(value, &layout(plan.bucket_region(&self.shape(value))));
        }
        self.want(x, &layout(plan.x_region(x_shape)));
        let product = layout(plan.out_region(&self.shape(out)));
        let home = if bands[1] == 1 { product } else { self.shared_out(&product, out) };
        self.plan.layouts[out] = Some(normalize(&home, &self.shape(out)));
        Method::Sparse(plan)
    }
}
