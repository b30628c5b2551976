//! How sliding windows, and the gradients of their extremes, are split: where the operand lies, so that only the overlap
//! with neighbours moves, or over more tiles.

use super::{Method, Planner};
use crate::layouts::without_copies;
use pando_base::Shape;
use pando_graph::{Func, Node, Op, ReduceWindow};
use pando_tile::kernel::WindowAttrs;
use pando_tile::{Grid, Kernel, Layout, Part, Region, Span};

pub(crate) fn window_kernel(window: &ReduceWindow) -> Kernel {
    Kernel::ReduceWindow { func: window.func, attrs: attrs(window) }
}

pub(crate) fn window_gradient_kernel(window: &ReduceWindow) -> Kernel {
    Kernel::WindowGrad { func: window.func, attrs: attrs(window) }
}

fn attrs(window: &ReduceWindow) -> WindowAttrs {
    WindowAttrs {
        window: window.window.iter().copied().collect(),
        strides: window.strides.iter().copied().collect(),
        padding_low: window.padding.iter().map(|&(low, _)| low).collect(),
        dilation: window.dilation.iter().copied().collect(),
    }
}

/// The window of a composite that is the gradient of an extreme over windows.
pub(super) fn gradient_window(func: &Func) -> Option<&ReduceWindow> {
    func.composite.as_deref().filter(|name| name.ends_with("_window.grad"))?;
    func.nodes.values().find_map(|node| match &node.op {
        Op::ReduceWindow(window) => Some(window),
        _ => None,
    })
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

/// What each tile needs for its part of the gradient: of the operand, and of the result's gradient. Parts are whole
/// strides, so that windows begin in them at the same places.
pub(crate) fn gradient_sources(
    window: &ReduceWindow,
    out: &Layout,
    operand: &[u64],
    gradient: &[u64],
) -> [Layout; 2] {
    let (mut inputs, mut windows) = (Region::new(), Region::new());
    for (dim, &span) in out.region.iter().enumerate() {
        let Span::Part(part) = span else {
            inputs.push(Span::full(operand[dim]));
            windows.push(Span::full(gradient[dim]));
            continue;
        };
        if is_untouched(window, dim) {
            inputs.push(span);
            windows.push(span);
            continue;
        }
        let (stride, padding) = (window.strides[dim] as i64, window.padding[dim].0);
        let reach = ((window.window[dim] - 1) * window.dilation[dim]) as i64;
        let strides = Part {
            total: part.total.div_ceil(window.strides[dim]),
            grain: part.grain / window.strides[dim],
            ..part
        };
        // Window `y` lies over `y · stride - padding` to `y · stride - padding + reach`.
        let (low, high) = (-(reach - padding).div_euclid(stride), (padding - 1).div_euclid(stride) + 2);
        windows.push(Span::Part(Part { lo: low, hi: high, ..strides }));
        let (begin, end) = (low * stride - padding, (high - 1) * stride - padding + reach + 1);
        inputs.push(Span::Part(Part { mul: window.strides[dim], lo: begin, hi: end, ..strides }));
    }
    [inputs, windows].map(|region| Layout { grid: out.grid.clone(), region })
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

    /// As [`Planner::reduce_window`], with the gradient where the operand lies or over more tiles.
    pub(super) fn window_gradient(&mut self, window: &ReduceWindow, node: &Node) -> Method {
        let (operand, gradient, value) = (node.operands[0], node.operands[1], node.results[0]);
        let (shape, dtype) = (self.shape(value), self.dtype(value));
        let home = without_copies(&self.settled(operand), &shape);
        self.settled(gradient);
        let crossed: Vec<usize> = (0..shape.rank()).filter(|&dim| !is_untouched(window, dim)).collect();
        // In strides, which are not cut.
        let step = |dim: usize| if crossed.contains(&dim) { window.strides[dim] } else { 1 };
        let strides: Shape = shape.iter().enumerate().map(|(dim, size)| size.div_ceil(step(dim))).collect();
        let mut candidates = vec![follow(&home, &strides)];
        for split in 0..=crossed.len() {
            candidates.push(self.balanced_except(&strides, dtype, &crossed[split..]));
        }
        let whole = |mut layout: Layout| {
            for (dim, span) in layout.region.iter_mut().enumerate() {
                *span = match *span {
                    Span::Part(part) => {
                        Span::Part(Part::even(part.axis.into(), shape[dim], part.grain * step(dim)))
                    }
                    Span::Fixed { .. } => Span::full(shape[dim]),
                };
            }
            layout
        };
        let best =
            candidates.into_iter().map(whole).min_by_key(|layout| self.gradient_cycles(window, layout, node));
        self.set(node, best.expect("there are candidates"));
        Method::WindowGradient(window.clone())
    }

    fn gradient_cycles(&self, window: &ReduceWindow, layout: &Layout, node: &Node) -> u64 {
        let [x, gradient] = [0, 1].map(|at| node.operands[at]);
        let (x_shape, shape) = (self.shape(x), self.shape(gradient));
        let [inputs, windows] = gradient_sources(window, layout, &x_shape, &shape);
        let dtype = self.dtype(x);
        let lens = [(&inputs, &x_shape), (&windows, &shape), (layout, &x_shape)]
            .map(|(layout, shape)| Self::largest_lens(layout, shape));
        let operands = [(dtype, &*lens[0]), (dtype, &*lens[1]), (dtype, &*lens[2])];
        self.fetch_cycles(x, &inputs)
            + self.fetch_cycles(gradient, &windows)
            + self.kernel_cycles(&window_gradient_kernel(window), &operands)
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
