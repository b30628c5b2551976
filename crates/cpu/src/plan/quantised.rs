//! Products and convolutions of quantised numbers. Importers subtract zero points in i32 and multiply what is left;
//! here a flat function is rewritten so that bytes are multiplied as such, or convolutions are those of f32 where that
//! is exact.
//!
//! `(x - zero) · w = x · w - zero · sums(w)`, where `sums` are over the contracted axes: constant for constant weights.
//!
//! Before: any flat function. After: one with the same results, bit for bit, whose dots may be of (u8, i8 or i32) with a
//! constant right side of i8, or that fits it; whose convolutions may be of (u32, u32) with results in i32, each word being four
//! channels, u8 of the input and i8 of the kernel; or of f32 with results in i32, operands and products being small
//! enough for exact sums in parts. Cost: linear.

use super::layout::dims;
use super::range::{is_constant, range};
use crate::constants::Constant;
use crate::flat::{Flat, FlatNode, FlatType, ValueIndex, Work};
use crate::view::Sizes;
use pando_base::{BinaryFn, DType, ReduceFn, Shape, Tensor};
use pando_graph::{Conv, Dot, Op, Pad, Slice};
use std::sync::Arc;

/// Integers up to here are exact in f32.
const EXACT: i64 = 1 << 24;
/// Operands up to here: 256 of their products stay exact (see `step/gemm`).
const CENTRED: i64 = 255;

/// What becomes of a node.
enum Plan {
    Keep,
    /// A dot whose left side is bytes less a scalar.
    Bytes {
        x: ValueIndex,
        zero: Option<ValueIndex>,
        w: ValueIndex,
        /// Of w, where they are cheap to make here.
        sums: Option<Tensor>,
    },
    /// A convolution of words of channels.
    Words {
        x: ValueIndex,
        zero: Option<ValueIndex>,
    },
    /// A convolution in f32; whether its sums are exact in it, too.
    F32 {
        exact: bool,
    },
}

/// `has_words`: whether convolutions of words are to be had.
pub fn quantised(flat: Flat, has_words: bool) -> Flat {
    let makers = flat.makers();
    let plans: Vec<Plan> = flat.nodes.iter().map(|node| plan(&flat, &makers, node, has_words)).collect();
    if plans.iter().all(|plan| matches!(plan, Plan::Keep)) {
        return flat;
    }
    let Flat { values, nodes, params, results } = flat;
    let mut rewriter = Rewriter { new: Flat { values, nodes: Vec::new(), params, results }, name: "".into() };
    for (node, plan) in nodes.into_iter().zip(plans) {
        rewriter.name = node.name.clone();
        match (plan, &node.work) {
            (Plan::Bytes { x, zero, w, sums }, Work::Op(Op::Dot(dot))) => {
                rewriter.bytes(dot, &node, (x, zero), (w, sums));
            }
            (Plan::Words { x, zero }, Work::Op(Op::Conv(conv))) => rewriter.words(conv, &node, x, zero),
            (Plan::F32 { exact }, Work::Op(Op::Conv(conv))) => rewriter.conv(conv, &node, exact),
            _ => rewriter.new.nodes.push(node),
        }
    }
    without_unused(rewriter.new)
}

/// Without nodes whose results nobody reads any more.
pub(super) fn without_unused(mut flat: Flat) -> Flat {
    let mut used = vec![false; flat.values.len()];
    flat.results.iter().for_each(|&value| used[value] = true);
    let mut kept = Vec::with_capacity(flat.nodes.len());
    for node in flat.nodes.into_iter().rev() {
        if node.results.is_empty() || node.results.iter().any(|&value| used[value]) {
            node.operands.iter().for_each(|&value| used[value] = true);
            kept.push(node);
        }
    }
    kept.reverse();
    flat.nodes = kept;
    flat
}

