//! How a matrix product is split.
//!
//! A product has a batch, rows (the free dimensions of the operand that is the matrix unit's input), columns (those of
//! its weights) and an inner dimension; each may be several dimensions, each of which may be split over an axis of a
//! grid of tiles. Every tile receives its blocks of the operands, multiplies on the matrix unit, and partial sums of a
//! split inner dimension are gathered and added in stages. Either operand may be the weights.

use super::Cost;
use super::home::Home;
use super::matmul_split::Problem;
use super::spread::Sharing;
use super::{Method, Planner};
use pando_base::{DType, Shape};
use pando_graph::{Dot, Node, Op, ValueDef, ValueId};
use pando_tile::kernel::Dims;
use pando_tile::{Grid, Layout, Part, Region, Span};
use smallvec::SmallVec;

/// Roles of a product's dimensions, in the order of its grid's axes; columns vary fastest over tiles, so that
/// neighbours on a bus want the same block of the unit's input.
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

/// A dimension in parts, over an axis of the grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DimSplit {
    /// Position in `batch` or `contract`, or dimension of the operand.
    pub dim: usize,
    pub parts: u64,
    /// Units in which it is cut.
    pub grain: u64,
}

pub type DimSplits = SmallVec<[DimSplit; 2]>;

/// A chosen split. `lhs` is the unit's input and `rhs` its weights; if `swapped`, they are the dot's right and left
/// operand.
#[derive(Clone, Debug, PartialEq)]
pub struct MatmulPlan {
    pub dims: DotDims,
    /// What is cut of each role, in the order of the role constants.
    pub cuts: [DimSplits; 4],
    /// An axis for each cut, and for each role without.
    pub grid: Grid,
    /// Which of `lhs` and `rhs` is already where it is used.
    pub stays: Option<usize>,
    pub swapped: bool,
    /// Which of the product's dimensions (batch, rows, columns) each dimension of the result is; empty if they are in
    /// this order.
    pub order: Dims,
    pub partials: DType,
    pub stages: Vec<u64>,
    /// Temporary bytes beyond the bound.
    pub over_bytes: u64,
    /// The planner's estimate.
    pub cost: Cost,
}

impl DotDims {
    pub fn new(dot: &Dot, lhs_rank: usize, rhs_rank: usize) -> Self {
        DotDims {
            batch: dot.batch.clone(),
            contract: dot.contract.clone(),
            lhs_free: dot.lhs_free(lhs_rank),
            rhs_free: dot.rhs_free(rhs_rank),
        }
    }

    fn swapped(&self) -> Self {
        let flip = |pairs: &[(usize, usize)]| pairs.iter().map(|&(lhs, rhs)| (rhs, lhs)).collect();
        DotDims {
            batch: flip(&self.batch),
            contract: flip(&self.contract),
            lhs_free: self.rhs_free.clone(),
            rhs_free: self.lhs_free.clone(),
        }
    }

    /// The product's dimensions as the dot has them if its operands are exchanged.
    fn swapped_order(&self) -> Dims {
        let (batch, rows, columns) = (self.batch.len(), self.rhs_free.len(), self.lhs_free.len());
        let columns_first = (batch + rows..batch + rows + columns).chain(batch..batch + rows);
        (0..batch).chain(columns_first).map(|dim| dim as u8).collect()
    }
}

impl MatmulPlan {
    /// Parts of each role.
    pub fn parts(&self) -> [u64; 4] {
        std::array::from_fn(|role| self.cuts[role].iter().map(|cut| cut.parts).product())
    }

    /// Axes of the grid that split the inner dimension.
    pub fn inner_axes(&self) -> std::ops::Range<usize> {
        0..self.cuts[INNER].len().max(1)
    }

    fn span(&self, role: usize, dim: usize, size: u64) -> Span {
        let before: usize = self.cuts[..role].iter().map(|cuts| cuts.len().max(1)).sum();
        match self.cuts[role].iter().position(|cut| cut.dim == dim) {
            Some(at) => Span::Part(Part::even(before + at, size, self.cuts[role][at].grain)),
            None => Span::full(size),
        }
    }

    /// What each tile needs of the unit's input.
    fn lhs_region(&self, shape: &[u64]) -> Region {
        self.region(shape, ROWS, |&(lhs, _)| lhs)
    }

