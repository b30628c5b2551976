//! What a split of a matrix product costs, and the search for the cheapest. Cost and temporary memory are closed forms
//! of the largest block, so the search tries every split that changes the largest block, at a cost that follows the
//! sizes of the product, not the number of tiles.

use super::cost::{matrix_rate, receive_cycles, reduce_cycles, superstep_cycles, vertex_cycles};
use super::home::Home;
use super::matmul::{BATCH, COLUMNS, DimSplit, DimSplits, DotDims, INNER, MatmulPlan, ROWS};
use super::search::{Branch, Choice, Found, Least, Search, Splits};
use super::ways::{Dim, Way, in_grains, ways};
use super::{Cost, stages_for_axes};
use pando_base::{DType, Shape};
use pando_machine::Machine;
use pando_tile::{Axis, Grid, Kernel, OperandType};
use smallvec::SmallVec;

/// A product to split, reduced to what the cost depends on. `lhs` gives the rows, `rhs` the weights of the matrix unit.
pub(super) struct Problem<'a> {
    pub machine: &'a Machine,
    pub dims: DotDims,
    pub lhs: Shape,
    pub rhs: Shape,
    pub input: DType,
    pub partials: DType,
    pub output: DType,
    /// Whether the result's last dimension is one of `lhs`.
    pub transposes: bool,
    /// Whether the weights can be stored where the product wants them, if that needs no copies.
    pub rhs_is_free: bool,
    /// How many reductions follow over rows and over columns: of parts they take a gathering and its return each.
    pub reductions: [u64; 2],
    /// Where an operand lies.
    pub home: Option<Home>,
    pub memory_bytes: u64,
}

/// A problem with the ways to cut its axes.
struct Solver<'a> {
    problem: &'a Problem<'a>,
    ways: [Vec<Way>; 4],
    home: Option<&'a Home>,
}

/// What the busiest tile receives before it multiplies.
struct Arrival {
    bytes: u64,
    lhs_cycles: u64,
    rhs_cycles: u64,
}

impl Problem<'_> {
    /// What plans of equal problems are remembered by.
    pub fn key(&self) -> String {
        format!(
            "{:?} {} {} {} {} {} {} {} {:?} {:?} {}",
            self.dims,
            self.lhs,
            self.rhs,
            self.input,
            self.partials,
            self.output,
            self.transposes,
            self.rhs_is_free,
            self.reductions,
            self.home,
            self.memory_bytes
        )
    }

    /// The dimensions of an axis, cut in units of the inner dimension and the columns that the matrix unit takes at
    /// once; rows and batch are free.
    fn dims(&self, axis: usize) -> SmallVec<[Dim; 4]> {
        let rate = matrix_rate(&self.machine.chip, self.input);
        let pairs = |pairs: &[(usize, usize)]| {
            pairs.iter().enumerate().map(|(at, &(dim, _))| (at, self.lhs[dim])).collect()
        };
        let free = |dims: &[usize], shape: &Shape| dims.iter().map(|&dim| (dim, shape[dim])).collect();
        let (dims, grain): (Vec<(usize, u64)>, u64) = match axis {
            INNER => (pairs(&self.dims.contract), rate.map_or(1, |rate| rate.weights_per_unit)),
            BATCH => (pairs(&self.dims.batch), 1),
            ROWS => (free(&self.dims.lhs_free, &self.lhs), 1),
            _ => (free(&self.dims.rhs_free, &self.rhs), rate.map_or(1, |rate| rate.conv_units)),
        };
        in_grains(dims.into_iter(), grain)
    }

    /// The cheapest split within the memory bound. If none fits, the one with the least temporary memory,
    /// as PopLibs' planner does in the end (poplar.md section 3.4, objectives).
    pub fn solve(&self) -> MatmulPlan {
        let solver = Solver::new(self);
        let Found { parts, cost, over_bytes } = Search::new(&solver).best();
        let cuts = std::array::from_fn(|axis| self.cuts(axis, solver.way(axis, parts[axis])));
        let home = solver.home.filter(|home| home.stays(&parts));
        MatmulPlan {
            dims: self.dims.clone(),
            grid: self.grid(&cuts, home),
            stays: home.map(|home| home.side),
            cuts,
            swapped: false,
            order: SmallVec::new(),
            partials: self.partials,
            stages: if parts[INNER] > 1 { solver.stages(parts[INNER]) } else { Vec::new() },
            over_bytes,
            cost,
        }
    }

    /// An axis for each cut, and for each role; where an operand stays, its tiles.
    fn grid(&self, cuts: &[DimSplits; 4], home: Option<&Home>) -> Grid {
        let axes = cuts.iter().enumerate().flat_map(|(role, cuts)| {
            let dims = self.dims(role);
            let axis = move |cut: &DimSplit| {
                let at = dims.iter().position(|dim| dim.index == cut.dim).expect("a dimension of the role");
                home.map_or(Axis { extent: cut.parts as u32, stride: 0 }, |home| home.axis(role, at))
            };
            let axes: SmallVec<[Axis; 2]> = cuts.iter().map(axis).collect();
            if axes.is_empty() { SmallVec::from_slice(&[Axis { extent: 1, stride: 1 }]) } else { axes }
        });
        let axes: SmallVec<[Axis; 4]> = axes.collect();
        match home {
            Some(home) => Grid { base: home.base(), axes },
            None => Grid::packed(0, &axes.iter().map(|axis| axis.extent).collect::<SmallVec<[u32; 6]>>()),
        }
    }

    /// The dimensions that are in parts; the largest in one part if none is.
    fn cuts(&self, axis: usize, way: &Way) -> DimSplits {
        let dims = self.dims(axis);
        let all = dims.iter().zip(&way.parts);
        let all = all.map(|(dim, &parts)| DimSplit { dim: dim.index, parts, grain: dim.grain });
        let cut: DimSplits = all.clone().filter(|cut| cut.parts > 1).collect();
        let largest = || dims.iter().zip(all).rev().max_by_key(|(dim, _)| dim.size).map(|(_, cut)| cut);
        if cut.is_empty() { largest().into_iter().collect() } else { cut }
    }
}

