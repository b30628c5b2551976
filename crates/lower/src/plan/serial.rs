//! Products in slices, one after another in a loop: a part of one dimension at a time, whose operand copies, partial sums
//! and exchange code are those of a part. Where the dimension is one of the result's, the slices of the result are put
//! in their places; where it is summed over, they add up.
//!
//! A dimension is dealt to the slices in chunks, in turn. So a tile that holds a whole number of rounds has a part of
//! every slice, the index space of a slice is that of the product with a shorter dimension, and a slice is planned as any
//! product is. Operands that are cut lie so that each tile takes its part of a slice from what it has.

use super::matmul::DotDims;
use super::{Cost, Method, Plan, Planner, superstep_cycles};
use crate::layouts::{evenly, normalize, without_copies};
use crate::rooms;
use pando_base::{DType, Shape};
use pando_graph::{Func, Node, NodeId, Op, TensorType, ValueId, infer, known_dims};
use pando_tile::kernel::SliceAttrs;
use pando_tile::{Kernel, Layout, Part, Span};

/// More slices than this cost more for their supersteps than they save.
const MOST_SLICES: u64 = 64;

/// One way to cut a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// What is cut, for people.
    pub name: &'static str,
    /// The dimension of the left operand, the right one and the result; nothing for what serves every slice whole. A
    /// result that is whole is a sum.
    pub dims: [Option<usize>; 3],
    pub slices: u64,
    /// Neighbouring indices that are in one slice.
    pub chunk: u64,
}

impl Cut {
    /// The attributes of the kernels that take and put slices of one of the three.
    pub fn attrs(&self, at: usize) -> Option<SliceAttrs> {
        self.dims[at].map(|dim| SliceAttrs { axis: dim as u8, chunk: self.chunk, slices: self.slices })
    }

    /// The shape of a slice.
    fn shape(&self, at: usize, whole: &Shape) -> Shape {
        let mut shape = whole.clone();
        if let Some(dim) = self.dims[at] {
            shape[dim] /= self.slices;
        }
        shape
    }

    /// Whether each tile has whole chunks of a slice that lies so.
    fn suits(&self, at: usize, slice: &Layout) -> bool {
        self.dims[at].is_none_or(|dim| match slice.region[dim] {
            Span::Fixed { .. } => true,
            Span::Part(part) => part.is_partition() && part.grain.is_multiple_of(self.chunk),
        })
    }

    /// Where a slice lies if the whole lies so; nothing if tiles have no whole rounds of chunks.
    fn slice_of(&self, at: usize, whole: &Layout) -> Option<Layout> {
        let Some(dim) = self.dims[at] else { return Some(whole.clone()) };
        let mut slice = whole.clone();
        slice.region[dim] = match slice.region[dim] {
            Span::Fixed { end, .. } => Span::full(end / self.slices),
            Span::Part(part)
                if part.is_partition() && part.grain.is_multiple_of(self.chunk * self.slices) =>
            {
                Span::Part(Part { total: part.total / self.slices, grain: part.grain / self.slices, ..part })
            }
            Span::Part(_) => return None,
        };
        Some(slice)
    }

    /// Where the whole lies whose slices lie so.
    fn whole_of(&self, at: usize, slice: &Layout) -> Layout {
        let mut whole = slice.clone();
        if let Some(dim) = self.dims[at] {
            whole.region[dim] = match whole.region[dim] {
                Span::Fixed { end, .. } => Span::full(end * self.slices),
                Span::Part(part) => Span::Part(Part {
                    total: part.total * self.slices,
                    grain: part.grain * self.slices,
                    ..part
                }),
            };
        }
        whole
    }
}

/// A product in slices.
#[derive(Clone, Debug)]
pub struct SerialPlan {
    pub cut: Cut,
    /// The product of one slice's operands.
    pub func: Func,
    pub plan: Plan,
    /// Where the operands lie while the loop runs: whole if they are cut, as a slice uses them otherwise.
    pub operands: [Layout; 2],
    pub cycles: u64,
    pub temporary_bytes: u64,
}

/// The function follows from the node and the cut.
impl PartialEq for SerialPlan {
    fn eq(&self, other: &Self) -> bool {
        (self.cut, &self.plan, &self.operands) == (other.cut, &other.plan, &other.operands)
    }
}