    fn rhs_region(&self, shape: &[u64]) -> Region {
        self.region(shape, COLUMNS, |&(_, rhs)| rhs)
    }

    fn region(&self, shape: &[u64], free: usize, side: fn(&(usize, usize)) -> usize) -> Region {
        let span = |(dim, &size): (usize, &u64)| {
            let pair = |pairs: &[(usize, usize)]| pairs.iter().position(|pair| side(pair) == dim);
            match (pair(&self.dims.batch), pair(&self.dims.contract)) {
                (Some(pair), _) => self.span(BATCH, pair, size),
                (_, Some(pair)) => self.span(INNER, pair, size),
                _ => self.span(free, dim, size),
            }
        };
        shape.iter().enumerate().map(span).collect()
    }

    /// What each tile needs of the dot's operands.
    pub fn operand_regions(&self, [lhs, rhs]: [&[u64]; 2]) -> [Region; 2] {
        if self.swapped {
            [self.rhs_region(lhs), self.lhs_region(rhs)]
        } else {
            [self.lhs_region(lhs), self.rhs_region(rhs)]
        }
    }

    /// What each tile computes of the result.
    pub fn out_region(&self, operands: [&[u64]; 2]) -> Region {
        let mut regions = self.operand_regions(operands);
        if self.swapped {
            regions.reverse();
        }
        let [lhs, rhs] = regions;
        let batch = self.dims.batch.iter().map(|&(dim, _)| lhs[dim]);
        let rows = self.dims.lhs_free.iter().map(|&dim| lhs[dim]);
        let columns = self.dims.rhs_free.iter().map(|&dim| rhs[dim]);
        let product: Region = batch.chain(rows).chain(columns).collect();
        if self.order.is_empty() {
            return product;
        }
        self.order.iter().map(|&dim| product[usize::from(dim)]).collect()
    }
}

/// What a product's plan depends on of an operand, besides its type.
pub(super) struct Operand {
    /// Where it lies, if that is known.
    pub layout: Option<Layout>,
    /// Whether it can be stored wherever it is wanted.
    pub is_free: bool,
}

/// Where the larger operand lies whose blocks a split may leave there.
fn home(dims: &DotDims, layouts: [&Option<Layout>; 2], shapes: [&Shape; 2]) -> Option<Home> {
    let of = |side: usize| Home::of(dims, side, layouts[side].as_ref()?, shapes[side]);
    let first = usize::from(shapes[1].num_elements() > shapes[0].num_elements());
    of(first).or_else(|| of(1 - first))
}

