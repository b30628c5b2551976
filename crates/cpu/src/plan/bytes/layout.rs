//! Where channels come last, of images and of lines (one spatial axis). Products of bytes make images so; elementwise
//! ops, windows, padding, slices, concatenations and reductions of whole images go on with them, and to everything after
//! this pass they are tensors like any other. Other users get the plain form, transposed once.
//!
//! Signed codes are held as unsigned ones, 128 more, which is what kernels multiply: so a value may exist in four forms.

use super::ByteConv;
use super::chain::{Base, Product, Weights, Zero};
use crate::constants::Constant;
use crate::flat::{Flat, FlatNode, FlatType, ValueIndex, Work};
use crate::plan::layout::dims;
use crate::plan::quantised::without_unused;
use crate::recognise::Composite;
use crate::view::Sizes;
use pando_base::{BinaryFn, DType, ReduceFn, Shape, Tensor};
use pando_graph::{Op, Pad, ReduceWindow, Slice};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// From plain axes, channels second.
fn to_last(rank: usize) -> Sizes {
    [0].into_iter().chain(2..rank).chain([1]).collect()
}

/// And back: also the place of each plain axis.
fn to_plain(rank: usize) -> Sizes {
    [0, rank - 1].into_iter().chain(1..rank - 1).collect()
}

pub fn channels_last(flat: Flat, mut products: FxHashMap<usize, Product>) -> Flat {
    let count = flat.values.len();
    let none = || vec![None; count];
    let mut layout = Layout {
        old: flat.values,
        new: Flat::default(),
        sources: vec![None; count],
        plain: none(),
        last: none(),
        codes: none(),
        last_codes: none(),
        name: "".into(),
    };
    for &param in &flat.params {
        let value = layout.value_like(param);
        layout.plain[param] = Some(value);
        layout.new.params.push(value);
    }
    // Of operands and results of products: their own nodes come before those of their results.
    let sizes_of = |product: &Product| {
        let FlatNode { operands, results, .. } = &flat.nodes[product.base.node];
        let sizes = [operands[0], operands[1], results[0]].map(|value| layout.old[value].sizes.clone());
        (product.base.node, sizes)
    };
    let sizes: FxHashMap<usize, [Sizes; 3]> = products.values().map(sizes_of).collect();
    for (index, node) in flat.nodes.into_iter().enumerate() {
        layout.name = node.name.clone();
        match products.remove(&index) {
            Some(product) => layout.product(&product, &sizes[&product.base.node], node.results[0]),
            None if layout.continues(&node) => {}
            None => layout.as_before(node),
        }
    }
    let results = flat.results.iter().map(|&value| layout.plain(value)).collect();
    without_unused(Flat { results, ..layout.new })
}

struct Layout {
    /// Types of old values.
    old: Vec<FlatType>,
    new: Flat,
    /// What old broadcasts are of, and their axes.
    sources: Vec<Option<(ValueIndex, Vec<usize>)>>,
    /// New values by old ones: as they were; with channels last; as unsigned codes; both.
    plain: Vec<Option<ValueIndex>>,
    last: Vec<Option<ValueIndex>>,
    codes: Vec<Option<ValueIndex>>,
    last_codes: Vec<Option<ValueIndex>>,
    name: Arc<str>,
}

fn last_sizes(sizes: &[usize]) -> Sizes {
    to_last(sizes.len()).iter().map(|&axis| sizes[axis]).collect()
}

impl Layout {
    fn value(&mut self, dtype: DType, sizes: &[usize]) -> ValueIndex {
        self.new.values.push(FlatType { dtype, sizes: Sizes::from_slice(sizes) });
        self.new.values.len() - 1
    }

    fn value_like(&mut self, old: ValueIndex) -> ValueIndex {
        self.new.values.push(self.old[old].clone());
        self.new.values.len() - 1
    }

    fn push(&mut self, work: Work, operands: Vec<ValueIndex>, dtype: DType, sizes: &[usize]) -> ValueIndex {
        let result = self.value(dtype, sizes);
        let name = self.name.clone();
        self.new.nodes.push(FlatNode { work, operands, results: vec![result], name });
        result
    }

