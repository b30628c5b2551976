//! Operations along one dimension: scans and sorts. Lines stay whole on a tile, or are split over several
//! that work together in stages.

use super::{Method, Planner, receive_cycles, superstep_cycles};
use crate::layouts::without_copies;
use pando_base::DType;
use pando_graph::{Node, Scan, Sort};
use pando_tile::kernel::ScanAttrs;
use pando_tile::{Grid, Kernel, Layout, Part, Span};

pub(crate) fn scan_attrs(scan: &Scan) -> ScanAttrs {
    ScanAttrs {
        func: scan.func,
        axis: scan.axis as u8,
        exclusive: scan.exclusive,
        reverse: scan.reverse,
        start: false,
    }
}

/// Lines split over a power of two of tiles, by a network that merges sorted blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SortPlan {
    /// Tiles a line; 1 keeps lines whole.
    pub parts: u64,
    pub cycles: u64,
}

impl Planner<'_> {
    /// Splitting lines costs a second pass and two more exchanges of one total a block.
    pub(super) fn scan(&mut self, scan: &Scan, node: &Node) -> Method {
        let operand = node.operands[0];
        let (shape, dtype) = (self.shape(operand), self.dtype(operand));
        let home = without_copies(&self.settled(operand), &shape);
        let candidates =
            [home, self.balanced_except(&shape, dtype, &[scan.axis]), self.balanced(&shape, dtype)];
        let best = candidates.into_iter().min_by_key(|layout| self.scan_cycles(scan, layout, node));
        self.set(node, best.expect("there are candidates"));
        Method::Direct
    }

    fn scan_cycles(&self, scan: &Scan, layout: &Layout, node: &Node) -> u64 {
        let operand = node.operands[0];
        let dtype = self.dtype(operand);
        let block = (dtype, &*Self::largest_lens(layout, &self.shape(operand)));
        let pass = self.kernel_cycles(&Kernel::Scan(scan_attrs(scan)), &[block, block]);
        let fetch = self.fetch_cycles(operand, layout);
        let Span::Part(part) = layout.region[scan.axis] else { return fetch + pass };
        let parts = u64::from(layout.grid.axes[part.axis as usize].extent);
        let mut totals = block.1.to_vec();
        totals[scan.axis] = 1;
        let reduce = Kernel::Reduce { func: scan.func, axes: [scan.axis as u8].into_iter().collect() };
        let first = self.kernel_cycles(&reduce, &[block, (dtype, &totals)]);
        totals[scan.axis] = parts;
        let middle = self.kernel_cycles(&Kernel::Scan(scan_attrs(scan)), &[(dtype, totals.as_slice()); 2]);
        let moved = receive_cycles(self.machine, totals.iter().product::<u64>() * dtype.size_bytes(), false);
        fetch + first + middle + pass + moved + 2 * superstep_cycles(self.machine)
    }

    pub(super) fn sort(&mut self, sort: &Sort, node: &Node) -> Method {
        let keys = node.operands[0];
        let (shape, dtype) = (self.shape(keys), self.dtype(keys));
        node.operands.iter().for_each(|&operand| {
            self.settled(operand);
        });
        let home = without_copies(&self.settled(keys), &shape);
        let whole = self.balanced_except(&shape, dtype, &[sort.axis]);
        let mut candidates = vec![whole];
        if matches!(home.region[sort.axis], Span::Fixed { .. }) {
            candidates.push(home);
        }
        let (cycles, layout) = candidates
            .into_iter()
            .map(|layout| (self.lines_cycles(sort, &layout, node), layout))
            .min_by_key(|(cycles, _)| *cycles)
            .expect("there are candidates");
        let mut best = SortPlan { parts: 1, cycles };
        let mut parts = 2;
        // A block is of one line: with more lines than tiles whole lines keep all tiles busy.
        let lines = shape.num_elements() / shape[sort.axis];
        while parts <= (u64::from(self.tiles()) / lines).min(shape[sort.axis]) {
            let cycles = self.network_cycles(sort, parts, node);
            if cycles < best.cycles {
                best = SortPlan { parts, cycles };
            }
            parts *= 2;
        }
        let even = shape[sort.axis].is_multiple_of(best.parts) && sort.axis == shape.rank() - 1;
        for &value in &node.results {
            let spread = match best.parts {
                1 => layout.clone(),
                // Where the blocks end up.
                parts if even => rows_layout(&shape, shape[sort.axis] / parts),
                _ => self.balanced(&shape, self.dtype(value)),
            };
            self.set_value(value, spread);
        }
        Method::Sort(best)
    }

    /// Every tile sorts the lines that it has.
    fn lines_cycles(&self, sort: &Sort, layout: &Layout, node: &Node) -> u64 {
        let lens = Self::largest_lens(layout, &self.shape(node.operands[0]));
        let fetch: u64 = node.operands.iter().map(|&operand| self.fetch_cycles(operand, layout)).sum();
        fetch + self.sort_block(sort.axis, sort.descending, &lens, node)
    }

    fn sort_block(&self, axis: usize, descending: bool, lens: &[u64], node: &Node) -> u64 {
        let (keys, ordered) = ((self.dtype(node.operands[0]), lens), node.operands.len() > 1);
        let axis = axis as u8;
        let operands = if ordered { vec![keys, keys, (DType::I32, lens)] } else { vec![keys, keys] };
        let sort = self.kernel_cycles(&Kernel::Sort { axis, descending, ordered }, &operands);
        let take = |dtype| {
            let block = (dtype, lens);
            self.kernel_cycles(&Kernel::Take { axis }, &[block, (DType::I32, lens), block])
        };
        node.operands[1..].iter().fold(sort, |sum, &payload| sum + take(self.dtype(payload)))
    }

    /// Blocks are sorted, then merged in log2(parts)·(log2(parts)+1)/2 stages.
    fn network_cycles(&self, sort: &Sort, parts: u64, node: &Node) -> u64 {
        let shape = self.shape(node.operands[0]);
        let length = shape[sort.axis].div_ceil(parts);
        let lens = [1, 1, length];
        let (descending, ordered) = (sort.descending, node.operands.len() > 1);
        let keys = (self.dtype(node.operands[0]), &lens[..]);
        let order = (DType::I32, &lens[..]);
        let merged = if ordered { vec![keys, order, keys, order, keys, order, order] } else { vec![keys; 3] };
        let merge = self.kernel_cycles(&Kernel::Merge { side: 1, descending, ordered }, &merged);
        let bytes: u64 = node.operands.iter().map(|&operand| self.dtype(operand).size_bytes()).sum();
        let moved = length * (bytes + if ordered { 4 } else { 0 });
        let steps = u64::from(parts.ilog2());
        let stage = merge + receive_cycles(self.machine, moved, false) + superstep_cycles(self.machine);
        self.sort_block(2, descending, &lens, node) + steps * (steps + 1) / 2 * stage
    }
}

/// Every line of the last dimension over tiles of its own, in blocks of `length`.
pub(crate) fn rows_layout(shape: &[u64], length: u64) -> Layout {
    let last = shape.len() - 1;
    let parts = shape[last].div_ceil(length);
    let extents: Vec<u32> = shape[..last].iter().copied().chain([parts]).map(|size| size as u32).collect();
    let span =
        |(dim, &size): (usize, &u64)| Span::Part(Part::even(dim, size, if dim == last { length } else { 1 }));
    Layout { grid: Grid::packed(0, &extents), region: shape.iter().enumerate().map(span).collect() }
}
