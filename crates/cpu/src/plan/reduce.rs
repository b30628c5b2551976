//! Makes steps of reductions, windows, scans, sorts, scatters and recognised composites. Floats of 16 bits are
//! widened to f32 first and rounded at the end.

use super::Planner;
use crate::flat::{FlatNode, FlatType};
use crate::kernel::half;
use crate::kernel::rows::row_loop;
use crate::recognise::Composite;
use crate::step::Kind;
use crate::step::order::Order;
use crate::step::program::{Input, Instr, Program, Slot};
use crate::step::reduce::{Reduction, axes_of};
use crate::step::rows::Rows;
use crate::view::View;
use pando_base::{DType, ReduceFn};
use pando_graph::{ReduceWindow, Scan, Sort};

/// Whether a window is one that is worth visiting element by element.
pub(super) fn is_small(window: &[u64]) -> bool {
    let elements = window.iter().try_fold(1u64, |product, &size| product.checked_mul(size));
    !window.is_empty() && elements.is_some_and(|elements| elements <= 1 << 16)
}

/// Fewer lines do not keep the threads busy, and longer ones do not stay in the cache.
const LEAST_LINES: usize = 64;
const LONGEST_LINE: usize = 64 << 10;

/// Whether a reduction is over whole lines, of which there are many.
fn is_in_lines(axes: &[usize], x: &View) -> bool {
    let rank = x.sizes.len();
    let mut sorted = axes.to_vec();
    sorted.sort_unstable();
    let length: usize = axes.iter().map(|&axis| x.sizes[axis]).product();
    let last = sorted.iter().copied().eq(rank - axes.len()..rank) && !axes.is_empty();
    let lines = x.num_elements().checked_div(length).unwrap_or(0);
    last && lines >= LEAST_LINES && length <= LONGEST_LINE
}

impl Planner<'_> {
    /// From f32 to the result's type.
    fn narrowed(&mut self, view: View, dtype: DType) -> View {
        let Some(kernel) = half::narrow(self.options.isa, dtype) else { return view };
        let program = Program {
            inputs: vec![Input::of(&view)],
            instrs: vec![Instr::Unary(kernel, Slot::Input(0), Slot::Output)],
            registers: 0,
            output_bytes: dtype.size_bytes() as usize,
        };
        let sizes = view.sizes.clone();
        self.emit(Kind::Elementwise(program), vec![view], dtype, &sizes)
    }

    /// Floats of 16 bits as f32.
    fn widened(&mut self, view: View) -> View {
        if view.dtype.is_float() { self.as_f32(view) } else { view }
    }

    fn emit_reduction(&mut self, reduction: Reduction, func: ReduceFn, x: View, ty: &FlatType) -> View {
        let kind = Kind::Reduction(reduction, func);
        let dtype = x.dtype;
        let result = self.emit(kind, vec![x], dtype, &ty.sizes);
        self.narrowed(result, ty.dtype)
    }

    pub(super) fn reduce(
        &mut self,
        index: usize,
        func: ReduceFn,
        axes: &[usize],
        x: View,
        ty: &FlatType,
    ) -> View {
        if axes == [2, 3]
            && let Some(pool) = self.whole_pool(func, &x)
        {
            return self.pool(pool, x, ty);
        }
        let x = self.widened(x);
        if is_in_lines(axes, &x)
            && let Some((program, inputs)) = self.take_elementwise(index, &x)
        {
            let length = axes.iter().map(|&axis| x.sizes[axis]).product();
            let kind = Kind::Reduction(Reduction::Lines { length, program }, func);
            let result = self.emit(kind, inputs, x.dtype, &ty.sizes);
            return self.narrowed(result, ty.dtype);
        }
        self.emit_reduction(axes_of(&x, axes), func, x, ty)
    }

    pub(super) fn reduce_window(&mut self, window: &ReduceWindow, x: View, ty: &FlatType) -> View {
        if let Some(pool) = self.window_pool(window, &x, ty) {
            return self.pool(pool, x, ty);
        }
        let x = self.widened(x);
        let x = self.dense(x);
        // Steps that are never taken may be absurdly large.
        let step = |taken: bool, step: u64| if taken { step as i64 } else { 1 };
        let rank = window.window.len();
        let reduction = Reduction::Window {
            window: window.window.iter().map(|&size| size as usize).collect(),
            strides: (0..rank).map(|axis| step(ty.sizes[axis] > 1, window.strides[axis])).collect(),
            low: window.padding.iter().map(|pair| pair.0).collect(),
            dilation: (0..rank).map(|axis| step(window.window[axis] > 1, window.dilation[axis])).collect(),
        };
        self.emit_reduction(reduction, window.func, x, ty)
    }

    pub(super) fn scan(&mut self, scan: &Scan, x: View, ty: &FlatType) -> View {
        let x = self.widened(x);
        let x = self.dense(x);
        let reduction = Reduction::Scan {
            length: ty.sizes[scan.axis],
            stride: ty.sizes[scan.axis + 1..].iter().product(),
            exclusive: scan.exclusive,
            reverse: scan.reverse,
        };
        self.emit_reduction(reduction, scan.func, x, ty)
    }

    pub(super) fn sort(&mut self, sort: &Sort, node: &FlatNode, operands: Vec<View>) -> Vec<View> {
        let inputs: Vec<View> = operands.into_iter().map(|view| self.dense(view)).collect();
        let sizes = &inputs[0].sizes;
        let order = Order::Sort {
            length: sizes[sort.axis],
            stride: sizes[sort.axis + 1..].iter().product(),
            descending: sort.descending,
        };
        self.emit_several(Kind::Order(order), inputs, node, None)
    }

    pub(super) fn scatter(
        &mut self,
        axis: usize,
        combine: Option<ReduceFn>,
        operands: Vec<View>,
        ty: &FlatType,
    ) -> View {
        let [data, indices, updates]: [View; 3] = operands.try_into().expect("scatter has three operands");
        let [data, updates] =
            [data, updates].map(|view| if combine.is_some() { self.widened(view) } else { view });
        let updates = self.dense(updates);
        let indices = self.dense(indices);
        let order = Order::Scatter {
            outer: ty.sizes[..axis].iter().product(),
            rows: ty.sizes[axis],
            row: ty.sizes[axis + 1..].iter().product(),
            combine,
        };
        let dtype = data.dtype;
        let result = self.emit(Kind::Order(order), vec![data, indices, updates], dtype, &ty.sizes);
        if combine.is_some() { self.narrowed(result, ty.dtype) } else { result }
    }

    pub(super) fn rows(&mut self, composite: Composite, node: &FlatNode) -> View {
        let flat = self.flat;
        let ty = &flat.values[node.results[0]];
        let operands = self.operands(node);
        let inputs: Vec<View> = operands.into_iter().map(|view| self.dense(view)).collect();
        let (epsilon, name) = match composite {
            Composite::Activation(_) => unreachable!("activations are in groups"),
            Composite::Softmax => (0.0, "softmax"),
            Composite::LogSoftmax => (0.0, "log_softmax"),
            Composite::LayerNorm { epsilon } => (epsilon, "layer_norm"),
            Composite::RmsNorm { epsilon } => (epsilon, "rms_norm"),
        };
        let length = *ty.sizes.last().expect("composites are recognised from rank 1 on");
        let rows = Rows { kernel: row_loop(self.options.isa, composite), length, epsilon, name };
        self.emit(Kind::Rows(rows), inputs, ty.dtype, &ty.sizes)
    }
}
