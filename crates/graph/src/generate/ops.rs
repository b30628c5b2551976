//! One random op of a family over the values of a function. What inference refuses is dropped, so the
//! proposals may be bold; they are made so that most are accepted.

use super::{Family, Generator, sizes};
use crate::bind;
use crate::dims;
use crate::module::{Func, Module, ValueId};
use crate::op::{Conv, Distribution, Dot, Op, Pad, ReduceWindow, Scan, Slice, Sort};
use crate::types::{Dim, TensorType, known_dims};
use crate::validate::validate;
use pando_base::{BinaryFn, CompareFn, DType, ReduceFn, UnaryFn};

/// What most programs are made of, and most simplifications are about.
const COMMON: [BinaryFn; 5] = [BinaryFn::Add, BinaryFn::Sub, BinaryFn::Mul, BinaryFn::Div, BinaryFn::Max];

impl Generator<'_, '_> {
    pub(super) fn propose(&mut self, func: &mut Func, family: Family) {
        match family {
            Family::Elementwise => self.elementwise(func),
            Family::Cast => self.cast(func),
            Family::Layout => self.layout(func),
            Family::Indexing => self.indexing(func),
            Family::Dot => self.dot(func),
            Family::Conv => self.conv(func),
            Family::Reduce => self.reduce(func),
            Family::Window => self.window(func),
            Family::Sort => self.sort(func),
            Family::Source => self.source_op(func),
            Family::Control => unreachable!("control flow is made by the caller"),
        }
    }

    fn elementwise(&mut self, func: &mut Func) {
        let x = self.value(func);
        let ty = func.ty(x).clone();
        let (op, operands) = match self.source.below(6) {
            0 => (Op::Unary(*self.source.pick(UnaryFn::ALL)), vec![x]),
            1 => (Op::Compare(*self.source.pick(CompareFn::ALL)), vec![x, self.value_of(func, &ty)]),
            2 => {
                let condition = self.value_of(func, &ty.with_dtype(DType::Bool));
                (Op::Select, vec![condition, x, self.value_of(func, &ty)])
            }
            3 => (Op::Binary(*self.source.pick(BinaryFn::ALL)), self.binary_operands(func, x, &ty)),
            _ => (Op::Binary(*self.source.pick(&COMMON)), self.binary_operands(func, x, &ty)),
        };
        self.insert(func, op, &operands);
    }

    /// Often one that simplifications look for: a splat on either side, or the same value twice.
    fn binary_operands(&mut self, func: &mut Func, x: ValueId, ty: &TensorType) -> Vec<ValueId> {
        match self.source.below(6) {
            0 => vec![x, self.splat(func, ty)],
            1 => vec![self.splat(func, ty), x],
            2 => vec![x, x],
            _ => vec![x, self.value_of(func, ty)],
        }
    }

    fn cast(&mut self, func: &mut Func) {
        let x = self.value(func);
        let dtype = *self.source.pick(&self.options.dtypes);
        let op = if self.source.chance(3) { Op::Bitcast(dtype) } else { Op::Convert(dtype) };
        self.insert(func, op, &[x]);
    }

    fn axis(&mut self, rank: usize) -> usize {
        self.source.below(rank.max(1) as u64) as usize
    }

    fn some_axes(&mut self, rank: usize) -> Vec<usize> {
        (0..rank).filter(|_| self.source.below(2) == 1).collect()
    }

    fn layout(&mut self, func: &mut Func) {
        let x = self.value(func);
        let ty = func.ty(x).clone();
        let mut operands = vec![x];
        let op = match self.source.below(7) {
            0 => self.reshape(&ty),
            1 => Op::Transpose { perm: self.perm(ty.rank()) },
            2 => self.broadcast(&ty),
            3 => Op::Reverse { axes: self.some_axes(ty.rank()) },
            4 => self.slice(&ty),
            5 => {
                operands.push(self.value_of(func, &TensorType::scalar(ty.dtype)));
                self.pad(&ty)
            }
            _ => {
                operands.push(self.value_of(func, &ty));
                Op::Concat { axis: self.axis(ty.rank()) }
            }
        };
        self.insert(func, op, &operands);
    }

