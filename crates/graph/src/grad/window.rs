//! Rules of window reductions. A sum's gradient is a sum over windows, too. Others look into each window:
//! composites `max_window.grad`, `min_window.grad` and `prod_window.grad` of (x, gradient), whose body gathers the
//! windows' elements, and which back ends may do in one pass. The attributes are those of the body's
//! `reduce_window`.

use super::layout::{self, extent};
use super::reduce::{self, Group};
use super::{Gradients, Visit};
use crate::builder::Builder;
use crate::builder::is_built_by;
use crate::module::{Func, Module, ValueId};
use crate::op::{Op, Pad, ReduceWindow};
use crate::types::{TensorType, known_dims};
use pando_base::{BinaryFn, CompareFn, DType, ReduceFn, Result, Shape};
use smallvec::smallvec;
use std::ops::Range;

pub(super) fn sum(b: &mut Builder, at: &Visit, window: &ReduceWindow) -> Result<Gradients> {
    let (from, to) = (b.ty(at.operand(0)).require_shape()?, b.ty(at.gradient()).require_shape()?);
    let side_by_side = window.strides == window.window && window.dilation.iter().all(|&step| step == 1);
    let gradient = match side_by_side {
        true => repeated(b, at.gradient(), window, &from, &to),
        false => overlapping(b, at.gradient(), window, &from, &to),
    };
    Ok(smallvec![Some(gradient?)])
}

/// Each element is under one window at most.
fn repeated(
    b: &mut Builder,
    gradient: ValueId,
    window: &ReduceWindow,
    from: &Shape,
    to: &Shape,
) -> Result<ValueId> {
    let sizes: Vec<u64> = to.iter().zip(&window.window).flat_map(|(&size, &window)| [size, window]).collect();
    let axes: Vec<usize> = (0..to.rank()).map(|axis| 2 * axis).collect();
    let split = b.broadcast(gradient, known_dims(&sizes), &axes)?;
    let covered: Vec<u64> = to.iter().zip(&window.window).map(|(size, window)| size * window).collect();
    let joined = b.reshape(split, covered.iter().copied())?;
    let low: Vec<i64> = window.padding.iter().map(|&(low, _)| -low).collect();
    let high = (0..from.rank()).map(|axis| from[axis] as i64 - covered[axis] as i64 - low[axis]).collect();
    let zero = layout::zero(b, b.ty(gradient).dtype);
    b.pad(joined, zero, Pad { low, high, interior: vec![0; from.rank()] })
}

/// Element `i` is under the windows at `(i + low - k · dilation) / stride`: windows of the same size over the
/// gradient with holes between its elements.
fn overlapping(
    b: &mut Builder,
    gradient: ValueId,
    window: &ReduceWindow,
    from: &Shape,
    to: &Shape,
) -> Result<ValueId> {
    let rank = from.rank();
    let padding = |axis: usize| -> (i64, i64) {
        let span = extent(window.window[axis], window.dilation[axis]) as i64;
        let low = span - 1 - window.padding[axis].0;
        (low, from[axis] as i64 + span - 1 - low - extent(to[axis], window.strides[axis]) as i64)
    };
    let interior =
        window.strides.iter().zip(to.iter()).map(|(stride, &size)| if size > 1 { stride - 1 } else { 0 });
    let holes = Pad { low: vec![0; rank], high: vec![0; rank], interior: interior.collect() };
    let zero = layout::zero(b, b.ty(gradient).dtype);
    let spread = b.pad(gradient, zero, holes)?;
    let backward =
        ReduceWindow { strides: vec![1; rank], padding: (0..rank).map(padding).collect(), ..window.clone() };
    b.reduce_window(spread, backward)
}

/// Of a maximum, minimum or product.
pub(super) fn selection(b: &mut Builder, at: &Visit, window: &ReduceWindow) -> Result<Gradients> {
    b.reduce_window_grad(at.operand(0), at.gradient(), window).map(|gradient| smallvec![Some(gradient)])
}