fn plan(flat: &Flat, makers: &[Option<usize>], node: &FlatNode, has_words: bool) -> Plan {
    let is_i32 = |value: &ValueIndex| flat.values[*value].dtype == DType::I32;
    if !node.operands.iter().chain(&node.results).all(is_i32) {
        return Plan::Keep;
    }
    let bounds = |operand: usize| range(flat, makers, node.operands[operand]);
    let small = |(low, high): (i64, i64)| low >= i8::MIN.into() && high <= i8::MAX.into();
    match &node.work {
        Work::Op(Op::Dot(dot)) => {
            let constant = dot.batch.is_empty()
                && is_constant(flat, makers, node.operands[1])
                && !is_constant(flat, makers, node.operands[0]);
            match centred(flat, makers, node.operands[0]) {
                Some((x, zero)) if constant && bounds(1).is_some_and(small) => {
                    let bytes = constant_bytes(flat, makers, node.operands[1]);
                    let sums = bytes.as_ref().and_then(|(_, tensor)| sums(dot, tensor));
                    let w = bytes.map_or(node.operands[1], |(w, _)| w);
                    Plan::Bytes { x, zero, w, sums }
                }
                _ => Plan::Keep,
            }
        }
        Work::Op(Op::Conv(conv)) => {
            let w_sizes = &flat.values[node.operands[1]].sizes;
            let whole = w_sizes.len() > 2
                && (w_sizes[1] > 0 && w_sizes[1].is_multiple_of(4)
                    || conv.groups == 1 && (1..4).contains(&w_sizes[1]));
            let suits = has_words && whole && is_constant(flat, makers, node.operands[1]);
            if suits
                && bounds(1).is_some_and(small)
                && let Some((x, zero)) = centred(flat, makers, node.operands[0])
            {
                return Plan::Words { x, zero };
            }
            let magnitude = |operand: usize| bounds(operand).map(|(low, high)| low.abs().max(high.abs()));
            let (Some(x), Some(w)) = (magnitude(0), magnitude(1)) else { return Plan::Keep };
            if x.max(w) > CENTRED {
                return Plan::Keep;
            }
            let terms: usize = w_sizes[1..].iter().product();
            Plan::F32 { exact: x * w * terms as i64 <= EXACT }
        }
        _ => Plan::Keep,
    }
}

/// The bytes, and the scalar that is subtracted from them, that a value of i32 is made of.
fn centred(
    flat: &Flat,
    makers: &[Option<usize>],
    value: ValueIndex,
) -> Option<(ValueIndex, Option<ValueIndex>)> {
    let maker = |value: ValueIndex| makers[value].map(|node| &flat.nodes[node]);
    let bytes = |value: ValueIndex| {
        let node = maker(value).filter(|node| matches!(node.work, Work::Op(Op::Convert(_))))?;
        let x = node.operands[0];
        matches!(flat.values[x].dtype, DType::U8 | DType::I8).then_some(x)
    };
    if let Some(x) = bytes(value) {
        return Some((x, None));
    }
    let node = maker(value).filter(|node| matches!(node.work, Work::Op(Op::Binary(BinaryFn::Sub))))?;
    let x = bytes(node.operands[0])?;
    let zero = maker(node.operands[1]).filter(|node| matches!(node.work, Work::Op(Op::Broadcast { .. })))?;
    let scalar = zero.operands[0];
    let is_scalar = flat.values[scalar].sizes.iter().all(|&size| size == 1);
    let is_nothing = range(flat, makers, scalar) == Some((0, 0));
    is_scalar.then_some((x, Some(scalar).filter(|_| !is_nothing)))
}

/// The constant of i8 that a value is nothing else than, and its elements.
fn constant_bytes(flat: &Flat, makers: &[Option<usize>], value: ValueIndex) -> Option<(ValueIndex, Tensor)> {
    let (w, None) = centred(flat, makers, value)? else { return None };
    match makers[w].map(|node| &flat.nodes[node].work) {
        Some(Work::Constant(constant)) if constant.dtype == DType::I8 => Some((w, constant.held()?)),
        _ => None,
    }
}

/// The sums over the contracted axis, if there is one.
fn sums(dot: &Dot, w: &Tensor) -> Option<Tensor> {
    let [(_, axis)] = dot.contract.as_slice() else { return None };
    let sizes: Vec<u64> = w.shape().to_vec();
    let inner: u64 = sizes[axis + 1..].iter().product();
    let outer: u64 = sizes[..*axis].iter().product();
    let (inner, steps) = (inner as usize, sizes[*axis] as usize);
    let mut sums = vec![0i32; outer as usize * inner];
    for (at, row) in w.bytes().chunks_exact(inner.max(1)).enumerate() {
        let sums = &mut sums[at / steps.max(1) * inner..][..inner];
        sums.iter_mut().zip(row).for_each(|(sum, &byte)| *sum = sum.wrapping_add((byte as i8).into()));
    }
    let mut free = sizes;
    free.remove(*axis);
    let mut tensor = Tensor::zeros(DType::I32, free);
    let bytes = tensor.bytes_mut().chunks_exact_mut(4);
    bytes.zip(&sums).for_each(|(to, sum)| to.copy_from_slice(&sum.to_ne_bytes()));
    Some(tensor)
}

struct Rewriter {
    new: Flat,
    name: Arc<str>,
}

