//! The search over ways to split a matrix product.
//!
//! A product has a batch, rows (the left operand's largest free dimension), columns (the right one's) and
//! an inner dimension; each may be split over an axis of a grid of tiles. Every tile receives its blocks of
//! the operands, multiplies on the matrix unit, and partial sums of a split inner dimension are gathered and
//! added in stages. Cost and temporary memory of a split are closed forms of the largest block, so the
//! search tries every split that changes the largest block, at a cost that follows the sizes of the
//! product, not the number of tiles.

use super::search::{Branch, Found, Least, Search, Splits};
use super::spread::Sharing;
use super::{Planner, matrix_rate, receive_cycles, stages_for, superstep_cycles, vertex_cycles};
use crate::layouts::part_counts;
use crate::plan::Method;
use pando_base::{DType, Shape};
use pando_graph::{Dot, Node, NodeId, ValueId};
use pando_machine::{Chip, Machine};
use pando_tile::{Grid, Kernel, Layout, OperandType, Part, Region, Span};
use smallvec::SmallVec;

/// Axes of a product's grid; columns vary fastest over tiles, so that neighbours on a bus want the same
/// block of the left operand.
pub const INNER: usize = 0;
pub const BATCH: usize = 1;
pub const ROWS: usize = 2;
pub const COLUMNS: usize = 3;

/// The dimensions of a dot by their role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DotDims {
    pub batch: Vec<(usize, usize)>,
    pub contract: Vec<(usize, usize)>,
    pub lhs_free: Vec<usize>,
    pub rhs_free: Vec<usize>,
}

/// A chosen split.
#[derive(Clone, Debug, PartialEq)]
pub struct MatmulPlan {
    pub dims: DotDims,
    /// Parts per axis, in the order of the axis constants.
    pub parts: [u64; 4],
    /// The dimension that each axis splits: positions in `batch` and `contract`, and dimensions of the
    /// operands; `None` where there is none.
    pub split: [Option<usize>; 4],
    /// Units in which the inner dimension and the columns are split.
    pub grains: [u64; 4],
    pub partials: DType,
    pub stages: Vec<u64>,
    /// The planner's estimate.
    pub cost: Cost,
}

/// What a split costs on the busiest tile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    pub lhs_exchange_cycles: u64,
    pub rhs_exchange_cycles: u64,
    pub compute_cycles: u64,
    pub reduce_exchange_cycles: u64,
    pub reduce_cycles: u64,
    /// Syncs and exchange set-up.
    pub overhead_cycles: u64,
    pub temporary_bytes: u64,
}

impl Cost {
    pub fn cycles(&self) -> u64 {
        self.lhs_exchange_cycles
            + self.rhs_exchange_cycles
            + self.compute_cycles
            + self.reduce_exchange_cycles
            + self.reduce_cycles
            + self.overhead_cycles
    }
}

impl DotDims {
    pub fn new(dot: &Dot, lhs_rank: usize, rhs_rank: usize) -> Self {
        let taken = |dim: usize, side: fn(&(usize, usize)) -> usize| {
            dot.batch.iter().chain(&dot.contract).any(|pair| side(pair) == dim)
        };
        DotDims {
            batch: dot.batch.clone(),
            contract: dot.contract.clone(),
            lhs_free: (0..lhs_rank).filter(|&dim| !taken(dim, |pair| pair.0)).collect(),
            rhs_free: (0..rhs_rank).filter(|&dim| !taken(dim, |pair| pair.1)).collect(),
        }
    }
}

/// A product to split, reduced to what the cost depends on.
pub(crate) struct Problem<'a> {
    pub machine: &'a Machine,
    pub dims: DotDims,
    pub lhs: Shape,
    pub rhs: Shape,
    pub input: DType,
    pub partials: DType,
    pub output: DType,
    /// Whether each operand can be stored where the product wants it, if that needs no copies.
    pub rhs_is_free: bool,
    pub memory_bytes: u64,
}