impl Planner<'_> {
    pub(super) fn matmul(&mut self, dot: &Dot, node: &Node) -> Method {
        let (lhs, rhs) = (node.operands[0], node.operands[1]);
        let method = Method::Matmul(Box::new(self.matmul_plan(dot, node)));
        let Method::Matmul(plan) = &method else { unreachable!("just made") };
        self.want(rhs, &self.operand_layout(&method, node, 1));
        self.want(lhs, &self.operand_layout(&method, node, 0));
        let region = plan.out_region([&self.shape(lhs), &self.shape(rhs)]);
        let own = Layout { grid: plan.grid.clone(), region };
        self.set_product(node.results[0], own, plan.stages.is_empty());
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

    /// The cheaper of the plans with either operand as the matrix unit's weights, as PopLibs' planner tries both
    /// (poplar.md section 3.4).
    ///
    /// Assumption: weights that are stored for the unit stay its weights. Measured products of a stored matrix take as
    /// long with 4 columns as with 16 (hardware.md section 9, rows 39 and 40), so the library does not exchange there.
    pub(super) fn matmul_plan(&mut self, dot: &Dot, node: &Node) -> MatmulPlan {
        let operands = [0, 1].map(|at| Operand {
            layout: self.lies(node.operands[at]),
            is_free: self.is_free(node.operands[at]),
        });
        self.matmul_plan_for(dot, node, &operands)
    }

    /// The plan if operands lie so.
    pub(super) fn matmul_plan_for(&mut self, dot: &Dot, node: &Node, operands: &[Operand; 2]) -> MatmulPlan {
        let (lhs, rhs, out) = (node.operands[0], node.operands[1], node.results[0]);
        let shapes = [self.shape(lhs), self.shape(rhs)];
        let dims = DotDims::new(dot, shapes[0].rank(), shapes[1].rank());
        let reductions = self.reductions(out, &dims);
        let plain = Problem {
            machine: self.machine,
            reductions,
            home: home(&dims, [&operands[0].layout, &operands[1].layout], [&shapes[0], &shapes[1]]),
            dims: dims.clone(),
            lhs: shapes[0].clone(),
            rhs: shapes[1].clone(),
            input: self.dtype(lhs),
            partials: self.partials(self.dtype(lhs), self.dtype(out)),
            output: self.dtype(out),
            transposes: false,
            rhs_is_free: operands[1].is_free,
            memory_bytes: self.room(node),
        };
        let key = format!("{} {}", plain.key(), operands[0].is_free);
        if let Some(plan) = self.found.matmuls.get(&key) {
            return plan.clone();
        }
        let mut plan = plain.solve();
        if !plain.rhs_is_free && !self.is_stored(rhs) {
            let flipped = dims.swapped();
            let swapped = Problem {
                home: home(&flipped, [&operands[1].layout, &operands[0].layout], [&shapes[1], &shapes[0]]),
                dims: flipped,
                lhs: plain.rhs.clone(),
                rhs: plain.lhs.clone(),
                input: self.dtype(rhs),
                transposes: true,
                reductions: [reductions[1], reductions[0]],
                rhs_is_free: operands[0].is_free,
                ..plain
            };
            let swapped = MatmulPlan { swapped: true, order: dims.swapped_order(), ..swapped.solve() };
            let worth = |plan: &MatmulPlan| (plan.over_bytes, plan.cost.cycles());
            if worth(&swapped) < worth(&plan) {
                plan = swapped;
            }
        }
        self.found.matmuls.entry(key).or_insert(plan).clone()
    }

    /// How many reductions of a product, or of functions of it, are over free dimensions of the left and of the right
    /// operand.
    fn reductions(&self, out: ValueId, dims: &DotDims) -> [u64; 2] {
        let rows = dims.batch.len()..dims.batch.len() + dims.lhs_free.len();
        let columns = rows.end..rows.end + dims.rhs_free.len();
        let over = |dims: std::ops::Range<usize>| {
            let reduced = self.reduced_axes(out).into_iter();
            reduced.filter(|axes| axes.iter().any(|axis| dims.contains(axis))).count() as u64
        };
        [over(rows), over(columns)]
    }

    /// The axes of reductions of a value, or of functions of it.
    pub(super) fn reduced_axes(&self, value: ValueId) -> Vec<&[usize]> {
        let mut found = Vec::new();
        let mut values = vec![value];
        // A softmax has three functions between its two reductions.
        for _ in 0..4 {
            let users = values.iter().flat_map(|&value| self.users_of(value)).collect::<Vec<_>>();
            found.extend(users.iter().filter_map(|node| match &node.op {
                Op::Reduce { axes, .. } => Some(axes.as_slice()),
                _ => None,
            }));
            let same = |node: &&&Node| {
                node.op.is_elementwise() && self.func.ty(node.results[0]).dims == self.func.ty(value).dims
            };
            values = users.iter().filter(same).map(|node| node.results[0]).collect();
            values.dedup();
        }
        found
    }

    fn users_of(&self, value: ValueId) -> impl Iterator<Item = &Node> {
        self.users[value].iter().map(|&id| &self.func.nodes[id])
    }

    /// Whether a value is kept for its products, as weights are.
    fn is_stored(&self, value: ValueId) -> bool {
        match self.func.values[value].def {
            ValueDef::Param(_) => true,
            ValueDef::Node(node, _) => matches!(self.func.nodes[node].op, Op::Constant(_)),
        }
    }

    /// What a product needs of an operand on each tile.
    pub(super) fn operand_layout(&self, method: &Method, node: &Node, operand: usize) -> Layout {
        let shapes: Vec<Shape> =
            node.operands.iter().chain(&node.results).map(|&value| self.shape(value)).collect();
        match method {
            Method::Matmul(plan) => {
                let [lhs, rhs] = plan.operand_regions([&shapes[0], &shapes[1]]);
                Layout { grid: plan.grid.clone(), region: if operand == 0 { lhs } else { rhs } }
            }
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