/// How ways to compute a product compare: bytes beyond the bound, then cycles.
type Rank = (u64, u64);

impl Planner<'_> {
    /// A product whose copies and sums find room, or else the way with the least.
    pub(super) fn product(&mut self, id: NodeId, node: &Node) -> Method {
        let whole_only = self.slice_of.is_some() || self.preplanned.contains_key(&id);
        if let Some(serial) = (!whole_only).then(|| self.serial(node)).flatten() {
            return self.adopt(serial, node);
        }
        match &node.op {
            Op::Dot(dot) => self.matmul(dot, node),
            Op::Conv(conv) => self.conv(conv, id, node),
            op => unreachable!("{op} is no product"),
        }
    }

    fn adopt(&mut self, serial: SerialPlan, node: &Node) -> Method {
        for (&operand, layout) in node.operands.iter().zip(&serial.operands) {
            self.want(operand, layout);
            self.settled(operand);
        }
        let result = serial.plan.layouts[serial.func.results[0]].as_ref().expect("every value is planned");
        self.set(node, serial.cut.whole_of(2, result));
        Method::Serial(Box::new(serial))
    }

    /// The best way to compute a product in slices, if that is better than at once.
    fn serial(&mut self, node: &Node) -> Option<SerialPlan> {
        let (at_once, room) = (self.cost_at_once(node)?, self.room(node));
        if at_once.temporary_bytes <= room {
            return None;
        }
        let key = self.serial_key(node);
        let best = match self.found.serials.get(&key) {
            Some(known) => *known,
            None => {
                let rank = (at_once.temporary_bytes - room, at_once.cycles());
                let cuts = self.cuts(node).into_iter().filter_map(|ways| self.first_within(node, &ways));
                let best = cuts.collect::<Vec<_>>().into_iter().min_by_key(|(rank, _)| *rank);
                let best = best.filter(|(found, _)| *found < rank).map(|(_, cut)| cut);
                self.found.serials.insert(key, best);
                best
            }
        };
        self.serial_plan(node, best?)
    }

    fn cost_at_once(&mut self, node: &Node) -> Option<Cost> {
        match &node.op {
            Op::Dot(dot) => Some(self.matmul_plan(dot, node).cost),
            Op::Conv(conv) => Some(self.conv_plan(conv, node).cost),
            _ => None,
        }
    }

    /// What decisions for equal products are remembered by.
    fn serial_key(&self, node: &Node) -> String {
        let lies = |&operand: &ValueId| if self.is_free(operand) { None } else { self.lies(operand) };
        let operands: Vec<Option<Layout>> = node.operands.iter().map(lies).collect();
        let types = self.func.operand_types(&node.operands);
        format!("{:?} {types:?} {} {operands:?} {}", node.op, self.dtype(node.results[0]), self.room(node))
    }

    /// Bytes that a product may take for what it alone needs.
    pub(super) fn room(&self, node: &Node) -> u64 {
        let known = || rooms::kind(self.func, node).and_then(|kind| self.rooms.get(&kind).copied());
        let room = self.slice_of.or_else(|| if self.rooms.is_empty() { None } else { known() });
        room.unwrap_or(u64::MAX).min(self.temporary_bytes())
    }

    /// Along one dimension, the fewest slices within the memory bound or the next more, whichever takes less time; those
    /// with the least memory if there are none.
    fn first_within(&mut self, node: &Node, ways: &[Cut]) -> Option<(Rank, Cut)> {
        let (mut low, mut high) = (0, ways.len());
        let mut ranks: Vec<(Rank, Cut)> = Vec::new();
        while low < high {
            let middle = (low + high) / 2;
            let rank = self.rank(node, ways[middle]);
            ranks.extend(rank.map(|rank| (rank, ways[middle])));
            match rank {
                Some((0, _)) => high = middle,
                _ => low = middle + 1,
            }
        }
        if let Some(&more) = ways.get(low + 1) {
            ranks.extend(self.rank(node, more).map(|rank| (rank, more)));
        }
        ranks.into_iter().min_by_key(|(rank, _)| *rank)
    }

    fn rank(&mut self, node: &Node, cut: Cut) -> Option<Rank> {
        let room = self.room(node);
        self.serial_plan(node, cut).map(|plan| (plan.temporary_bytes.saturating_sub(room), plan.cycles))
    }

    /// Ways to cut a product: for each dimension that can be, by rising number of slices.
    fn cuts(&self, node: &Node) -> Vec<Vec<Cut>> {
        let (lhs, rhs) = (self.shape(node.operands[0]), self.shape(node.operands[1]));
        let dims = match &node.op {
            Op::Dot(dot) => dot_dims(&DotDims::new(dot, lhs.rank(), rhs.rank()), &lhs, &rhs),
            Op::Conv(conv) if conv.groups == 1 => vec![
                ("input channels", [Some(1), Some(1), None]),
                ("batch", [Some(0), None, Some(0)]),
                ("output channels", [None, Some(0), Some(1)]),
            ],
            _ => vec![("batch", [Some(0), None, Some(0)])],
        };
        dims.into_iter().map(|(name, dims)| self.counts(node, name, dims)).collect()
    }

    fn counts(&self, node: &Node, name: &'static str, dims: [Option<usize>; 3]) -> Vec<Cut> {
        let values = node.operands.iter().chain(&node.results);
        let cut = || values.clone().zip(dims).filter_map(|(&value, dim)| Some((value, dim?)));
        let Some((value, dim)) = cut().next() else { return Vec::new() };
        let size = self.shape(value)[dim];
        // Where elements are neighbours, whole accesses stay together; the smaller chunks are, the more tiles have some.
        let access = |(value, dim): (ValueId, usize)| {
            let is_last = dim + 1 == self.shape(value).rank();
            if is_last { (8 / self.dtype(value).size_bytes()).max(1) } else { 1 }
        };
        let wanted = cut().map(access).max().unwrap_or(1);
        (2..=MOST_SLICES.min(size))
            .filter(|slices| size.is_multiple_of(*slices))
            .map(|slices| Cut { name, dims, slices, chunk: common_divisor(size / slices, wanted) })
            .filter(|cut| cut.chunk * 2 >= wanted)
            .collect()
    }

    /// Plans a slice and what is around it; nothing if its result would not be whole chunks on each tile.
    fn serial_plan(&mut self, node: &Node, cut: Cut) -> Option<SerialPlan> {
        let room = self.room(node);
        let (serial, slice_bytes) = self.planned_within(node, cut, room)?;
        if serial.temporary_bytes <= room {
            return Some(serial);
        }
        // What is around the slice takes its part.
        let around = serial.temporary_bytes - slice_bytes;
        let (again, _) = self.planned_within(node, cut, room.saturating_sub(around))?;
        Some(if again.temporary_bytes < serial.temporary_bytes { again } else { serial })
    }

    /// With so many bytes for the slice; and how many that takes.
    fn planned_within(&mut self, node: &Node, cut: Cut, room: u64) -> Option<(SerialPlan, u64)> {
        let func = self.slice_func(node, &cut);
        let homes: Vec<Option<Layout>> =
            (0..2).map(|at| self.home_for_slices(node.operands[at], at, &cut)).collect();
        let mut planner = self.planner_of(&func);
        planner.slice_of = Some(room);
        planner.steady = (0..2).filter(|&at| cut.dims[at].is_none()).map(|at| func.params[at]).collect();
        for (at, home) in homes.iter().enumerate() {
            planner.plan.layouts[func.params[at]] = home.as_ref().and_then(|home| cut.slice_of(at, home));
        }
        planner.nodes();
        let product = func.nodes.values().next().expect("a slice is one product");
        let method =
            planner.plan.methods[pando_base::Id::from_index(0)].clone().expect("every node is planned");
        let used: Vec<Layout> = (0..2)
            .map(|at| {
                normalize(&planner.operand_layout(&method, product, at), &planner.shape(func.params[at]))
            })
            .collect();
        let plan = self.take_back(planner);
        let (cost, is_complete) = match &method {
            Method::Matmul(plan) => (plan.cost, plan.stages.is_empty()),
            Method::Conv(plan) => (plan.cost, plan.stages.is_empty()),
            _ => unreachable!("a slice is computed at once"),
        };
        let mut serial = self.around(node, cut, func, plan, homes, used, is_complete)?;
        self.price(node, cost, &mut serial);
        Some((serial, cost.temporary_bytes))
    }

    /// Where operands and result lie around the loop.
    fn around(
        &mut self,
        node: &Node,
        cut: Cut,
        func: Func,
        mut plan: Plan,
        homes: Vec<Option<Layout>>,
        used: Vec<Layout>,
        is_complete: bool,
    ) -> Option<SerialPlan> {
        let mut operands = used;
        for (at, home) in homes.into_iter().enumerate().filter(|&(at, _)| cut.dims[at].is_some()) {
            let planned = plan.layouts[func.params[at]].clone().expect("every value is planned");
            let whole = home.unwrap_or_else(|| self.evenly(node.operands[at], at, &cut, &planned));
            let whole = normalize(&whole, &self.shape(node.operands[at]));
            plan.layouts[func.params[at]] = cut.slice_of(at, &whole);
            operands[at] = whole;
        }
        let result = func.results[0];
        let planned = plan.layouts[result].as_ref().expect("every value is planned");
        if !cut.suits(2, planned) {
            // What is added up can lie anywhere.
            if is_complete {
                return None;
            }
            let whole = self.in_rounds(node.results[0], 2, &cut);
            plan.layouts[result] = cut.slice_of(2, &whole);
        }
        let lies = plan.layouts[result].as_ref().expect("every value is planned");
        plan.layouts[result] = Some(normalize(lies, &cut.shape(2, &self.shape(node.results[0]))));
        let operands = operands.try_into().expect("a product has two operands");
        Some(SerialPlan { cut, func, plan, operands, cycles: 0, temporary_bytes: 0 })
    }

    /// What a product in slices costs on the busiest tile.
    fn price(&self, node: &Node, cost: Cost, serial: &mut SerialPlan) {
        let cut = serial.cut;
        let largest = |layout: &Layout, shape: &Shape| Self::largest_lens(layout, shape);
        let mut bytes = cost.temporary_bytes;
        let (mut once, mut each) = (0, cost.cycles() + superstep_cycles(self.machine));
        for (at, exchanged) in [cost.lhs_exchange_cycles, cost.rhs_exchange_cycles].into_iter().enumerate() {
            let (value, dtype) = (node.operands[at], self.dtype(node.operands[at]));
            let shape = self.shape(value);
            let Some(attrs) = cut.attrs(at) else {
                // Brought before the loop.
                (once, each) = (once + exchanged, each - exchanged);
                continue;
            };
            let whole = largest(&serial.operands[at], &shape);
            let part =
                largest(&cut.slice_of(at, &serial.operands[at]).expect("it suits"), &cut.shape(at, &shape));
            bytes += part.iter().product::<u64>() * dtype.size_bytes();
            each += self.kernel_cycles(
                &Kernel::TakeSlice(attrs),
                &[(dtype, &whole), (DType::I32, &[]), (dtype, &part)],
            );
            if self.lies(value).is_some_and(|home| home != serial.operands[at]) {
                bytes += whole.iter().product::<u64>() * dtype.size_bytes();
                // What only its family has a layout for is about to get that.
                let is_laid_out = !self.is_open(value);
                once += if is_laid_out { self.fetch_cycles(value, &serial.operands[at]) } else { 0 };
            }
        }
        let (result, shape) = (node.results[0], self.shape(node.results[0]));
        let lies = serial.plan.layouts[serial.func.results[0]].as_ref().expect("every value is planned");
        let part = largest(lies, &cut.shape(2, &shape));
        let sums = serial.func.ty(serial.func.results[0]).dtype;
        let whole = largest(&cut.whole_of(2, lies), &shape);
        bytes += whole.iter().product::<u64>() * sums.size_bytes();
        each += match cut.attrs(2) {
            Some(attrs) => {
                let operands = [(DType::I32, &[][..]), (sums, &part), (sums, &whole)];
                self.kernel_cycles(&Kernel::PutSlice(attrs), &operands)
            }
            None => self.kernel_cycles(&Kernel::Binary(pando_base::BinaryFn::Add), &[(sums, &*whole); 3]),
        };
        if self.dtype(result) != sums {
            once += self.kernel_cycles(&Kernel::Cast, &[(sums, &*whole), (self.dtype(result), &whole)]);
        }
        serial.cycles = once.saturating_add(each.saturating_mul(cut.slices));
        serial.temporary_bytes = bytes;
    }

    /// A function of one slice's operands: the product. Sums that go on are kept in the type of partial sums.
    fn slice_func(&self, node: &Node, cut: &Cut) -> Func {
        let mut func = Func::new("slice");
        let params: Vec<ValueId> = (0..2)
            .map(|at| {
                let value = node.operands[at];
                let dims = known_dims(&cut.shape(at, &self.shape(value)));
                func.push_param(&self.func.values[value].name, TensorType { dims, dtype: self.dtype(value) })
            })
            .collect();
        let mut op = node.op.clone();
        if cut.dims[2].is_none() {
            let sums = self.partials(self.dtype(node.operands[0]), self.dtype(node.results[0]));
            match &mut op {
                Op::Dot(dot) => dot.dtype = Some(sums),
                Op::Conv(conv) => conv.dtype = Some(sums),
                _ => {}
            }
        }
        let types = infer(&op, &func.operand_types(&params), self.module).expect("a part of a valid product");
        let id = func.push_node(op, params, types);
        let result = func.nodes[id].results[0];
        func.values[result].name.clone_from(&self.func.values[node.results[0]].name);
        func.results = vec![result];
        func
    }

    /// Where an operand that lies somewhere lies while the loop runs; nothing if that is the product's choice.
    fn home_for_slices(&mut self, operand: ValueId, at: usize, cut: &Cut) -> Option<Layout> {
        if self.is_free(operand) {
            return None;
        }
        let home = match self.lies(operand) {
            Some(home) => without_copies(&home, &self.shape(operand)),
            None => self.balanced(&self.shape(operand), self.dtype(operand)),
        };
        match cut.slice_of(at, &home) {
            Some(_) => Some(home),
            None => Some(self.in_rounds(operand, at, cut)),
        }
    }

    /// Where an operand lies as a whole whose slices would best lie so: there, if that is about even, since it lies there
    /// for good.
    fn evenly(&self, operand: ValueId, at: usize, cut: &Cut, slice: &Layout) -> Layout {
        let even = self.in_rounds(operand, at, cut);
        let shape = self.shape(operand);
        let largest = |layout: &Layout| Self::largest_lens(layout, &shape).iter().product::<u64>();
        let whole = cut.suits(at, slice).then(|| cut.whole_of(at, slice));
        whole.filter(|whole| largest(whole) * 32 <= largest(&even) * 33).unwrap_or(even)
    }

    pub(super) fn lies(&self, value: ValueId) -> Option<Layout> {
        self.plan.layouts[value].clone().or_else(|| self.families.layout(value).cloned())
    }

    /// A balanced partition in which every tile has whole rounds of chunks.
    fn in_rounds(&self, value: ValueId, at: usize, cut: &Cut) -> Layout {
        let mut shape = self.shape(value);
        let Some(dim) = cut.dims[at] else { return evenly(&shape, self.dtype(value), self.tiles(), 1) };
        let round = cut.chunk * cut.slices;
        shape[dim] /= round;
        let min_bytes = (self.options.min_tile_bytes / round).max(1);
        let mut layout = evenly(&shape, self.dtype(value), self.tiles(), min_bytes);
        layout.region[dim] = match layout.region[dim] {
            Span::Fixed { end, .. } => Span::full(end * round),
            Span::Part(part) => {
                Span::Part(Part { total: part.total * round, grain: part.grain * round, ..part })
            }
        };
        layout
    }
}

/// What of each operand and the result is cut, by role: the largest dimension of each.
fn dot_dims(dims: &DotDims, lhs: &Shape, rhs: &Shape) -> Vec<(&'static str, [Option<usize>; 3])> {
    let (batch, rows) = (dims.batch.len(), dims.lhs_free.len());
    let mut out = Vec::new();
    if let Some(&(l, r)) = dims.contract.iter().max_by_key(|(l, _)| lhs[*l]) {
        out.push(("inner", [Some(l), Some(r), None]));
    }
    if let Some((at, &(l, r))) = dims.batch.iter().enumerate().max_by_key(|(_, (l, _))| lhs[*l]) {
        out.push(("batch", [Some(l), Some(r), Some(at)]));
    }
    if let Some((at, &l)) = dims.lhs_free.iter().enumerate().max_by_key(|(_, l)| lhs[**l]) {
        out.push(("rows", [Some(l), None, Some(batch + at)]));
    }
    if let Some((at, &r)) = dims.rhs_free.iter().enumerate().max_by_key(|(_, r)| rhs[**r]) {
        out.push(("columns", [None, Some(r), Some(batch + rows + at)]));
    }
    out
}

fn common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}