impl Builder {
    /// The gradient of a maximum or minimum over windows, which goes to the first such element of each window, or
    /// of a product.
    pub fn reduce_window_grad(
        &mut self,
        x: ValueId,
        gradient: ValueId,
        window: &ReduceWindow,
    ) -> Result<ValueId> {
        let name = format!("{}_window.grad", window.func);
        self.composite(&name, &format!("{window:?}"), &[x, gradient], |b, args| {
            let all = b.reduce_window(args[0], window.clone())?;
            let windows = Windows::new(b, args[0], window)?;
            let parts = windows.gather(b, args[0])?;
            let group = Group { func: window.func, all, gradient: args[1] };
            let parts = if window.func == ReduceFn::Prod {
                windows.product(b, &group, parts)?
            } else {
                windows.first(b, &group, parts)?
            };
            windows.scatter(b, parts)
        })
    }
}

/// The window of a function that is the gradient of a maximum or minimum of floats over windows, whose meaning is its
/// body.
pub fn extreme_window_gradient(module: &Module, func: &Func) -> Option<ReduceWindow> {
    let names = ["max_window.grad", "min_window.grad"];
    let is_named = func.composite.as_deref().is_some_and(|name| names.contains(&name));
    if !is_named || func.params.len() != 2 || !func.ty(func.params[0]).dtype.is_float() {
        return None;
    }
    let window = func.nodes.values().find_map(|node| match &node.op {
        Op::ReduceWindow(window) => Some(window),
        _ => None,
    })?;
    let built = |b: &mut Builder, x: &[ValueId]| b.reduce_window_grad(x[0], x[1], window).map(drop);
    is_built_by(module, func, built).then(|| window.clone())
}

/// Where the elements of all windows are. The axes that windows move along are taken as one, of the padded
/// operand; around it lie those before and after.
struct Windows<'a> {
    window: &'a ReduceWindow,
    from: TensorType,
    padded: Shape,
    to: Shape,
    axes: Range<usize>,
    /// `i32[window positions · window elements]`
    places: ValueId,
}

impl<'a> Windows<'a> {
    fn new(b: &mut Builder, x: ValueId, window: &'a ReduceWindow) -> Result<Self> {
        let from = b.ty(x).clone();
        let shape = from.require_shape()?;
        let rank = shape.rank();
        let padded = (0..rank)
            .map(|axis| (shape[axis] as i64 + window.padding[axis].0 + window.padding[axis].1) as u64)
            .collect();
        let moves = |axis: &usize| {
            window.window[*axis] > 1 || window.strides[*axis] > 1 || window.padding[*axis] != (0, 0)
        };
        let axes = match ((0..rank).find(moves), (0..rank).rfind(moves)) {
            (Some(first), Some(last)) => first..last + 1,
            _ => 0..0,
        };
        let to = (0..rank).map(|axis| {
            let span = extent(window.window[axis], window.dilation[axis]);
            let padded = (shape[axis] as i64 + window.padding[axis].0 + window.padding[axis].1) as u64;
            (padded - span) / window.strides[axis] + 1
        });
        let mut windows = Windows { window, from, padded, to: to.collect(), axes, places: x };
        windows.places = windows.places(b)?;
        Ok(windows)
    }

    /// Dimensions: window positions, then elements of a window, both over `axes`.
    fn places(&self, b: &mut Builder) -> Result<ValueId> {
        let axes = self.axes.clone();
        let sizes = [&self.to[axes.clone()], &self.window.window[axes.clone()]].concat();
        let ty = TensorType { dtype: DType::I32, dims: known_dims(&sizes) };
        let mut places = b.splat(&ty, 0.0)?;
        let mut stride: u64 = 1;
        for (index, axis) in axes.clone().enumerate().rev() {
            let steps =
                [(index, self.window.strides[axis]), (index + axes.len(), self.window.dilation[axis])];
            for (position, step) in steps {
                let along = b.iota(ty.clone(), position)?;
                let along = b.binary_scalar(BinaryFn::Mul, along, (step * stride) as f64)?;
                places = b.add(places, along)?;
            }
            stride *= self.padded[axis];
        }
        b.reshape(places, [sizes.iter().product::<u64>()])
    }