impl Problem<'_> {
    /// The dimension of each role that is worth splitting: the largest.
    fn split(&self) -> [Option<usize>; 4] {
        let largest = |sizes: Vec<(usize, u64)>| {
            sizes
                .into_iter()
                .filter(|&(_, size)| size > 1)
                .max_by_key(|&(index, size)| (size, usize::MAX - index))
                .map(|(i, _)| i)
        };
        let pairs = |pairs: &[(usize, usize)]| {
            pairs.iter().enumerate().map(|(index, &(dim, _))| (index, self.lhs[dim])).collect()
        };
        [
            largest(pairs(&self.dims.contract)),
            largest(pairs(&self.dims.batch)),
            largest(self.dims.lhs_free.iter().map(|&dim| (dim, self.lhs[dim])).collect()),
            largest(self.dims.rhs_free.iter().map(|&dim| (dim, self.rhs[dim])).collect()),
        ]
    }

    fn split_sizes(&self) -> [u64; 4] {
        let split = self.split();
        [
            split[INNER].map_or(1, |pair| self.lhs[self.dims.contract[pair].0]),
            split[BATCH].map_or(1, |pair| self.lhs[self.dims.batch[pair].0]),
            split[ROWS].map_or(1, |dim| self.lhs[dim]),
            split[COLUMNS].map_or(1, |dim| self.rhs[dim]),
        ]
    }

    /// The cheapest split within the memory bound. If none fits, the one with the least temporary memory,
    /// as PopLibs' planner does in the end (poplar.md section 3.4, objectives).
    pub fn solve(&self) -> MatmulPlan {
        let Found { parts, cost, .. } = Search::new(self).best();
        MatmulPlan {
            dims: self.dims.clone(),
            parts,
            split: self.split(),
            grains: self.grains(),
            partials: self.partials,
            stages: if parts[INNER] > 1 { stages_for(parts[INNER]) } else { Vec::new() },
            cost,
        }
    }

    fn whole_sizes(&self) -> [u64; 4] {
        let product = |dims: &mut dyn Iterator<Item = u64>| dims.product::<u64>();
        [
            product(&mut self.dims.contract.iter().map(|&(dim, _)| self.lhs[dim])),
            product(&mut self.dims.batch.iter().map(|&(dim, _)| self.lhs[dim])),
            product(&mut self.dims.lhs_free.iter().map(|&dim| self.lhs[dim])),
            product(&mut self.dims.rhs_free.iter().map(|&dim| self.rhs[dim])),
        ]
    }

    /// What the busiest tile receives before it multiplies.
    fn arrival(&self, parts: &[u64; 4], [inner, batch, rows, columns]: [u64; 4]) -> Arrival {
        let element_bytes = self.input.size_bytes();
        let lhs_bytes = batch * rows * inner * element_bytes;
        let rhs_stays = self.rhs_is_free && parts[ROWS] == 1;
        let rhs_bytes = if rhs_stays { 0 } else { batch * inner * columns * element_bytes };
        Arrival {
            bytes: lhs_bytes + rhs_bytes,
            lhs_cycles: receive_cycles(self.machine, lhs_bytes, parts[COLUMNS].is_multiple_of(2)),
            rhs_cycles: receive_cycles(self.machine, rhs_bytes, false),
        }
    }

    /// The cost of a split whose busiest tile multiplies blocks of these sizes.
    fn split_cost(&self, parts: &[u64; 4], product: [u64; 4]) -> Cost {
        let [_, batch, rows, columns] = product;
        let partial_bytes = self.partials.size_bytes();
        let out_elements = batch * rows * columns;
        let chip = &self.machine.chip;
        let arrival = self.arrival(parts, product);
        let mut cost = Cost {
            lhs_exchange_cycles: arrival.lhs_cycles,
            rhs_exchange_cycles: arrival.rhs_cycles,
            compute_cycles: product_cycles(chip, product, self),
            overhead_cycles: superstep_cycles(self.machine),
            temporary_bytes: arrival.bytes + out_elements * partial_bytes,
            ..Cost::default()
        };
        let mut left = parts[INNER];
        if left > 1 {
            let whole = out_elements * parts[BATCH] * parts[ROWS] * parts[COLUMNS];
            for groups in stages_for(left) {
                let (depth, share) =
                    (left.div_ceil(groups), (whole * groups).div_ceil(chip.tiles.into()).max(1));
                let bytes = depth * share * partial_bytes;
                cost.reduce_exchange_cycles += receive_cycles(self.machine, bytes, false);
                cost.reduce_cycles += reduce_cycles(chip, depth, share, self.partials);
                cost.overhead_cycles += superstep_cycles(self.machine);
                cost.temporary_bytes = cost.temporary_bytes.max(out_elements * partial_bytes + bytes);
                left = groups;
            }
        }
        cost
    }
}

