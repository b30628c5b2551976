//! Sorting: whole lines on a tile, or sorted blocks merged by a network of tiles.
//!
//! The network is Batcher's bitonic one in the form in which all comparisons point the same way: a merge of
//! groups of 2^k blocks first compares the group with its mirror image, then halves at distances from
//! 2^(k-2) down to one. It sorts blocks as it sorts elements if each comparison merges two sorted blocks
//! and keeps a half.
//! Places in the network are dimensions of length 2, so that partners are mirror images along some of them.
//! Lines are filled up to equal blocks with what comes last in the order; where payloads follow the keys,
//! the order decides between equal keys, and what fills up has the highest places.

use super::Emitter;
use crate::plan::{SortPlan, rows_layout};
use pando_base::{DType, Shape};
use pando_graph::{Node, Sort, ValueId};
use pando_tile::{Block, Copy, CopyMap, Grid, Kernel, Layout, Part, Span, SrcIndex, VarId};
use smallvec::SmallVec;
use std::ops::Range;

/// The digits of a block's place, the highest first, that its partner has inverted, for each stage. The
/// first of them decides which half a block keeps.
fn stages(digits: usize) -> Vec<Range<usize>> {
    let mut stages = Vec::new();
    for merged in 1..=digits {
        stages.push(digits - merged..digits);
        stages.extend((digits - merged + 1..digits).map(|digit| digit..digit + 1));
    }
    stages
}

/// Keys, their order if payloads follow, payloads: what moves together.
struct Columns {
    keys: VarId,
    order: Option<VarId>,
    payloads: Vec<VarId>,
}