    /// An op on one operand that keeps the type.
    fn op(&mut self, op: Op, operand: ValueIndex, sizes: &[usize]) -> ValueIndex {
        let dtype = self.new.values[operand].dtype;
        self.push(Work::Op(op), vec![operand], dtype, sizes)
    }

    fn sizes(&self, new: ValueIndex) -> Sizes {
        self.new.values[new].sizes.clone()
    }

    fn reshape(&mut self, x: ValueIndex, sizes: &[usize]) -> ValueIndex {
        self.op(Op::Reshape { dims: dims(sizes) }, x, sizes)
    }

    fn convert(&mut self, x: ValueIndex, to: DType) -> ValueIndex {
        if self.new.values[x].dtype == to {
            return x;
        }
        let sizes = self.sizes(x);
        self.push(Work::Op(Op::Convert(to)), vec![x], to, &sizes)
    }

    /// The axes in another order; where only ones move, that is another name for the same.
    fn permuted(&mut self, x: ValueIndex, perm: impl FnOnce(usize) -> Sizes) -> ValueIndex {
        let from = self.sizes(x);
        let perm = perm(from.len());
        let to: Sizes = perm.iter().map(|&axis| from[axis]).collect();
        let moving = perm.iter().filter(|&&axis| from[axis] != 1);
        if moving.is_sorted() {
            return self.reshape(x, &to);
        }
        self.op(Op::Transpose { perm: perm.to_vec() }, x, &to)
    }

    fn constant(&mut self, tensor: Tensor) -> ValueIndex {
        let (dtype, sizes) =
            (tensor.dtype(), tensor.shape().iter().map(|&size| size as usize).collect::<Sizes>());
        self.push(Work::Constant(Constant::new(tensor)), Vec::new(), dtype, &sizes)
    }

    /// With a number added, in the type that the value has.
    fn plus(&mut self, x: ValueIndex, number: f64) -> ValueIndex {
        let (dtype, sizes) = (self.new.values[x].dtype, self.sizes(x));
        let number = self.constant(Tensor::from_f64(dtype, Shape::default(), &[number]));
        let spread = self.op(Op::Broadcast { dims: dims(&sizes), axes: Vec::new() }, number, &sizes);
        self.push(Work::Op(Op::Binary(BinaryFn::Add)), vec![x, spread], dtype, &sizes)
    }

    /// Signed codes as unsigned ones, and back.
    fn moved(&mut self, x: ValueIndex, by: f64, to: DType) -> ValueIndex {
        let wide = self.convert(x, DType::I32);
        let moved = self.plus(wide, by);
        self.convert(moved, to)
    }

    fn is_signed(&self, old: ValueIndex) -> bool {
        self.old[old].dtype == DType::I8
    }

    /// A value as it was.
    fn plain(&mut self, value: ValueIndex) -> ValueIndex {
        if let Some(known) = self.plain[value] {
            return known;
        }
        let made = match (self.last[value], self.codes[value]) {
            (Some(last), _) => self.permuted(last, to_plain),
            (None, Some(codes)) => self.moved(codes, -128.0, DType::I8),
            (None, None) => {
                let codes = self.codes(value);
                self.moved(codes, -128.0, DType::I8)
            }
        };
        self.plain[value] = Some(made);
        made
    }

    /// A value with channels last.
    fn last(&mut self, value: ValueIndex) -> ValueIndex {
        if let Some(known) = self.last[value] {
            return known;
        }
        let made = match (self.last_codes[value], self.sources[value].clone()) {
            (Some(codes), _) => self.moved(codes, -128.0, DType::I8),
            (None, Some((source, axes))) => self.spread_last(value, source, &axes),
            (None, None) => {
                let plain = self.plain(value);
                self.permuted(plain, to_last)
            }
        };
        self.last[value] = Some(made);
        made
    }