impl Splits<4> for Problem<'_> {
    /// Whether the rows are split decides whether the right side must move, the inner parts how many partial sums
    /// there are to add.
    const ORDER: [usize; 4] = [ROWS, INNER, COLUMNS, BATCH];
    const PREFERRED: [usize; 4] = [COLUMNS, ROWS, INNER, BATCH];

    fn tiles(&self) -> u64 {
        self.machine.chip.tiles.into()
    }

    fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    /// Inner, batch, rows, columns.
    fn whole(&self) -> [u64; 4] {
        self.whole_sizes()
    }

    fn sizes(&self) -> [u64; 4] {
        self.split_sizes()
    }

    /// Units of the inner dimension and the columns that the matrix unit takes at once; rows and batch
    /// are free.
    fn grains(&self) -> [u64; 4] {
        let rate = matrix_rate(&self.machine.chip, self.input);
        let grains =
            [rate.map_or(1, |rate| rate.weights_per_unit), 1, 1, rate.map_or(1, |rate| rate.conv_units)];
        let sizes = self.split_sizes();
        let mut grains: [u64; 4] = std::array::from_fn(|axis| grains[axis].min(sizes[axis]));
        // Other columns on the same tiles fill the unit, too.
        let others = self.whole_sizes()[COLUMNS] / sizes[COLUMNS];
        if others > 1 {
            grains[COLUMNS] = 1 << (grains[COLUMNS] / others).max(1).ilog2();
        }
        grains
    }

    fn counts(&self, axis: usize) -> Vec<u64> {
        part_counts(self.sizes()[axis].div_ceil(self.grains()[axis]), self.tiles())
    }

    fn cost(&self, parts: &[u64; 4], block: [u64; 4]) -> Option<Cost> {
        Some(self.split_cost(parts, block))
    }

    /// Operands arrive and are multiplied at full rate, blocks are as small as the tiles allow, partial sums arrive
    /// but cost nothing to add.
    fn least(&self, branch: &Branch<4>) -> Least {
        let machine = self.machine;
        let (element_bytes, partial_bytes) = (self.input.size_bytes(), self.partials.size_bytes());
        let rate =
            matrix_rate(&machine.chip, self.input).map_or(1, |rate| rate.macs_per_cycle() as u64).max(1);
        // Whatever is undecided spares what it can: a bus of two, a right side that stays.
        let paired = branch.is_open(COLUMNS) || branch.parts[COLUMNS].is_multiple_of(2);
        let rhs_stays = self.rhs_is_free && (branch.is_open(ROWS) || branch.parts[ROWS] == 1);
        let bytes = |axes: &[usize], each: u64| branch.volume(axes).saturating_mul(each);
        let lhs_bytes = bytes(&[INNER, BATCH, ROWS], element_bytes);
        let rhs_bytes = if rhs_stays { 0 } else { bytes(&[INNER, BATCH, COLUMNS], element_bytes) };
        let out_bytes = bytes(&[BATCH, ROWS, COLUMNS], partial_bytes);
        let mut cycles = receive_cycles(machine, lhs_bytes, paired)
            + receive_cycles(machine, rhs_bytes, false)
            + branch.volume(&[INNER, BATCH, ROWS, COLUMNS]) / rate
            + superstep_cycles(machine);
        if branch.parts[INNER] > 1 {
            let [_, batch, rows, columns] = self.whole_sizes();
            let results = batch.saturating_mul(rows).saturating_mul(columns);
            let share_bytes = (results / self.tiles() * partial_bytes).saturating_mul(branch.parts[INNER]);
            cycles += superstep_cycles(machine) + receive_cycles(machine, share_bytes, false);
        }
        let bytes = lhs_bytes.saturating_add(rhs_bytes).saturating_add(out_bytes);
        (bytes.saturating_sub(self.memory_bytes), cycles)
    }
}

