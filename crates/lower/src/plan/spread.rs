//! Layouts that keep some dimensions whole, and what it costs to bring a value into a layout: how operations
//! that work along a dimension choose between waiting for data and using more tiles.

use super::{Planner, receive_cycles, superstep_cycles, vertex_cycles};
use crate::layouts::{balanced, holds, normalize};
use pando_base::{DType, Shape};
use pando_graph::ValueId;
use pando_tile::{Grid, Kernel, Layout, OperandType, Part, Span};
use smallvec::SmallVec;

/// Dividing what is smaller among tiles saves less than a vertex takes to start: a vector for each of a tile's
/// workers (hardware.md section 2: 6 workers, 8 bytes).
const SMALLEST_SHARE_BYTES: u64 = 48;

impl Planner<'_> {
    /// A balanced partition in which no tile has a part of the dimensions `whole`.
    pub(super) fn balanced_except(&mut self, shape: &Shape, dtype: DType, whole: &[usize]) -> Layout {
        if whole.is_empty() {
            return self.balanced(shape, dtype);
        }
        let mut split = shape.clone();
        whole.iter().for_each(|&dim| split[dim] = 1);
        let line: u64 = whole.iter().map(|&dim| shape[dim]).product();
        let min_bytes = (self.options.min_tile_bytes / line).max(1);
        let mut layout = balanced(&split, dtype, self.tiles(), min_bytes);
        whole.iter().for_each(|&dim| layout.region[dim] = Span::full(shape[dim]));
        layout
    }

    /// Where the result of a product lies whose partial sums several tiles have: each of the product's blocks
    /// divided along its outer dimensions among as many tiles as there are, so that a tile's share comes in one
    /// message from each tile that has a part of it. A balanced partition if that is much more even.
    pub(super) fn shared_out(&mut self, product: &Layout, value: ValueId) -> Layout {
        let (shape, dtype) = (self.shape(value), self.dtype(value));
        let even = self.balanced(&shape, dtype);
        let count = |span: &Span| match span {
            Span::Part(part) => (u64::from(product.grid.axes[part.axis as usize].extent), part.grain),
            Span::Fixed { .. } => (1, 1),
        };
        let mut parts: Vec<(u64, u64)> = product.region.iter().map(count).collect();
        let blocks: u64 = parts.iter().map(|(count, _)| count).product();
        let block_bytes = Self::largest_lens(product, &shape).iter().product::<u64>() * dtype.size_bytes();
        let mut room =
            (u64::from(self.tiles()) / blocks.max(1)).min(block_bytes / SMALLEST_SHARE_BYTES).max(1);
        for (&size, (count, grain)) in shape.iter().zip(&mut parts) {
            let factor = room.min(size.div_ceil(*grain) / *count).max(1);
            *count *= factor;
            room /= factor;
        }
        let extents: Vec<u32> = parts.iter().map(|&(count, _)| count as u32).collect();
        let spans = shape.iter().zip(&parts).enumerate();
        let region =
            spans.map(|(dim, (&size, &(_, grain)))| Span::Part(Part::even(dim, size, grain))).collect();
        let shared = Layout { grid: Grid::packed(0, &extents), region };
        let largest = |layout: &Layout| Self::largest_lens(layout, &shape).iter().product::<u64>();
        if largest(&shared) * 4 <= largest(&even) * 5 { shared } else { even }
    }

    /// Cycles of the exchange that brings a value, whose layout is settled, into another layout; nothing if
    /// it is stored so. What a tile has already it copies. Looks at a few tiles.
    pub(super) fn fetch_cycles(&self, value: ValueId, layout: &Layout) -> u64 {
        let (shape, size) = (self.shape(value), self.dtype(value).size_bytes());
        let home = self.plan.layouts[value].as_ref().expect("the caller settled it");
        let wanted = normalize(layout, &shape);
        if holds(home, &wanted, &shape) {
            return 0;
        }
        let last = wanted.grid.len().saturating_sub(1);
        let cycles = |place: u64| {
            let coordinates = wanted.grid.coordinates().nth(place as usize).expect("below the grid's length");
            let block = wanted.block(&shape, &coordinates);
            let own = home.grid.coordinates_of(wanted.grid.tile(&coordinates));
            let held = own.map_or(0, |own| home.block(&shape, &own).intersect(&block).volume());
            let moved = receive_cycles(self.machine, (block.volume() - held) * size, false);
            moved + held * size / self.machine.chip.issue.memcpy_bytes_per_cycle.max(1)
        };
        let most = [0, last / 2, last].into_iter().map(cycles).max().unwrap_or(0);
        most + superstep_cycles(self.machine)
    }

    /// Cycles of one vertex with dense operands of these types and sizes.
    pub(super) fn kernel_cycles(&self, kernel: &Kernel, operands: &[(DType, &[u64])]) -> u64 {
        let operands: SmallVec<[OperandType; 4]> =
            operands.iter().map(|&(dtype, lens)| OperandType { dtype, lens }).collect();
        vertex_cycles(kernel.cycles(&operands, &self.machine.chip), self.machine.chip.workers)
    }

    /// Sizes of the block at coordinate 0, which is the largest of a partition.
    pub(super) fn largest_lens(layout: &Layout, shape: &[u64]) -> SmallVec<[u64; 4]> {
        let first: SmallVec<[u32; 4]> = SmallVec::from_elem(0, layout.grid.axes.len());
        layout.block(shape, &first).lens()
    }
}