    /// A broadcast along the axes as they lie now.
    fn spread_last(&mut self, value: ValueIndex, source: ValueIndex, axes: &[usize]) -> ValueIndex {
        let sizes = last_sizes(&self.old[value].sizes);
        let place = to_plain(sizes.len());
        let mut moved: Vec<(usize, usize)> = axes.iter().map(|&axis| place[axis]).zip(0..).collect();
        moved.sort_unstable();
        let (axes, perm): (Vec<usize>, Vec<usize>) = moved.into_iter().unzip();
        let mut x = self.plain(source);
        if !perm.is_sorted() {
            let from = self.sizes(x);
            let to: Sizes = perm.iter().map(|&axis| from[axis]).collect();
            x = self.op(Op::Transpose { perm }, x, &to);
        }
        self.op(Op::Broadcast { dims: dims(&sizes), axes }, x, &sizes)
    }

    /// A value's unsigned codes.
    fn codes(&mut self, value: ValueIndex) -> ValueIndex {
        if !self.is_signed(value) {
            return self.plain(value);
        }
        if let Some(known) = self.codes[value] {
            return known;
        }
        let made = match (self.last_codes[value], self.plain[value]) {
            (Some(codes), _) => self.permuted(codes, to_plain),
            (None, Some(plain)) => self.moved(plain, 128.0, DType::U8),
            (None, None) => {
                let plain = self.plain(value);
                self.moved(plain, 128.0, DType::U8)
            }
        };
        self.codes[value] = Some(made);
        made
    }

    fn last_codes(&mut self, value: ValueIndex) -> ValueIndex {
        if !self.is_signed(value) {
            return self.last(value);
        }
        if let Some(known) = self.last_codes[value] {
            return known;
        }
        let made = match self.last[value] {
            Some(last) => self.moved(last, 128.0, DType::U8),
            None => {
                let codes = self.codes(value);
                self.permuted(codes, to_last)
            }
        };
        self.last_codes[value] = Some(made);
        made
    }

    /// The node on plain values.
    fn as_before(&mut self, node: FlatNode) {
        if let Work::Op(Op::Broadcast { axes, .. }) = &node.work {
            self.sources[node.results[0]] = Some((node.operands[0], axes.clone()));
        }
        if let Some(codes) = self.signed_real(&node, &self.codes) {
            self.plain[node.results[0]] = Some(self.real(codes));
            return;
        }
        let operands = node.operands.iter().map(|&value| self.plain(value)).collect();
        let results: Vec<ValueIndex> = node.results.iter().map(|&value| self.value_like(value)).collect();
        node.results.iter().zip(&results).for_each(|(&old, &new)| self.plain[old] = Some(new));
        self.new.nodes.push(FlatNode { work: node.work, operands, results, name: node.name });
    }

    /// The unsigned form of signed codes that a node converts to f32: 128 less is exact in f32, too.
    fn signed_real(&self, node: &FlatNode, forms: &[Option<ValueIndex>]) -> Option<ValueIndex> {
        let to_f32 = matches!(node.work, Work::Op(Op::Convert(DType::F32)));
        let x = *node.operands.first().filter(|&&x| to_f32 && self.is_signed(x))?;
        forms[x]
    }

    /// What signed codes are in f32.
    fn real(&mut self, codes: ValueIndex) -> ValueIndex {
        let wide = self.convert(codes, DType::F32);
        self.plus(wide, -128.0)
    }