impl Emitter<'_> {
    pub(super) fn sort(&mut self, sort: &Sort, node: &Node, plan: &SortPlan) {
        if plan.parts == 1 { self.sort_lines(sort, node) } else { self.sort_blocks(sort, node, plan.parts) }
    }

    fn sort_lines(&mut self, sort: &Sort, node: &Node) {
        let layout = self.layout(node.results[0]);
        let (axis, label) = (sort.axis as u8, self.label(node));
        let own = |var: VarId| (var, layout.region.clone());
        let inputs: Vec<VarId> = node.operands.iter().map(|&operand| self.fetch(operand, &layout)).collect();
        let ordered = inputs.len() > 1;
        let mut operands = vec![own(inputs[0]), own(self.result_of(node, 0))];
        let mut order = None;
        if ordered {
            let name = format!("{}.order", self.base_name(node.results[0]));
            let var = self.temp(&name, DType::I32, self.shape(node.operands[0]), &layout);
            operands.push(own(var));
            order = Some(var);
        }
        let kernel = Kernel::Sort { axis, descending: sort.descending, ordered };
        self.compute(&label, kernel, &layout.grid, operands);
        for (index, &input) in inputs.iter().enumerate().skip(1) {
            let order = order.expect("payloads have an order");
            let operands = vec![own(input), own(order), own(self.result_of(node, index))];
            self.compute(&label, Kernel::Take { axis }, &layout.grid, operands);
        }
    }

    fn sort_blocks(&mut self, sort: &Sort, node: &Node, parts: u64) {
        let network = Network::new(self, sort, node, parts);
        let rows: Vec<VarId> =
            node.operands.iter().map(|&operand| self.rows(&network, operand, node)).collect();
        let mut columns = self.sort_each_block(&network, &rows, node);
        for stage in stages(network.digits) {
            columns = self.merge(&network, columns, stage, node);
        }
        let sorted: Vec<VarId> = std::iter::once(columns.keys).chain(columns.payloads).collect();
        let label = self.label(node);
        let lines: Vec<VarId> = sorted
            .iter()
            .map(|&var| self.reshaped(var, network.rows_shape(), &network.rows_layout()))
            .collect();
        self.flush(&label);
        for (index, var) in lines.into_iter().enumerate() {
            let out = self.result_of(node, index);
            self.pending.push(network.copy_out(var, out));
        }
        self.flush(&label);
    }

    /// An operand with the sorted dimension last and filled up, in equal blocks.
    fn rows(&mut self, network: &Network, operand: ValueId, node: &Node) -> VarId {
        let (dtype, layout) = (self.dtype(operand), network.rows_layout());
        let name = format!("{}.rows", self.base_name(operand));
        let var = self.temp(&name, dtype, network.rows_shape(), &layout);
        if network.filled() > network.shape[network.axis] {
            let value = match (network.descending, dtype.is_float()) {
                (false, true) => f64::NAN,
                (false, false) => dtype.highest(),
                (true, _) => dtype.lowest(),
            };
            let operands = vec![(var, layout.region)];
            self.compute(&self.label(node), Kernel::Fill { value }, &layout.grid, operands);
        }
        let src = self.home(operand);
        self.pending.push(network.copy_in(src, var));
        var
    }

    fn sort_each_block(&mut self, network: &Network, rows: &[VarId], node: &Node) -> Columns {
        let label = self.label(node);
        let axis = network.others.len() as u8;
        let layout = network.rows_layout();
        let own = |var: VarId| (var, layout.region.clone());
        let ordered = rows.len() > 1;
        let keys = self.like(rows[0], network.rows_shape(), &layout);
        let order = ordered.then(|| {
            let name = format!("{}.order", self.base_name(node.results[0]));
            self.temp(&name, DType::I32, network.rows_shape(), &layout)
        });
        let operands: Vec<_> = [own(rows[0]), own(keys)].into_iter().chain(order.map(own)).collect();
        let kernel = Kernel::Sort { axis, descending: network.descending, ordered };
        self.compute(&label, kernel, &layout.grid, operands);
        let mut payloads = Vec::new();
        for &row in &rows[1..] {
            let order = order.expect("payloads have an order");
            let payload = self.like(row, network.rows_shape(), &layout);
            let operands = vec![own(row), own(order), own(payload)];
            self.compute(&label, Kernel::Take { axis }, &layout.grid, operands);
            payloads.push(payload);
        }
        let mut placed = |var| self.reshaped(var, network.shape(), &network.layout());
        Columns {
            keys: placed(keys),
            order: order.map(&mut placed),
            payloads: payloads.into_iter().map(placed).collect(),
        }
    }

    /// One stage: blocks meet their partners', keys are merged, payloads follow.
    fn merge(&mut self, network: &Network, own: Columns, stage: Range<usize>, node: &Node) -> Columns {
        let label = format!("{}:merge", self.label(node));
        self.flush(&label);
        let layout = network.layout();
        let here = |var: VarId| (var, layout.region.clone());
        let partner = |emitter: &mut Self, var: VarId| {
            let other = emitter.like(var, network.shape(), &layout);
            emitter.pending.push(network.mirror(var, other, &stage));
            other
        };
        let other_keys = partner(self, own.keys);
        let other_order = own.order.map(|order| partner(self, order));
        let others: Vec<VarId> = own.payloads.iter().map(|&payload| partner(self, payload)).collect();
        let keys = self.like(own.keys, network.shape(), &layout);
        let (side, ordered) = ((network.others.len() + stage.start) as u8, own.order.is_some());
        let kernel = Kernel::Merge { side, descending: network.descending, ordered };
        let Some((order, other_order)) = own.order.zip(other_order) else {
            let operands = [own.keys, other_keys, keys].map(here).to_vec();
            self.compute(&label, kernel, &layout.grid, operands);
            return Columns { keys, order: None, payloads: Vec::new() };
        };
        let merged_order = self.like(order, network.shape(), &layout);
        let name = format!("{}.picks", self.base_name(node.results[0]));
        let picks = self.temp(&name, DType::I32, network.shape(), &layout);
        let operands = [own.keys, order, other_keys, other_order, keys, merged_order, picks].map(here);
        self.compute(&label, kernel, &layout.grid, operands.to_vec());
        let mut payloads = Vec::new();
        for (&payload, other) in own.payloads.iter().zip(others) {
            let moved = self.like(payload, network.shape(), &layout);
            let operands = [payload, other, picks, moved].map(here).to_vec();
            self.compute(&label, Kernel::Pick, &layout.grid, operands);
            payloads.push(moved);
        }
        Columns { keys, order: Some(merged_order), payloads }
    }

    /// The same elements under another shape, on the same tiles.
    fn reshaped(&mut self, var: VarId, shape: Shape, layout: &Layout) -> VarId {
        let len = shape.num_elements();
        let dst = self.like(var, shape, layout);
        let map = CopyMap::Flat { src_begin: 0, dst_begin: 0, len };
        self.pending.push(Copy { src: var, dsts: SmallVec::from_slice(&[dst]), map });
        dst
    }

    /// A temporary of the type of another variable and, but for a number, of its name.
    fn like(&mut self, var: VarId, shape: Shape, layout: &Layout) -> VarId {
        let (name, dtype) = (self.program.vars[var].name.clone(), self.program.vars[var].dtype);
        let base = name.split(".rows").next().unwrap_or_default();
        self.temp(&format!("{base}.rows"), dtype, shape, layout)
    }
}