impl Rewriter {
    fn value(&mut self, dtype: DType, sizes: &[usize]) -> ValueIndex {
        self.new.values.push(FlatType { dtype, sizes: Sizes::from_slice(sizes) });
        self.new.values.len() - 1
    }

    fn push(&mut self, work: Work, operands: Vec<ValueIndex>, result: ValueIndex) -> ValueIndex {
        let name = self.name.clone();
        self.new.nodes.push(FlatNode { work, operands, results: vec![result], name });
        result
    }

    /// An op with a result of its own.
    fn op(&mut self, op: Op, operands: Vec<ValueIndex>, dtype: DType, sizes: &[usize]) -> ValueIndex {
        let result = self.value(dtype, sizes);
        self.push(Work::Op(op), operands, result)
    }

    fn sizes(&self, value: ValueIndex) -> Sizes {
        self.new.values[value].sizes.clone()
    }

    fn convert(&mut self, x: ValueIndex, to: DType) -> ValueIndex {
        let sizes = self.sizes(x);
        self.op(Op::Convert(to), vec![x], to, &sizes)
    }

    /// A scalar everywhere.
    fn spread(&mut self, scalar: ValueIndex, sizes: &[usize]) -> ValueIndex {
        let scalar = self.op(Op::Reshape { dims: dims(&[]) }, vec![scalar], DType::I32, &[]);
        self.op(Op::Broadcast { dims: dims(sizes), axes: Vec::new() }, vec![scalar], DType::I32, sizes)
    }

    fn number(&mut self, number: i64) -> ValueIndex {
        let tensor = Tensor::from_ints(DType::I32, Shape::default(), &[number.into()]);
        let value = self.value(DType::I32, &[]);
        self.push(Work::Constant(Constant::new(tensor)), Vec::new(), value)
    }

    fn bytes(
        &mut self,
        dot: &Dot,
        node: &FlatNode,
        (x, zero): (ValueIndex, Option<ValueIndex>),
        (w, columns): (ValueIndex, Option<Tensor>),
    ) {
        let result = node.results[0];
        let sizes = self.sizes(result);
        let (x, zero) = self.unsigned(x, zero);
        let Some(zero) = zero else {
            self.push(Work::Op(Op::Dot(dot.clone())), vec![x, w], result);
            return;
        };
        let sums = self.op(Op::Dot(dot.clone()), vec![x, w], DType::I32, &sizes);
        let w_sizes = self.sizes(w);
        let axes: Vec<usize> = dot.contract.iter().map(|pair| pair.1).collect();
        let free: Vec<usize> = (0..w_sizes.len()).filter(|axis| !axes.contains(axis)).collect();
        let free_sizes: Vec<usize> = free.iter().map(|&axis| w_sizes[axis]).collect();
        let columns = match columns {
            Some(tensor) => {
                let value = self.value(DType::I32, &free_sizes);
                self.push(Work::Constant(Constant::new(tensor)), Vec::new(), value)
            }
            None => {
                let wide = self.convert(w, DType::I32);
                self.op(Op::Reduce { func: ReduceFn::Sum, axes }, vec![wide], DType::I32, &free_sizes)
            }
        };
        let last = (sizes.len() - free.len()..sizes.len()).collect();
        let columns =
            self.op(Op::Broadcast { dims: dims(&sizes), axes: last }, vec![columns], DType::I32, &sizes);
        let zero = self.spread(zero, &sizes);
        let less = self.op(Op::Binary(BinaryFn::Mul), vec![columns, zero], DType::I32, &sizes);
        self.push(Work::Op(Op::Binary(BinaryFn::Sub)), vec![sums, less], result);
    }

    /// As u8: signed bytes, and their zero point, get 128 more.
    fn unsigned(&mut self, x: ValueIndex, zero: Option<ValueIndex>) -> (ValueIndex, Option<ValueIndex>) {
        if self.new.values[x].dtype == DType::U8 {
            return (x, zero);
        }
        let sizes = self.sizes(x);
        let offset = self.number(128);
        let (wide, offsets) = (self.convert(x, DType::I32), self.spread(offset, &sizes));
        let moved = self.op(Op::Binary(BinaryFn::Add), vec![wide, offsets], DType::I32, &sizes);
        let x = self.convert(moved, DType::U8);
        let zero = match zero {
            Some(zero) => {
                let (zero, offset) = (self.spread(zero, &[]), self.spread(offset, &[]));
                self.op(Op::Binary(BinaryFn::Add), vec![zero, offset], DType::I32, &[])
            }
            None => offset,
        };
        (x, Some(zero))
    }