    fn count(&self) -> [u64; 2] {
        let product = |sizes: &[u64]| sizes.iter().product::<u64>();
        [product(&self.to[self.axes.clone()]), product(&self.window.window[self.axes.clone()])]
    }

    fn around(&self) -> [u64; 2] {
        [&self.padded[..self.axes.start], &self.padded[self.axes.end..]].map(|sizes| sizes.iter().product())
    }

    fn padding(&self) -> Pad {
        let (low, high) = self.window.padding.iter().copied().unzip();
        Pad { low, high, interior: vec![0; self.padded.rank()] }
    }

    /// `[before, window positions, window elements, after]`
    fn gather(&self, b: &mut Builder, x: ValueId) -> Result<ValueId> {
        let neutral = match self.window.func {
            ReduceFn::Max => self.from.dtype.lowest(),
            ReduceFn::Min => self.from.dtype.highest(),
            _ => 1.0,
        };
        let filler = b.scalar(self.from.dtype, neutral);
        let padded = b.pad(x, filler, self.padding())?;
        let ([before, after], [positions, elements]) = (self.around(), self.count());
        let flat = b.reshape(padded, [before, self.padded[self.axes.clone()].iter().product(), after])?;
        let parts = b.gather(flat, self.places, 1)?;
        b.reshape(parts, [before, positions, elements, after])
    }

    /// Adds up what belongs to one element, and cuts off the padding.
    fn scatter(&self, b: &mut Builder, parts: ValueId) -> Result<ValueId> {
        let ([before, after], [positions, elements]) = (self.around(), self.count());
        let parts = b.reshape(parts, [before, positions * elements, after])?;
        let flat = [before, self.padded[self.axes.clone()].iter().product(), after];
        let zeros = b.splat(&TensorType::new(self.from.dtype, flat), 0.0)?;
        let sum = b.scatter(zeros, self.places, parts, 1, Some(ReduceFn::Sum))?;
        let padded = b.reshape(sum, self.padded.iter().copied())?;
        layout::unpad(b, padded, &self.padding(), &self.from.require_shape()?)
    }

    /// One value for each window, repeated for all its elements.
    fn spread(&self, b: &mut Builder, whole: ValueId) -> Result<ValueId> {
        let ([before, after], [positions, elements]) = (self.around(), self.count());
        let whole = b.reshape(whole, [before, positions, after])?;
        b.broadcast(whole, known_dims(&[before, positions, elements, after]), &[0, 1, 3])
    }

    fn first(&self, b: &mut Builder, group: &Group, parts: ValueId) -> Result<ValueId> {
        let all = self.spread(b, group.all)?;
        let gradient = self.spread(b, group.gradient)?;
        let found = b.compare(CompareFn::Eq, parts, all)?;
        let number = b.iota(b.ty(parts).with_dtype(DType::I32), 2)?;
        let none = b.splat_like(number, self.count()[1] as f64)?;
        let candidate = b.select(found, number, none)?;
        let first = b.reduce(ReduceFn::Min, candidate, &[2])?;
        let first = b.broadcast(first, b.ty(number).dims.clone(), &[0, 1, 3])?;
        let is_first = b.compare(CompareFn::Eq, number, first)?;
        let zero = b.splat_like(gradient, 0.0)?;
        b.select(is_first, gradient, zero)
    }

    fn product(&self, b: &mut Builder, group: &Group, parts: ValueId) -> Result<ValueId> {
        let [before, after] = self.around();
        let whole = b.reshape(group.gradient, [before, self.count()[0], after])?;
        let group = Group { gradient: whole, ..*group };
        let spread = |b: &mut Builder, whole: ValueId, _member: usize| self.spread(b, whole);
        let collect =
            |b: &mut Builder, func: ReduceFn, members: [ValueId; 1]| b.reduce(func, members[0], &[2]);
        reduce::members(b, &group, [parts], spread, collect).map(|[parts]| parts)
    }
}