/// Blocks of `length` elements, a power of two of them a line. Every tile has a block of one line.
struct Network {
    shape: Shape,
    axis: usize,
    /// The dimensions that are not sorted.
    others: Vec<usize>,
    /// Binary digits of a block's place in its line.
    digits: usize,
    length: u64,
    descending: bool,
}

impl Network {
    fn new(emitter: &Emitter, sort: &Sort, node: &Node, parts: u64) -> Self {
        let shape = emitter.shape(node.operands[0]);
        let others: Vec<usize> = (0..shape.rank()).filter(|&dim| dim != sort.axis).collect();
        let length = shape[sort.axis].div_ceil(parts);
        let digits = parts.ilog2() as usize;
        Network { axis: sort.axis, others, digits, length, descending: sort.descending, shape }
    }

    /// Length of a line of whole blocks.
    fn filled(&self) -> u64 {
        self.length << self.digits
    }

    fn other_sizes(&self) -> impl Iterator<Item = u64> {
        self.others.iter().map(|&dim| self.shape[dim])
    }

    fn rows_shape(&self) -> Shape {
        self.other_sizes().chain([self.filled()]).collect()
    }

    fn rows_layout(&self) -> Layout {
        rows_layout(&self.rows_shape(), self.length)
    }

    /// Lines, a dimension for each digit, and the block.
    fn shape(&self) -> Shape {
        self.other_sizes().chain(std::iter::repeat_n(2, self.digits)).chain([self.length]).collect()
    }

    /// The tiles of [`Network::rows_layout`], in the same order.
    fn layout(&self) -> Layout {
        let shape = self.shape();
        let split = shape.rank() - 1;
        let extents: Vec<u32> = shape[..split].iter().map(|&size| size as u32).collect();
        let spans = (0..split).map(|dim| Span::Part(Part::even(dim, shape[dim], 1)));
        Layout { grid: Grid::packed(0, &extents), region: spans.chain([Span::full(self.length)]).collect() }
    }

    /// From an operand to its rows.
    fn copy_in(&self, src: VarId, dst: VarId) -> Copy {
        let mut region = Block::full(&self.rows_shape());
        let last = self.others.len();
        region.0[last].1 = self.shape[self.axis];
        let place = |dim: usize| self.others.iter().position(|&other| other == dim).unwrap_or(last);
        copy(src, dst, region, (0..self.shape.rank()).map(|dim| (place(dim), 1, 0)))
    }

    /// From sorted rows to a result.
    fn copy_out(&self, src: VarId, dst: VarId) -> Copy {
        let dims = self.others.iter().chain([&self.axis]).map(|&dim| (dim, 1, 0));
        copy(src, dst, Block::full(&self.shape), dims)
    }

    /// To each block that of its partner.
    fn mirror(&self, src: VarId, dst: VarId, stage: &Range<usize>) -> Copy {
        let (shape, first) = (self.shape(), self.others.len());
        let mirrored = first + stage.start..first + stage.end;
        let dims =
            (0..shape.rank()).map(|dim| if mirrored.contains(&dim) { (dim, -1, 1) } else { (dim, 1, 0) });
        copy(src, dst, Block::full(&shape), dims)
    }
}

/// `dims`: for each source dimension the destination's, step and offset.
fn copy(src: VarId, dst: VarId, region: Block, dims: impl Iterator<Item = (usize, i64, i64)>) -> Copy {
    let dims = dims.map(|(dim, step, offset)| SrcIndex::Dst { dim: dim as u8, step, offset }).collect();
    Copy { src, dsts: SmallVec::from_slice(&[dst]), map: CopyMap::Affine { region, dims } }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The network sorts every sequence of zeros and ones, and so everything (Knuth, volume 3, 5.3.4).
    #[test]
    fn sorts_zeros_and_ones() {
        for digits in 1..4 {
            for bits in 0..1u32 << (1 << digits) {
                let mut blocks: Vec<u32> = (0..1 << digits).map(|i| bits >> i & 1).collect();
                for stage in stages(digits) {
                    let before = blocks.clone();
                    let inverted: usize = stage.clone().map(|digit| 1 << (digits - 1 - digit)).sum();
                    for (place, block) in blocks.iter_mut().enumerate() {
                        let (own, other) = (*block, before[place ^ inverted]);
                        let first = place & (1 << (digits - 1 - stage.start)) == 0;
                        *block = if first { own.min(other) } else { own.max(other) };
                    }
                }
                assert!(blocks.is_sorted(), "{digits} {bits:b}");
            }
        }
    }
}
