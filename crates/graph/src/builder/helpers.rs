//! A method per op, so that models read like formulas. Operands broadcast nowhere on their own, but for
//! [`Builder::splat_like`] and the `_scalar` forms.

use super::Builder;
use crate::module::{FuncId, ValueId};
use crate::op::{Conv, Dot, Op, Pad, ReduceWindow, Scan, Slice, Sort};
use crate::types::{Dim, Dims, TensorType};
use pando_base::{BinaryFn, CompareFn, DType, ReduceFn, Result, Tensor, UnaryFn};
use smallvec::SmallVec;

macro_rules! unary {
    ($($name:ident => $func:ident),*) => {
        $(pub fn $name(&mut self, x: ValueId) -> Result<ValueId> { self.unary(UnaryFn::$func, x) })*
    };
}

macro_rules! binary {
    ($($name:ident => $func:ident),*) => {
        $(pub fn $name(&mut self, x: ValueId, y: ValueId) -> Result<ValueId> {
            self.binary(BinaryFn::$func, x, y)
        })*
    };
}

impl Builder {
    unary!(neg => Neg, abs => Abs, exp => Exp, log => Log, sqrt => Sqrt, tanh => Tanh, erf => Erf,
           sin => Sin, cos => Cos, floor => Floor, not => Not);
    binary!(add => Add, sub => Sub, mul => Mul, div => Div, rem => Rem, pow => Pow, max => Max, min => Min,
            and => And, or => Or);

    pub fn unary(&mut self, func: UnaryFn, x: ValueId) -> Result<ValueId> {
        self.op(Op::Unary(func), &[x])
    }

    pub fn binary(&mut self, func: BinaryFn, x: ValueId, y: ValueId) -> Result<ValueId> {
        self.op(Op::Binary(func), &[x, y])
    }

    pub fn compare(&mut self, func: CompareFn, x: ValueId, y: ValueId) -> Result<ValueId> {
        self.op(Op::Compare(func), &[x, y])
    }

    pub fn select(&mut self, condition: ValueId, on_true: ValueId, on_false: ValueId) -> Result<ValueId> {
        self.op(Op::Select, &[condition, on_true, on_false])
    }

    pub fn convert(&mut self, x: ValueId, dtype: DType) -> Result<ValueId> {
        self.op(Op::Convert(dtype), &[x])
    }

    pub fn bitcast(&mut self, x: ValueId, dtype: DType) -> Result<ValueId> {
        self.op(Op::Bitcast(dtype), &[x])
    }

    pub fn scalar(&mut self, dtype: DType, value: f64) -> ValueId {
        self.constant(Tensor::scalar(dtype, value))
    }

    /// A number as a value of any type, named dimensions included.
    pub fn splat(&mut self, ty: &TensorType, value: f64) -> Result<ValueId> {
        let scalar = self.scalar(ty.dtype, value);
        self.broadcast(scalar, ty.dims.clone(), &[])
    }

    /// A number in the type of another value.
    pub fn splat_like(&mut self, x: ValueId, value: f64) -> Result<ValueId> {
        let ty = self.ty(x).clone();
        self.splat(&ty, value)
    }

    pub fn binary_scalar(&mut self, func: BinaryFn, x: ValueId, y: f64) -> Result<ValueId> {
        let y = self.splat_like(x, y)?;
        self.binary(func, x, y)
    }

    pub fn iota(&mut self, ty: TensorType, axis: usize) -> Result<ValueId> {
        self.op(Op::Iota { dtype: ty.dtype, dims: ty.dims, axis }, &[])
    }

    pub fn reshape(&mut self, x: ValueId, dims: impl IntoIterator<Item = impl Into<Dim>>) -> Result<ValueId> {
        self.op(Op::Reshape { dims: dims.into_iter().map(Into::into).collect() }, &[x])
    }

    pub fn transpose(&mut self, x: ValueId, perm: &[usize]) -> Result<ValueId> {
        self.op(Op::Transpose { perm: perm.to_vec() }, &[x])
    }