struct Arrival {
    bytes: u64,
    lhs_cycles: u64,
    rhs_cycles: u64,
}

fn product_cycles(chip: &Chip, [inner, batch, rows, columns]: [u64; 4], problem: &Problem) -> u64 {
    let kernel = Kernel::MatMul {
        batch: SmallVec::from_slice(&[(0, 0)]),
        contract: SmallVec::from_slice(&[(2, 1)]),
        partials: problem.partials,
    };
    let (lhs, rhs, out) = ([batch, rows, inner], [batch, inner, columns], [batch, rows, columns]);
    let operands = [
        OperandType { dtype: problem.input, lens: &lhs },
        OperandType { dtype: problem.input, lens: &rhs },
        OperandType { dtype: problem.output, lens: &out },
    ];
    vertex_cycles(kernel.cycles(&operands, chip), chip.workers)
}

pub(crate) fn reduce_cycles(chip: &Chip, depth: u64, share: u64, dtype: DType) -> u64 {
    let kernel = Kernel::Reduce { func: pando_base::ReduceFn::Sum, axes: SmallVec::from_slice(&[0]) };
    let (input, output) = ([depth, share], [share]);
    let operands = [OperandType { dtype, lens: &input }, OperandType { dtype, lens: &output }];
    vertex_cycles(kernel.cycles(&operands, chip), chip.workers)
}

impl MatmulPlan {
    pub fn grid(&self) -> Grid {
        let extents: SmallVec<[u32; 4]> = self.parts.iter().map(|&parts| parts as u32).collect();
        Grid::packed(0, &extents)
    }

    fn span(&self, axis: usize, size: u64) -> Span {
        Span::Part(Part::even(axis, size, self.grains[axis]))
    }

    /// The left operand's region over the product's grid.
    pub fn lhs_region(&self, shape: &[u64]) -> Region {
        self.region(shape, |dims, dim| {
            let pair = |pairs: &[(usize, usize)]| pairs.iter().position(|&(lhs, _)| lhs == dim);
            (pair(&dims.batch), pair(&dims.contract), ROWS)
        })
    }

    pub fn rhs_region(&self, shape: &[u64]) -> Region {
        self.region(shape, |dims, dim| {
            let pair = |pairs: &[(usize, usize)]| pairs.iter().position(|&(_, rhs)| rhs == dim);
            (pair(&dims.batch), pair(&dims.contract), COLUMNS)
        })
    }

    /// Spans of an operand; `role` gives a dimension's position among the batch and contracted pairs, and
    /// the axis that may split it otherwise.
    fn region(
        &self,
        shape: &[u64],
        role: impl Fn(&DotDims, usize) -> (Option<usize>, Option<usize>, usize),
    ) -> Region {
        let span = |(dim, &size): (usize, &u64)| {
            let (batch, contract, free_axis) = role(&self.dims, dim);
            let (axis, index) = match (batch, contract) {
                (Some(pair), _) => (BATCH, pair),
                (_, Some(pair)) => (INNER, pair),
                _ => (free_axis, dim),
            };
            if self.split[axis] == Some(index) { self.span(axis, size) } else { Span::full(size) }
        };
        shape.iter().enumerate().map(span).collect()
    }

    /// The result's region: batch, left free, right free dimensions.
    pub fn out_region(&self, lhs: &[u64], rhs: &[u64]) -> Region {
        let (lhs_region, rhs_region) = (self.lhs_region(lhs), self.rhs_region(rhs));
        let batch = self.dims.batch.iter().map(|&(dim, _)| lhs_region[dim]);
        let rows = self.dims.lhs_free.iter().map(|&dim| lhs_region[dim]);
        let columns = self.dims.rhs_free.iter().map(|&dim| rhs_region[dim]);
        batch.chain(rows).chain(columns).collect()
    }
}