    fn words(&mut self, conv: &Conv, node: &FlatNode, x: ValueIndex, zero: Option<ValueIndex>) {
        let (w, result) = (node.operands[1], node.results[0]);
        let sizes = self.sizes(result);
        let (mut x, zero) = self.unsigned(x, zero);
        let mut conv = conv.clone();
        if let Some(zero) = zero {
            x = self.padded(&mut conv, x, zero);
        }
        // A signed byte is its lowest bits.
        let bytes = self.convert(w, DType::U8);
        let operands = vec![self.words_of(x), self.words_of(bytes)];
        let Some(zero) = zero else {
            self.push(Work::Op(Op::Conv(conv)), operands, result);
            return;
        };
        let sums = self.op(Op::Conv(conv), operands, DType::I32, &sizes);
        let axes: Vec<usize> = (1..sizes.len()).collect();
        let kernels = self.op(Op::Reduce { func: ReduceFn::Sum, axes }, vec![w], DType::I32, &sizes[1..2]);
        let kernels =
            self.op(Op::Broadcast { dims: dims(&sizes), axes: vec![1] }, vec![kernels], DType::I32, &sizes);
        let zero = self.spread(zero, &sizes);
        let less = self.op(Op::Binary(BinaryFn::Mul), vec![kernels, zero], DType::I32, &sizes);
        self.push(Work::Op(Op::Binary(BinaryFn::Sub)), vec![sums, less], result);
    }

    /// With the convolution's padding around it: what is padded is zero once the zero point is subtracted.
    fn padded(&mut self, conv: &mut Conv, x: ValueIndex, zero: ValueIndex) -> ValueIndex {
        let plain = conv.padding.iter().all(|&pair| pair == (0, 0));
        let dense = conv.input_dilation.iter().all(|&step| step == 1);
        if plain && dense {
            return x;
        }
        let mut sizes = self.sizes(x);
        let mut pad = Pad { low: vec![0; 2], high: vec![0; 2], interior: vec![0; 2] };
        for (axis, pair) in conv.padding.iter_mut().enumerate() {
            let (low, high) = std::mem::take(pair);
            let step = std::mem::replace(&mut conv.input_dilation[axis], 1);
            pad.low.push(low);
            pad.high.push(high);
            pad.interior.push(step - 1);
            let dense = (sizes[axis + 2].max(1) as i64 - 1) * step as i64 + i64::from(sizes[axis + 2] > 0);
            sizes[axis + 2] = (dense + low + high).max(0) as usize;
        }
        let zero = self.spread(zero, &[]);
        let filler = self.convert(zero, DType::U8);
        self.op(Op::Pad(pad), vec![x, filler], DType::U8, &sizes)
    }

    /// Four neighbouring channels (axis 1) as one word, the first lowest.
    fn words_of(&mut self, x: ValueIndex) -> ValueIndex {
        let sizes = self.sizes(x);
        let mut to = sizes.clone();
        to[1] = sizes[1].div_ceil(4);
        let mut words = None;
        for byte in 0..sizes[1].min(4) {
            let mut slice =
                Slice { begin: vec![0; sizes.len()], end: dims(&sizes), step: vec![1; sizes.len()] };
            (slice.begin[1], slice.step[1]) = (byte as u64, 4);
            let bytes = self.op(Op::Slice(slice), vec![x], DType::U8, &to);
            let bytes = self.convert(bytes, DType::U32);
            let tensor = Tensor::from_ints(DType::U32, Shape::default(), &[1 << (8 * byte)]);
            let factor = self.value(DType::U32, &[]);
            let factor = self.push(Work::Constant(Constant::new(tensor)), Vec::new(), factor);
            let op = Op::Broadcast { dims: dims(&to), axes: Vec::new() };
            let factor = self.op(op, vec![factor], DType::U32, &to);
            let part = self.op(Op::Binary(BinaryFn::Mul), vec![bytes, factor], DType::U32, &to);
            words = Some(match words {
                Some(words) => self.op(Op::Binary(BinaryFn::Add), vec![words, part], DType::U32, &to),
                None => part,
            });
        }
        words.expect("convolutions have channels")
    }

    fn conv(&mut self, conv: &Conv, node: &FlatNode, exact: bool) {
        let operands = node.operands.iter().map(|&x| self.convert(x, DType::F32)).collect();
        let (op, result) = (Op::Conv(conv.clone()), node.results[0]);
        if exact {
            let sizes = self.sizes(result);
            let sums = self.op(op, operands, DType::F32, &sizes);
            self.push(Work::Op(Op::Convert(DType::I32)), vec![sums], result);
        } else {
            self.push(Work::Op(op), operands, result);
        }
    }
}