    /// Operand dimension `i` becomes dimension `axes[i]` of `dims`.
    pub fn broadcast(&mut self, x: ValueId, dims: Dims, axes: &[usize]) -> Result<ValueId> {
        self.op(Op::Broadcast { dims, axes: axes.to_vec() }, &[x])
    }

    /// Aligns the last dimensions, as NumPy does.
    pub fn broadcast_trailing(&mut self, x: ValueId, dims: Dims) -> Result<ValueId> {
        let rank = self.ty(x).rank();
        let first = dims.len().saturating_sub(rank);
        let axes: Vec<usize> = (first..first + rank).collect();
        self.broadcast(x, dims, &axes)
    }

    pub fn slice(&mut self, x: ValueId, slice: Slice) -> Result<ValueId> {
        self.op(Op::Slice(slice), &[x])
    }

    pub fn pad(&mut self, x: ValueId, filler: ValueId, pad: Pad) -> Result<ValueId> {
        self.op(Op::Pad(pad), &[x, filler])
    }

    pub fn concat(&mut self, parts: &[ValueId], axis: usize) -> Result<ValueId> {
        self.op(Op::Concat { axis }, parts)
    }

    pub fn reverse(&mut self, x: ValueId, axes: &[usize]) -> Result<ValueId> {
        self.op(Op::Reverse { axes: axes.to_vec() }, &[x])
    }

    pub fn gather(&mut self, data: ValueId, indices: ValueId, axis: usize) -> Result<ValueId> {
        self.op(Op::Gather { axis }, &[data, indices])
    }

    pub fn scatter(
        &mut self,
        data: ValueId,
        indices: ValueId,
        updates: ValueId,
        axis: usize,
        combine: Option<ReduceFn>,
    ) -> Result<ValueId> {
        self.op(Op::Scatter { axis, combine }, &[data, indices, updates])
    }

    pub fn dot(&mut self, lhs: ValueId, rhs: ValueId, dot: Dot) -> Result<ValueId> {
        self.op(Op::Dot(dot), &[lhs, rhs])
    }

    /// NumPy's `matmul` of values of rank 2 or more with equal leading dimensions.
    pub fn matmul(&mut self, lhs: ValueId, rhs: ValueId) -> Result<ValueId> {
        let rank = self.ty(lhs).rank();
        let batch = (0..rank.saturating_sub(2)).map(|axis| (axis, axis)).collect();
        let contract = vec![(rank.saturating_sub(1), rank.saturating_sub(2))];
        self.dot(lhs, rhs, Dot { batch, contract, dtype: None })
    }

    pub fn conv(&mut self, input: ValueId, kernel: ValueId, conv: Conv) -> Result<ValueId> {
        self.op(Op::Conv(conv), &[input, kernel])
    }

    pub fn reduce(&mut self, func: ReduceFn, x: ValueId, axes: &[usize]) -> Result<ValueId> {
        self.op(Op::Reduce { func, axes: axes.to_vec() }, &[x])
    }

    /// A reduction along the last axis, broadcast back to the operand's dimensions.
    pub fn reduce_last_like(&mut self, func: ReduceFn, x: ValueId) -> Result<ValueId> {
        let dims = self.ty(x).dims.clone();
        let kept: Vec<usize> = (0..dims.len().saturating_sub(1)).collect();
        let reduced = self.reduce(func, x, &[kept.len()])?;
        self.broadcast(reduced, dims, &kept)
    }

    pub fn reduce_window(&mut self, x: ValueId, window: ReduceWindow) -> Result<ValueId> {
        self.op(Op::ReduceWindow(window), &[x])
    }

    pub fn scan(&mut self, x: ValueId, scan: Scan) -> Result<ValueId> {
        self.op(Op::Scan(scan), &[x])
    }

    pub fn sort(&mut self, operands: &[ValueId], sort: Sort) -> Result<SmallVec<[ValueId; 1]>> {
        self.insert(Op::Sort(sort), operands)
    }

    pub fn call(&mut self, func: FuncId, operands: &[ValueId]) -> Result<SmallVec<[ValueId; 1]>> {
        self.insert(Op::Call(func), operands)
    }
}