    /// Merges two dimensions, or adds one of size 1.
    fn reshape(&mut self, ty: &TensorType) -> Op {
        let mut sizes = sizes(ty);
        let at = self.axis(sizes.len());
        if sizes.len() > 1 && self.source.below(2) == 0 {
            let at = at.min(sizes.len() - 2);
            let merged = sizes[at] * sizes[at + 1];
            sizes.splice(at..at + 2, [merged]);
        } else {
            sizes.insert(at, 1);
        }
        Op::Reshape { dims: known_dims(&sizes) }
    }

    fn perm(&mut self, rank: usize) -> Vec<usize> {
        let mut perm: Vec<usize> = (0..rank).collect();
        for last in (1..rank).rev() {
            perm.swap(last, self.source.below(last as u64 + 1) as usize);
        }
        perm
    }

    /// Inserts a dimension, and stretches those of size 1.
    fn broadcast(&mut self, ty: &TensorType) -> Op {
        let at = self.source.below(ty.rank() as u64 + 1) as usize;
        let size = 1 + self.source.below(3);
        let stretch = 1 + self.source.below(3);
        let mut sizes: Vec<u64> =
            sizes(ty).into_iter().map(|size| if size == 1 { stretch } else { size }).collect();
        sizes.insert(at, size);
        let axes = (0..=ty.rank()).filter(|&axis| axis != at).collect();
        Op::Broadcast { dims: known_dims(&sizes), axes }
    }

    fn slice(&mut self, ty: &TensorType) -> Op {
        let mut slice = Slice { begin: vec![], end: known_dims(&[]), step: vec![] };
        for size in sizes(ty) {
            let begin = self.source.below(size.max(1));
            slice.begin.push(begin);
            slice.end.push(Dim::Known(size - self.source.below(size - begin + 1).min(size - begin)));
            slice.step.push(1 + self.source.below(2));
        }
        Op::Slice(slice)
    }

    fn pad(&mut self, ty: &TensorType) -> Op {
        let edges = |generator: &mut Self| (0..ty.rank()).map(|_| generator.source.range(-1, 2)).collect();
        let (low, high) = (edges(self), edges(self));
        Op::Pad(Pad { low, high, interior: (0..ty.rank()).map(|_| self.source.below(2)).collect() })
    }

    fn indexing(&mut self, func: &mut Func) {
        let data = self.value(func);
        let ty = func.ty(data).clone();
        let Some(rows) = sizes(&ty).first().copied().filter(|&rows| rows > 0) else { return };
        let axis = self.axis(ty.rank());
        let count = 1 + self.source.below(rows + 1);
        let indices_type = TensorType::new(DType::I32, [count]);
        let indices = self.value_of(func, &indices_type);
        if self.source.below(2) == 0 {
            self.insert(func, Op::Gather { axis }, &[data, indices]);
            return;
        }
        let updates_type =
            TensorType { dtype: ty.dtype, dims: dims::replace(&ty.dims, axis, &[count.into()]) };
        let updates = self.value_of(func, &updates_type);
        let combine = if self.source.chance(3) { None } else { Some(*self.source.pick(ReduceFn::ALL)) };
        self.insert(func, Op::Scatter { axis, combine }, &[data, indices, updates]);
    }

    /// One contracted axis, and one batch axis where there is another.
    fn dot(&mut self, func: &mut Func) {
        let lhs = self.value(func);
        let ty = func.ty(lhs).clone();
        if ty.rank() == 0 {
            return;
        }
        let perm = self.perm(ty.rank());
        let mut sizes = vec![1 + self.source.below(3)];
        let mut dot = Dot { contract: vec![(perm[0], 1)], ..Dot::default() };
        sizes.push(sizes_at(&ty, perm[0]));
        if ty.rank() > 1 && self.source.below(2) == 0 {
            dot.batch.push((perm[1], 2));
            sizes.push(sizes_at(&ty, perm[1]));
        }
        if self.source.chance(3) {
            dot.dtype = Some(if ty.dtype.is_float() { DType::F32 } else { DType::I32 });
        }
        let rhs = self.value_of(func, &TensorType { dtype: ty.dtype, dims: known_dims(&sizes) });
        self.insert(func, Op::Dot(dot), &[lhs, rhs]);
    }

