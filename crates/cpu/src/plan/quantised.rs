//! Products and convolutions of quantised numbers. Importers subtract zero points in i32 and multiply what is left;
//! here a flat function is rewritten so that bytes are multiplied as such, and so that convolutions are those of f32
//! wherever that is exact.
//!
//! `(x - zero) · w = x · w - zero · sums(w)`, where `sums` are over the contracted axes: constant for constant weights.
//!
//! Before: any flat function. After: one with the same results, bit for bit, whose dots may be of (u8, i32) with a
//! constant right side that fits i8, and whose convolutions may be of f32 with results in i32, operands and products
//! being small enough for the exact sums that these are. Cost: linear.

use super::layout::dims;
use super::range::{is_constant, range};
use crate::constants::Constant;
use crate::flat::{Flat, FlatNode, FlatType, ValueIndex, Work};
use crate::view::Sizes;
use pando_base::{BinaryFn, DType, ReduceFn, Shape, Tensor};
use pando_graph::{Conv, Dot, Op};
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
    },
    /// A convolution in f32; whether its sums are exact in it, too.
    F32 {
        exact: bool,
    },
}

pub fn quantised(flat: Flat) -> Flat {
    let makers = flat.makers();
    let plans: Vec<Plan> = flat.nodes.iter().map(|node| plan(&flat, &makers, node)).collect();
    if plans.iter().all(|plan| matches!(plan, Plan::Keep)) {
        return flat;
    }
    let Flat { values, nodes, params, results } = flat;
    let mut rewriter = Rewriter { new: Flat { values, nodes: Vec::new(), params, results }, name: "".into() };
    for (node, plan) in nodes.into_iter().zip(plans) {
        rewriter.name = node.name.clone();
        match (plan, &node.work) {
            (Plan::Bytes { x, zero }, Work::Op(Op::Dot(dot))) => rewriter.bytes(dot, &node, x, zero),
            (Plan::F32 { exact }, Work::Op(Op::Conv(conv))) => rewriter.conv(conv, &node, exact),
            _ => rewriter.new.nodes.push(node),
        }
    }
    rewriter.new
}

fn plan(flat: &Flat, makers: &[Option<usize>], node: &FlatNode) -> Plan {
    let is_i32 = |value: &ValueIndex| flat.values[*value].dtype == DType::I32;
    if !node.operands.iter().chain(&node.results).all(is_i32) {
        return Plan::Keep;
    }
    let bounds = |operand: usize| range(flat, makers, node.operands[operand]);
    match &node.work {
        Work::Op(Op::Dot(dot)) => {
            let constant = dot.batch.is_empty()
                && is_constant(flat, makers, node.operands[1])
                && !is_constant(flat, makers, node.operands[0]);
            let small = |(low, high): (i64, i64)| low >= i8::MIN.into() && high <= i8::MAX.into();
            match centred(flat, makers, node.operands[0]) {
                Some((x, zero)) if constant && bounds(1).is_some_and(small) => Plan::Bytes { x, zero },
                _ => Plan::Keep,
            }
        }
        Work::Op(Op::Conv(_)) => {
            let magnitude = |operand: usize| bounds(operand).map(|(low, high)| low.abs().max(high.abs()));
            let (Some(x), Some(w)) = (magnitude(0), magnitude(1)) else { return Plan::Keep };
            if x.max(w) > CENTRED {
                return Plan::Keep;
            }
            let terms: usize = flat.values[node.operands[1]].sizes[1..].iter().product();
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
    is_scalar.then_some((x, Some(scalar)))
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

    fn bytes(&mut self, dot: &Dot, node: &FlatNode, x: ValueIndex, zero: Option<ValueIndex>) {
        let (w, result) = (node.operands[1], node.results[0]);
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
        let columns = self.op(Op::Reduce { func: ReduceFn::Sum, axes }, vec![w], DType::I32, &free_sizes);
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