impl Planner<'_> {
    pub(super) fn matmul(&mut self, dot: &Dot, id: NodeId, node: &Node) -> Method {
        let (lhs, rhs, out) = (node.operands[0], node.operands[1], node.results[0]);
        let method = match self.preplanned.remove(&id) {
            Some(method) => method,
            None => Method::Matmul(self.matmul_plan(dot, node)),
        };
        let Method::Matmul(plan) = &method else { unreachable!("a dot is planned as a product") };
        self.want(rhs, &self.operand_layout(&method, node, 1));
        self.want(lhs, &self.operand_layout(&method, node, 0));
        let region = plan.out_region(&self.shape(lhs), &self.shape(rhs));
        self.set_product(out, Layout { grid: plan.grid(), region }, plan.stages.is_empty());
        method
    }

    /// Where a product's sums lie, or, if several tiles have parts of them, what they add up to.
    pub(super) fn set_product(&mut self, out: ValueId, own: Layout, complete: bool) {
        // In whole units, so that sums are added in whole vectors.
        let sharing = Sharing { ratio: (5, 4), fine: false, evenly: false };
        let home = if complete {
            own
        } else {
            self.wish(out).unwrap_or_else(|| self.shared_out_by(&own, out, sharing))
        };
        self.set_value(out, home);
    }

    pub(super) fn matmul_plan(&mut self, dot: &Dot, node: &Node) -> MatmulPlan {
        let (lhs, rhs, out) = (node.operands[0], node.operands[1], node.results[0]);
        let problem = Problem {
            machine: self.machine,
            dims: DotDims::new(dot, self.shape(lhs).rank(), self.shape(rhs).rank()),
            lhs: self.shape(lhs),
            rhs: self.shape(rhs),
            input: self.dtype(lhs),
            partials: self.partials(self.dtype(lhs), self.dtype(out)),
            output: self.dtype(out),
            rhs_is_free: self.is_free(rhs),
            memory_bytes: self.room(node),
        };
        let key = format!(
            "{:?} {} {} {} {} {} {} {}",
            problem.dims,
            problem.lhs,
            problem.rhs,
            problem.input,
            problem.partials,
            problem.output,
            problem.rhs_is_free,
            problem.memory_bytes
        );
        match self.found.matmuls.get(&key) {
            Some(plan) => plan.clone(),
            None => self.found.matmuls.entry(key).or_insert(problem.solve()).clone(),
        }
    }

    /// What a product needs of an operand on each tile.
    pub(super) fn operand_layout(&self, method: &Method, node: &Node, operand: usize) -> Layout {
        let shapes: Vec<Shape> =
            node.operands.iter().chain(&node.results).map(|&value| self.shape(value)).collect();
        match method {
            Method::Matmul(plan) if operand == 0 => {
                Layout { grid: plan.grid(), region: plan.lhs_region(&shapes[0]) }
            }
            Method::Matmul(plan) => Layout { grid: plan.grid(), region: plan.rhs_region(&shapes[1]) },
            Method::Conv(plan) if operand == 0 => {
                let region = plan.input_region(&shapes[0], &shapes[1], &shapes[2]);
                Layout { grid: plan.grid(), region }
            }
            Method::Conv(plan) => Layout { grid: plan.grid(), region: plan.weights_region(&shapes[1]) },
            _ => unreachable!("only products are asked"),
        }
    }

    /// Sums of floats are f32, unless the user allows halves and the result is one. Integers wrap in the
    /// result's type.
    pub(super) fn partials(&self, input: DType, output: DType) -> DType {
        if !input.is_float() {
            return output;
        }
        let narrow = matches!(input, DType::F16 | DType::F8(..));
        let half = self.options.half_partials && narrow && output == DType::F16;
        if half { DType::F16 } else { DType::F32 }
    }

    /// Bytes that an operation may take for what it alone needs.
    pub(super) fn temporary_bytes(&self) -> u64 {
        let proportion = self.options.available_memory_proportion.clamp(0.0, 1.0);
        (self.machine.chip.sram.bytes_per_tile as f64 * proportion) as u64
    }
}