    /// Does the node with channels last if an operand lies so and it can.
    fn continues(&mut self, node: &FlatNode) -> bool {
        let lies = |value: &ValueIndex| self.last[*value].is_some() || self.last_codes[*value].is_some();
        let &[result] = node.results.as_slice() else { return false };
        if !node.operands.iter().any(lies) {
            return false;
        }
        if let Some(codes) = self.signed_real(node, &self.last_codes) {
            self.last[result] = Some(self.real(codes));
            return true;
        }
        let first = node.operands[0];
        let lines = |value: &ValueIndex| {
            node.operands
                .iter()
                .find(|&&operand| lies(&operand))
                .is_some_and(|&operand| self.old[*value].sizes.len() == self.old[operand].sizes.len())
        };
        let images = node.operands.iter().all(lines) && lines(&result);
        match &node.work {
            Work::Composite(composite @ Composite::Activation(_)) if images => {
                self.all_last(node, Work::Composite(*composite));
            }
            Work::Op(Op::Bitcast(_)) => return false,
            Work::Op(op) if images && op.is_elementwise() => self.all_last(node, Work::Op(op.clone())),
            Work::Op(Op::Concat { axis }) if images => {
                let place = to_plain(self.old[result].sizes.len());
                self.picked(node, Op::Concat { axis: place[*axis] });
            }
            Work::Op(Op::ReduceWindow(window)) => self.picked(node, Op::ReduceWindow(window_last(window))),
            Work::Op(Op::Slice(slice)) => self.picked(node, Op::Slice(slice_last(slice))),
            Work::Op(Op::Pad(pad)) => {
                let operands = vec![self.last(first), self.plain(node.operands[1])];
                self.made_last(result, Work::Op(Op::Pad(pad_last(pad))), operands);
            }
            Work::Op(Op::Reduce { func, axes }) if is_spatial(axes, self.old[first].sizes.len()) => {
                let x = self.last(first);
                let op = Op::Reduce { func: *func, axes: (1..axes.len() + 1).collect() };
                let FlatType { dtype, sizes } = self.old[result].clone();
                self.plain[result] = Some(self.push(Work::Op(op), vec![x], dtype, &sizes));
            }
            _ => return false,
        }
        true
    }

    fn all_last(&mut self, node: &FlatNode, work: Work) {
        let operands = node.operands.iter().map(|&value| self.last(value)).collect();
        self.made_last(node.results[0], work, operands);
    }

    fn made_last(&mut self, result: ValueIndex, work: Work, operands: Vec<ValueIndex>) {
        let FlatType { dtype, sizes } = self.old[result].clone();
        self.last[result] = Some(self.push(work, operands, dtype, &last_sizes(&sizes)));
    }

    /// An op that picks elements: of unsigned codes as well as of signed ones, where it knows no least number.
    fn picked(&mut self, node: &FlatNode, op: Op) {
        let result = node.results[0];
        let sums = matches!(&op, Op::ReduceWindow(window) if window.func != ReduceFn::Max);
        if !self.is_signed(result) || sums {
            return self.all_last(node, Work::Op(op));
        }
        let operands = node.operands.iter().map(|&value| self.last_codes(value)).collect();
        let sizes = last_sizes(&self.old[result].sizes);
        self.last_codes[result] = Some(self.push(Work::Op(op), operands, DType::U8, &sizes));
    }

    /// The node of a product.
    fn product(&mut self, product: &Product, [x_sizes, w_sizes, to]: &[Sizes; 3], result: ValueIndex) {
        let base = &product.base;
        let conv = byte_conv(product, x_sizes, w_sizes, to);
        let images = base.conv.is_some();
        let form = |layout: &mut Layout, value: ValueIndex| match images {
            true => layout.last_codes(value),
            false => layout.codes(value),
        };
        let x = form(self, base.x);
        let weights = self.weights(base, w_sizes);
        let zero = self.zero(base);
        let ints: Vec<i128> = product.added.iter().map(|&number| number.into()).collect();
        let columns = vec![ints.len() as u64];
        let added = self.constant(Tensor::from_ints(DType::I32, columns.clone(), &ints));
        let [scale, shift] = [&product.scale, &product.shift].map(|numbers| {
            let numbers: Vec<f64> = numbers.iter().map(|&number| number.into()).collect();
            self.constant(Tensor::from_f64(DType::F32, columns.clone(), &numbers))
        });
        let mut operands = vec![x, weights, zero, added, scale, shift];
        if let Some((_, residual)) = product.residual {
            operands.push(form(self, residual));
        }
        let sizes = if images { last_sizes(&self.old[result].sizes) } else { self.old[result].sizes.clone() };
        let dtype = conv.dtype();
        let made = self.push(Work::Bytes(Box::new(conv)), operands, dtype, &sizes);
        let forms = match (images, self.is_signed(result)) {
            (true, true) => &mut self.last_codes,
            (true, false) => &mut self.last,
            (false, true) => &mut self.codes,
            (false, false) => &mut self.plain,
        };
        forms[result] = Some(made);
    }