impl<'a> Solver<'a> {
    fn new(problem: &'a Problem) -> Self {
        let tiles = u64::from(problem.machine.chip.tiles);
        let dims: [_; 4] = std::array::from_fn(|axis| problem.dims(axis));
        let mut all: [Vec<Way>; 4] = std::array::from_fn(|axis| ways(&dims[axis], tiles));
        let home = problem
            .home
            .as_ref()
            .filter(|home| (0..4).all(|axis| home.join(axis, &dims[axis], &mut all[axis])));
        Solver { problem, ways: all, home }
    }

    /// Whether an operand is where the split wants it.
    fn stays(&self, side: usize, parts: &[u64; 4]) -> bool {
        self.home.is_some_and(|home| home.side == side && home.stays(parts))
    }

    /// Whether a branch may lead to such a split.
    fn may_stay(&self, side: usize, branch: &Branch<4>) -> bool {
        let may_be =
            |home: &Home, axis: usize| branch.is_open(axis) || branch.parts[axis] == home.parts(axis);
        self.home.is_some_and(|home| home.side == side && (0..4).all(|axis| may_be(home, axis)))
    }

    fn way(&self, axis: usize, parts: u64) -> &Way {
        let ways = &self.ways[axis];
        &ways[ways.partition_point(|way| way.choice.parts < parts)]
    }

    fn stages(&self, inner: u64) -> Vec<u64> {
        stages_for_axes(&self.way(INNER, inner).parts)
    }

    fn arrival(&self, parts: &[u64; 4], [inner, batch, rows, columns]: [u64; 4]) -> Arrival {
        let problem = self.problem;
        let element_bytes = problem.input.size_bytes();
        let lhs_bytes = if self.stays(0, parts) { 0 } else { batch * rows * inner * element_bytes };
        let rhs_stays = (problem.rhs_is_free && parts[ROWS] == 1) || self.stays(1, parts);
        let rhs_bytes = if rhs_stays { 0 } else { batch * inner * columns * element_bytes };
        // Neighbours on a bus differ in columns, or in rows if there is one part of the columns.
        let columns_pair = parts[COLUMNS].is_multiple_of(2);
        let rows_pair = parts[COLUMNS] == 1 && parts[ROWS].is_multiple_of(2);
        Arrival {
            bytes: lhs_bytes + rhs_bytes,
            lhs_cycles: receive_cycles(problem.machine, lhs_bytes, columns_pair),
            rhs_cycles: receive_cycles(problem.machine, rhs_bytes, rows_pair),
        }
    }

