//! Layouts that keep some dimensions whole, and what it costs to bring a value into a layout: how operations
//! that work along a dimension choose between waiting for data and using more tiles.

use super::{Planner, receive_cycles, superstep_cycles, vertex_cycles};
use crate::layouts::{balanced, evenly, holds, normalize};
use pando_base::{DType, Shape};
use pando_graph::ValueId;
use pando_tile::{Grid, Kernel, Layout, OperandType, Part, Span};
use smallvec::SmallVec;

/// Dividing what is smaller among tiles saves less than a vertex takes to start: a vector for each of a tile's
/// workers (hardware.md section 2: 6 workers, 8 bytes).
const SMALLEST_SHARE_BYTES: u64 = 48;

/// How blocks may be divided.
pub(super) struct Sharing {
    /// How much larger than that of a balanced partition the largest share may be.
    pub ratio: (u64, u64),
    /// Whether shares may be smaller than the units of the layout.
    pub fine: bool,
    /// Whether the balanced partition does without whole rows.
    pub evenly: bool,
}

/// A dimension in parts.
struct Pieces {
    size: u64,
    count: u64,
    grain: u64,
}

impl Pieces {
    /// Divides each part into up to so many, in whole grains.
    fn divide(&mut self, most: u64) -> u64 {
        let factor = most.min(self.size.div_ceil(self.grain) / self.count).max(1);
        self.count *= factor;
        factor
    }

    /// Divides equal parts into up to so many equal ones, of smaller grains.
    fn divide_finely(&mut self, most: u64, grain: u64) -> u64 {
        if !self.size.is_multiple_of(self.count * grain) || self.grain <= grain {
            return 1;
        }
        let units = self.size / self.count / grain;
        let factor = (1..=most.min(units)).rev().find(|factor| units.is_multiple_of(*factor)).unwrap_or(1);
        if factor > 1 {
            (self.count, self.grain) = (self.count * factor, grain);
        }
        factor
    }
}

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

    /// A partition that divides the blocks of a layout further, along outer dimensions first, among as many tiles as
    /// there are: between the two a tile has one message with each tile that shares a block. So lie sums of which
    /// several tiles have parts, and operands that several tiles use. A balanced partition if that is much more even.
    pub(super) fn shared_out(&mut self, blocks: &Layout, value: ValueId) -> Layout {
        self.shared_out_by(blocks, value, Sharing { ratio: (5, 4), fine: true, evenly: false })
    }

    pub(super) fn shared_out_by(&mut self, blocks: &Layout, value: ValueId, sharing: Sharing) -> Layout {
        let (shape, dtype) = (self.shape(value), self.dtype(value));
        let even = match sharing.evenly {
            true => evenly(&shape, dtype, self.tiles(), self.options.min_tile_bytes),
            false => self.balanced(&shape, dtype),
        };
        let mut split: Vec<Pieces> = shape
            .iter()
            .zip(&blocks.region)
            .map(|(&size, span)| match span {
                Span::Part(part) if part.is_partition() => {
                    let count = u64::from(blocks.grid.axes[part.axis as usize].extent);
                    Pieces { size, count, grain: part.grain }
                }
                _ => Pieces { size, count: 1, grain: 1 },
            })
            .collect();
        let most = self.tiles();
        let count: u64 = split.iter().map(|pieces| pieces.count).product();
        let block_bytes = Self::largest_lens(blocks, &shape).iter().product::<u64>() * dtype.size_bytes();
        let mut room = (u64::from(most) / count.max(1)).min(block_bytes / SMALLEST_SHARE_BYTES).max(1);
        split.iter_mut().for_each(|pieces| room /= pieces.divide(room));
        let access = (8 / dtype.size_bytes()).max(1);
        let last = split.len().saturating_sub(1);
        for (dim, pieces) in split.iter_mut().enumerate().filter(|_| sharing.fine) {
            room /= pieces.divide_finely(room, if dim == last { access } else { 1 });
        }
        let extents: Vec<u32> = split.iter().map(|pieces| pieces.count as u32).collect();
        let spans = split.iter().enumerate();
        let region =
            spans.map(|(dim, pieces)| Span::Part(Part::even(dim, pieces.size, pieces.grain))).collect();
        let shared = Layout { grid: Grid::packed(0, &extents), region };
        let largest = |layout: &Layout| Self::largest_lens(layout, &shape).iter().product::<u64>();
        let (most, of) = sharing.ratio;
        if largest(&shared) * of <= largest(&even) * most { shared } else { even }
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