    /// As `i8[outputs, inputs, height, width]`.
    fn weights(&mut self, base: &Base, sizes: &[usize]) -> ValueIndex {
        let codes = match base.w {
            Weights::Codes(value) if self.old[value].dtype == DType::U8 => {
                let codes = self.plain(value);
                self.moved(codes, -128.0, DType::I8)
            }
            Weights::Codes(value) => self.plain(value),
            Weights::Wide(value) => {
                let wide = self.plain(value);
                self.convert(wide, DType::I8)
            }
        };
        if base.conv.is_some() {
            return self.reshape(codes, &image(sizes));
        }
        let (inputs, outputs) = (sizes[base.weight_axis], sizes[1 - base.weight_axis]);
        let rows = match base.weight_axis {
            0 => self.op(Op::Transpose { perm: vec![1, 0] }, codes, &[outputs, inputs]),
            _ => codes,
        };
        self.reshape(rows, &[outputs, inputs, 1, 1])
    }

    /// The zero point of the unsigned codes.
    fn zero(&mut self, base: &Base) -> ValueIndex {
        let more = if self.is_signed(base.x) { 128 } else { 0 };
        match base.zero {
            Zero::Number(zero) => {
                let zero = i128::from(zero as i32 + more);
                self.constant(Tensor::from_ints(DType::I32, Shape::default(), &[zero]))
            }
            Zero::Value(value) => {
                let zero = self.plain(value);
                let zero = self.reshape(zero, &[]);
                if more == 0 { zero } else { self.plus(zero, more.into()) }
            }
        }
    }
}

fn byte_conv(product: &Product, x: &[usize], w: &[usize], to: &[usize]) -> ByteConv {
    let base = &product.base;
    let mut made = ByteConv {
        from: [1, w[base.weight_axis.min(w.len() - 1)], 1, 1],
        to: [1, to[to.len() - 1], 1, 1],
        window: [1, 1],
        strides: [1, 1],
        dilation: [1, 1],
        padding: [(0, 0); 2],
        groups: 1,
        low: product.low,
        high: product.high,
        residual: product.residual.map(|(residual, _)| residual),
        output: product.output,
    };
    let Some(conv) = &base.conv else {
        let rows = to[..to.len() - 1].iter().product();
        (made.from[3], made.to[3]) = (rows, rows);
        return made;
    };
    (made.from, made.to) = (image(x), image(to));
    let [_, _, height, width] = image(w);
    (made.window, made.groups) = ([height, width], conv.groups as usize);
    // The axes of an image that a line has.
    let axes = 2 - conv.strides.len()..;
    made.strides[axes.clone()].copy_from_slice(&conv.strides);
    made.dilation[axes.clone()].copy_from_slice(&conv.kernel_dilation);
    made.padding[axes].copy_from_slice(&conv.padding);
    made
}

/// A line is an image of height 1.
fn image(sizes: &[usize]) -> [usize; 4] {
    match *sizes {
        [images, channels, width] => [images, channels, 1, width],
        _ => [sizes[0], sizes[1], sizes[2], sizes[3]],
    }
}

/// Whether these are all axes but the first two.
fn is_spatial(axes: &[usize], rank: usize) -> bool {
    rank > 2 && axes.len() == rank - 2 && (2..rank).all(|axis| axes.contains(&axis))
}

fn permuted<T: Clone>(values: &[T]) -> Vec<T> {
    to_last(values.len()).iter().map(|&axis| values[axis].clone()).collect()
}

fn window_last(window: &ReduceWindow) -> ReduceWindow {
    ReduceWindow {
        window: permuted(&window.window),
        strides: permuted(&window.strides),
        padding: permuted(&window.padding),
        dilation: permuted(&window.dilation),
        ..window.clone()
    }
}

fn slice_last(slice: &Slice) -> Slice {
    Slice {
        begin: permuted(&slice.begin),
        end: permuted(&slice.end).into_iter().collect(),
        step: permuted(&slice.step),
    }
}

fn pad_last(pad: &Pad) -> Pad {
    Pad { low: permuted(&pad.low), high: permuted(&pad.high), interior: permuted(&pad.interior) }
}
