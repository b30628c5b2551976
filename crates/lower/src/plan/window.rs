//! How sliding windows are split: where the operand lies, so that only the overlap with neighbours moves, or
//! over more tiles.

use super::{Method, Planner};
use crate::layouts::without_copies;
use pando_base::Shape;
use pando_graph::{Node, ReduceWindow};
use pando_tile::kernel::WindowAttrs;
use pando_tile::{Grid, Kernel, Layout, Part, Region, Span};

pub(crate) fn window_kernel(window: &ReduceWindow) -> Kernel {
    let attrs = WindowAttrs {
        window: window.window.iter().copied().collect(),
        strides: window.strides.iter().copied().collect(),
        padding_low: window.padding.iter().map(|&(low, _)| low).collect(),
        dilation: window.dilation.iter().copied().collect(),
    };
    Kernel::ReduceWindow { func: window.func, attrs }
}

/// What each tile needs of the operand for its part of the result.
pub(crate) fn window_source(window: &ReduceWindow, out: &Layout, operand: &[u64]) -> Layout {
    let span = |(dim, span): (usize, &Span)| {
        let size = operand[dim];
        if is_untouched(window, dim) {
            return *span;
        }
        let Span::Part(part) = span else { return Span::full(size) };
        let low = -window.padding[dim].0;
        let reach = (window.window[dim] - 1).saturating_mul(window.dilation[dim]).min(size) as i64;
        // What ends beyond the operand is clipped to it anyway.
        Span::Part(Part {
            mul: window.strides[dim],
            lo: low,
            hi: (low + reach + 1).min(size as i64),
            ..*part
        })
    };
    let region: Region = out.region.iter().enumerate().map(span).collect();
    Layout { grid: out.grid.clone(), region }
}

/// Whether a dimension of the result is that of the operand.
fn is_untouched(window: &ReduceWindow, dim: usize) -> bool {
    (window.window[dim], window.strides[dim], window.padding[dim]) == (1, 1, (0, 0))
}

impl Planner<'_> {
    pub(super) fn reduce_window(&mut self, window: &ReduceWindow, node: &Node) -> Method {
        let (operand, value) = (node.operands[0], node.results[0]);
        let (shape, dtype) = (self.shape(value), self.dtype(value));
        let home = without_copies(&self.settled(operand), &self.shape(operand));
        let crossed: Vec<usize> = (0..shape.rank()).filter(|&dim| !is_untouched(window, dim)).collect();
        let mut candidates = vec![follow(&home, &shape)];
        // The outermost crossed dimensions are split first: their overlaps are rows.
        for split in 0..=crossed.len() {
            candidates.push(self.balanced_except(&shape, dtype, &crossed[split..]));
        }
        let best = candidates.into_iter().min_by_key(|layout| self.window_cycles(window, layout, node));
        self.set(node, best.expect("there are candidates"));
        Method::Direct
    }

    fn window_cycles(&self, window: &ReduceWindow, layout: &Layout, node: &Node) -> u64 {
        let (operand, value) = (node.operands[0], node.results[0]);
        let source = window_source(window, layout, &self.shape(operand));
        let dtype = self.dtype(value);
        let lens = Self::largest_lens(layout, &self.shape(value));
        let inputs = Self::largest_lens(&source, &self.shape(operand));
        self.fetch_cycles(operand, &source)
            + self.kernel_cycles(&window_kernel(window), &[(dtype, &inputs), (dtype, &lens)])
    }
}

/// The result split over the operand's tiles as the operand is, as far as it has enough elements.
fn follow(home: &Layout, shape: &Shape) -> Layout {
    let mut grid: Grid = home.grid.clone();
    let span = |(span, &size): (&Span, &u64)| {
        let Span::Part(part) = span else { return Span::full(size) };
        let grain = if part.total == size { part.grain } else { 1 };
        let axis = &mut grid.axes[part.axis as usize];
        axis.extent = axis.extent.min(size.div_ceil(grain).min(u64::from(u32::MAX)) as u32);
        Span::Part(Part::even(part.axis.into(), size, grain))
    };
    let region: Region = home.region.iter().zip(shape.iter()).map(span).collect();
    Layout { grid, region }
}
