//! Floats of 16 bits as f32 between a model's parameters and its results: steps for f32 are the fast ones, and rounding
//! less often than the model says is within its type's tolerance, as other engines hold it, too. What is seen of a
//! type stays: conversions to it round, bits are its bits, random numbers are its own. Weights keep their type until they
//! are packed.

use super::{FlatNode, FlatType, Flattener, ValueIndex, Work};
use pando_base::{DType, Result};
use pando_graph::{Conv, Dot, Op, TensorType};
use rustc_hash::FxHashMap;

pub(super) struct Widener {
    on: bool,
    /// Values of 16 bits as f32.
    wide: FxHashMap<ValueIndex, ValueIndex>,
}

fn is_half(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16)
}

/// Whether the operand's own rounding is seen: in its bits, and as integers, which may be on the other side of it.
pub(super) fn reads_type(op: &Op) -> bool {
    match op {
        Op::Bitcast(_) => true,
        Op::Convert(to) => to.is_int() || *to == DType::Bool,
        _ => false,
    }
}

/// Whether results must be of the very type that the model says.
pub(super) fn is_exact(work: &Work) -> bool {
    match work {
        Work::Op(Op::Bitcast(_) | Op::Random { .. }) => true,
        Work::Op(Op::Convert(to)) => is_half(*to),
        _ => false,
    }
}

/// Whether elements only change places; of values that lie in 16 bits, which only weights do, this makes weights.
pub(super) fn moves(work: &Work) -> bool {
    matches!(work, Work::Op(Op::Transpose { .. } | Op::Reshape { .. }))
}

impl Widener {
    pub fn new(on: bool) -> Widener {
        Widener { on, wide: FxHashMap::default() }
    }

    pub fn is_on(&self) -> bool {
        self.on
    }

    fn dtype(&self, dtype: DType) -> DType {
        if self.on && is_half(dtype) { DType::F32 } else { dtype }
    }

    /// The same work on wide values.
    pub fn work(&self, mut work: Work) -> Work {
        if let Work::Op(
            Op::Iota { dtype, .. }
            | Op::Dot(Dot { dtype: Some(dtype), .. })
            | Op::Conv(Conv { dtype: Some(dtype), .. }),
        ) = &mut work
        {
            *dtype = self.dtype(*dtype);
        }
        work
    }
}

impl Flattener<'_> {
    /// A value of the type that the model says.
    pub(super) fn exact(&mut self, ty: &TensorType) -> Result<ValueIndex> {
        let sizes = ty.require_shape()?.iter().map(|&size| size as usize).collect();
        self.flat.values.push(FlatType { dtype: ty.dtype, sizes });
        Ok(self.flat.values.len() - 1)
    }

    /// A value of the type that is computed in.
    pub(super) fn value(&mut self, ty: &TensorType) -> Result<ValueIndex> {
        let value = self.exact(ty)?;
        let dtype = &mut self.flat.values[value].dtype;
        *dtype = self.widener.dtype(*dtype);
        Ok(value)
    }

    /// Operands as the work reads them: only weights on the right of products are packed from 16 bits.
    pub(super) fn widened(&mut self, work: &Work, operands: Vec<ValueIndex>) -> Vec<ValueIndex> {
        let is_read = matches!(work, Work::Op(op) if reads_type(op));
        let is_weight = |at: usize| at == 1 && matches!(work, Work::Op(Op::Dot(_)));
        let operands = operands.into_iter().enumerate();
        operands.map(|(at, value)| if is_read || is_weight(at) { value } else { self.wide(value) }).collect()
    }

    pub(super) fn is_half(&self, value: ValueIndex) -> bool {
        self.widener.on && is_half(self.flat.values[value].dtype)
    }

    /// As f32 if it has 16 bits.
    pub(super) fn wide(&mut self, value: ValueIndex) -> ValueIndex {
        let dtype = self.flat.values[value].dtype;
        let to = self.widener.dtype(dtype);
        if to == dtype {
            return value;
        }
        if let Some(&wide) = self.widener.wide.get(&value) {
            return wide;
        }
        let wide = self.converted(value, to);
        self.widener.wide.insert(value, wide);
        wide
    }

    /// Of this type, if it has 16 bits.
    pub(super) fn rounded(&mut self, value: ValueIndex, dtype: DType) -> ValueIndex {
        let is_it = self.flat.values[value].dtype == dtype;
        if is_it || !is_half(dtype) { value } else { self.converted(value, dtype) }
    }

    fn converted(&mut self, value: ValueIndex, dtype: DType) -> ValueIndex {
        let sizes = self.flat.values[value].sizes.clone();
        self.flat.values.push(FlatType { dtype, sizes });
        let result = self.flat.values.len() - 1;
        let work = Work::Op(Op::Convert(dtype));
        self.flat.nodes.push(FlatNode {
            work,
            operands: vec![value],
            results: vec![result],
            name: "".into(),
        });
        result
    }
}