    fn product_cycles(&self, [inner, batch, rows, columns]: [u64; 4]) -> u64 {
        let (problem, chip) = (self.problem, &self.problem.machine.chip);
        let order: &[u8] = if problem.transposes { &[0, 2, 1] } else { &[] };
        let kernel = Kernel::MatMul {
            batch: SmallVec::from_slice(&[(0, 0)]),
            contract: SmallVec::from_slice(&[(2, 1)]),
            order: SmallVec::from_slice(order),
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
}

impl Splits<4> for Solver<'_> {
    /// Whether the rows are split decides whether the right side must move, the inner parts how many partial sums
    /// there are to add.
    const ORDER: [usize; 4] = [ROWS, INNER, COLUMNS, BATCH];
    const PREFERRED: [usize; 4] = [COLUMNS, ROWS, INNER, BATCH];

    fn tiles(&self) -> u64 {
        self.problem.machine.chip.tiles.into()
    }

    fn memory_bytes(&self) -> u64 {
        self.problem.memory_bytes
    }

    /// Inner, batch, rows, columns.
    fn whole(&self) -> [u64; 4] {
        std::array::from_fn(|axis| self.ways[axis][0].choice.block)
    }

    fn choices(&self, axis: usize) -> Vec<Choice> {
        self.ways[axis].iter().map(|way| way.choice).collect()
    }

    fn cost(&self, parts: &[u64; 4], product: [u64; 4]) -> Option<Cost> {
        let (problem, machine, chip) = (self.problem, self.problem.machine, &self.problem.machine.chip);
        let [_, batch, rows, columns] = product;
        let partial_bytes = problem.partials.size_bytes();
        let out_elements = batch * rows * columns;
        let arrival = self.arrival(parts, product);
        let mut cost = Cost {
            lhs_exchange_cycles: arrival.lhs_cycles,
            rhs_exchange_cycles: arrival.rhs_cycles,
            compute_cycles: self.product_cycles(product),
            overhead_cycles: superstep_cycles(machine),
            temporary_bytes: arrival.bytes + out_elements * partial_bytes,
            ..Cost::default()
        };
        if parts[INNER] == 1 {
            let split =
                [ROWS, COLUMNS].into_iter().zip(problem.reductions).filter(|&(role, _)| parts[role] > 1);
            let steps: u64 = split.map(|(_, reductions)| 2 * reductions).sum();
            cost.overhead_cycles += steps * superstep_cycles(machine);
            return Some(cost);
        }
        let inner = &self.way(INNER, parts[INNER]).parts;
        let mut longest = inner.iter().copied().max().unwrap_or(1);
        let mut others = parts[INNER] / longest;
        let whole = out_elements * parts[BATCH] * parts[ROWS] * parts[COLUMNS];
        for groups in self.stages(parts[INNER]) {
            let (depth, share) =
                (longest.div_ceil(groups) * others, (whole * groups).div_ceil(chip.tiles.into()).max(1));
            let bytes = depth * share * partial_bytes;
            cost.reduce_exchange_cycles += receive_cycles(machine, bytes, false);
            cost.reduce_cycles += reduce_cycles(chip, depth, share, problem.partials);
            cost.overhead_cycles += superstep_cycles(machine);
            cost.temporary_bytes = cost.temporary_bytes.max(out_elements * partial_bytes + bytes);
            (longest, others) = (groups, 1);
        }
        Some(cost)
    }

    /// Operands arrive and are multiplied at full rate, blocks are as small as the tiles allow, partial sums arrive
    /// but cost nothing to add.
    fn least(&self, branch: &Branch<4>) -> Least {
        let (problem, machine) = (self.problem, self.problem.machine);
        let (element_bytes, partial_bytes) = (problem.input.size_bytes(), problem.partials.size_bytes());
        let rate =
            matrix_rate(&machine.chip, problem.input).map_or(1, |rate| rate.macs_per_cycle() as u64).max(1);
        // Whatever is undecided spares what it can: a bus of two, a right side that stays.
        let may_be_one = |axis: usize| branch.is_open(axis) || branch.parts[axis] == 1;
        let may_be_even = |axis: usize| branch.is_open(axis) || branch.parts[axis].is_multiple_of(2);
        let bytes = |axes: &[usize], each: u64| branch.volume(axes).saturating_mul(each);
        let rhs_stays = (problem.rhs_is_free && may_be_one(ROWS)) || self.may_stay(1, branch);
        let lhs_bytes =
            if self.may_stay(0, branch) { 0 } else { bytes(&[INNER, BATCH, ROWS], element_bytes) };
        let rhs_bytes = if rhs_stays { 0 } else { bytes(&[INNER, BATCH, COLUMNS], element_bytes) };
        let out_bytes = bytes(&[BATCH, ROWS, COLUMNS], partial_bytes);
        let mut cycles = receive_cycles(machine, lhs_bytes, may_be_even(COLUMNS))
            + receive_cycles(machine, rhs_bytes, may_be_one(COLUMNS) && may_be_even(ROWS))
            + branch.volume(&[INNER, BATCH, ROWS, COLUMNS]) / rate
            + superstep_cycles(machine);
        if branch.parts[INNER] > 1 {
            let [_, batch, rows, columns] = self.whole();
            let results = batch.saturating_mul(rows).saturating_mul(columns);
            let share_bytes = (results / self.tiles() * partial_bytes).saturating_mul(branch.parts[INNER]);
            cycles += superstep_cycles(machine) + receive_cycles(machine, share_bytes, false);
        }
        let bytes = lhs_bytes.saturating_add(rhs_bytes).saturating_add(out_bytes);
        (bytes.saturating_sub(problem.memory_bytes), cycles)
    }
}