    fn conv(&mut self, func: &mut Func) {
        let Some(input) = self.value_where(func, |ty| ty.rank() >= 2 && ty.dtype != DType::Bool) else {
            return;
        };
        let ty = func.ty(input).clone();
        let mut conv = Conv::plain(ty.rank() - 2);
        let channels = sizes_at(&ty, 1);
        conv.groups = if channels > 0 && self.source.chance(3) { channels } else { 1 };
        let mut kernel = vec![conv.groups * (1 + self.source.below(2)), channels / conv.groups];
        for axis in 0..ty.rank() - 2 {
            kernel.push(1 + self.source.below(3));
            conv.strides[axis] = 1 + self.source.below(2);
            conv.padding[axis] = (self.source.range(-1, 2), self.source.range(0, 2));
            conv.input_dilation[axis] = 1 + self.source.below(4) / 3;
            conv.kernel_dilation[axis] = 1 + self.source.below(4) / 3;
        }
        let kernel = self.value_of(func, &TensorType { dtype: ty.dtype, dims: known_dims(&kernel) });
        self.insert(func, Op::Conv(conv), &[input, kernel]);
    }

    fn reduce(&mut self, func: &mut Func) {
        let x = self.value(func);
        let axes = self.some_axes(func.ty(x).rank());
        let op = Op::Reduce { func: *self.source.pick(ReduceFn::ALL), axes };
        self.insert(func, op, &[x]);
    }

    fn window(&mut self, func: &mut Func) {
        let x = self.value(func);
        let rank = func.ty(x).rank();
        let reduce = *self.source.pick(ReduceFn::ALL);
        if self.source.below(2) == 0 {
            let (exclusive, reverse) = (self.source.chance(2), self.source.chance(2));
            let scan = Scan { func: reduce, axis: self.axis(rank), exclusive, reverse };
            self.insert(func, Op::Scan(scan), &[x]);
            return;
        }
        let numbers = |generator: &mut Self, most| -> Vec<u64> {
            (0..rank).map(|_| 1 + generator.source.below(most)).collect()
        };
        let window = ReduceWindow {
            func: reduce,
            window: numbers(self, 3),
            strides: numbers(self, 2),
            padding: (0..rank).map(|_| (self.source.range(-1, 1), self.source.range(0, 2))).collect(),
            dilation: numbers(self, 2),
        };
        self.insert(func, Op::ReduceWindow(window), &[x]);
    }

    fn sort(&mut self, func: &mut Func) {
        let keys = self.value(func);
        let ty = func.ty(keys).clone();
        let mut operands: Vec<ValueId> = vec![keys];
        if self.source.below(2) == 0 {
            operands.push(self.value_of(func, &ty));
        }
        // Unstable sorts with payloads have several right results.
        let sort = Sort { axis: self.axis(ty.rank()), descending: self.source.chance(2), stable: true };
        self.insert(func, Op::Sort(sort), &operands);
    }

    fn source_op(&mut self, func: &mut Func) {
        let TensorType { dtype, dims } = self.ty();
        if self.source.below(2) == 0 {
            let axis = self.axis(dims.len());
            self.insert(func, Op::Iota { dtype, dims, axis }, &[]);
            return;
        }
        let seed = self.value_of(func, &TensorType::new(DType::U32, [2u64]));
        let distribution = *self.source.pick(&[Distribution::Uniform, Distribution::Normal]);
        self.insert(func, Op::Random { distribution, dtype, dims }, &[seed]);
    }
}

fn sizes_at(ty: &TensorType, axis: usize) -> u64 {
    sizes(ty)[axis]
}

/// The module with the first parameter's first size called `N`, if that is valid: where other sizes must
/// be equal to that number, it is not.
pub(super) fn with_named_dim(module: &Module) -> Module {
    let Some(main) = module.main() else { return module.clone() };
    let mut named = module.clone();
    let func = &mut named.funcs[main];
    let first = func.params[0];
    if let Some(dim) = func.values[first].ty.dims.first_mut() {
        *dim = Dim::named("N");
    }
    match bind::infer_again(&named) {
        Ok(named) if validate(&named).is_ok() => named,
        _ => module.clone(),
    }
}
