//! Which integers are small: quantised models subtract zero points from 8-bit numbers in i32, and products of fewer
//! bits are faster.

use super::Planner;
use super::groups::is_view;
use crate::flat::{Flat, FlatNode, FlatType, ValueIndex, Work};
use crate::kernel::gemm::{Word, word_tiles};
use crate::view::View;
use pando_base::{BinaryFn, DType};
use pando_graph::{Dot, Op};

/// Ops looked through.
const DEPTH: usize = 6;

impl Planner<'_> {
    /// Whether a dot of i32 has a constant right side, one matrix for all, and operands of 16 bits.
    pub(super) fn fits_pairs(&self, dot: &Dot, node: &FlatNode, operands: &[View], ty: &FlatType) -> bool {
        let i32 = operands.iter().all(|view| view.dtype == DType::I32) && ty.dtype == DType::I32;
        let constant = self.is_const(&operands[1]) && !self.is_const(&operands[0]) && dot.batch.is_empty();
        let fits = |value: &ValueIndex| {
            let range = range(self.flat, &self.makers, *value);
            range.is_some_and(|(low, high)| low >= i16::MIN.into() && high <= i16::MAX.into())
        };
        let pairs = word_tiles(self.options.isa, Word::I16).is_some();
        i32 && constant && pairs && node.operands.iter().all(fits)
    }
}

/// Bounds of an integer value's elements, from the types and the small constants it is made of.
pub(super) fn range(flat: &Flat, makers: &[Option<usize>], value: ValueIndex) -> Option<(i64, i64)> {
    range_to(flat, makers, value, DEPTH)
}

fn range_to(flat: &Flat, makers: &[Option<usize>], value: ValueIndex, depth: usize) -> Option<(i64, i64)> {
    match flat.values[value].dtype {
        DType::I8 => return Some((i8::MIN.into(), i8::MAX.into())),
        DType::U8 => return Some((0, u8::MAX.into())),
        _ => {}
    }
    let node = flat.nodes.get(makers[value]?)?;
    let operand = |index: usize| range_to(flat, makers, node.operands[index], depth.checked_sub(1)?);
    match &node.work {
        Work::Op(Op::Convert(_)) if !flat.values[node.operands[0]].dtype.is_int() => None,
        Work::Op(Op::Convert(_) | Op::Broadcast { .. } | Op::Slice(_)) => operand(0),
        _ if is_view(node) => operand(0),
        Work::Op(Op::Binary(BinaryFn::Sub)) => {
            let (a, b) = (operand(0)?, operand(1)?);
            Some((a.0 - b.1, a.1 - b.0))
        }
        Work::Constant(constant) if !constant.is_large() => {
            let tensor = constant.held().filter(|tensor| tensor.dtype().is_int())?;
            let elements = (0..tensor.num_elements() as usize).map(|at| tensor.get_int(at) as i64);
            Some((elements.clone().min()?, elements.max()?))
        }
        _ => None,
    }
}

/// Whether a value is made of constants alone, by few ops.
pub(super) fn is_constant(flat: &Flat, makers: &[Option<usize>], value: ValueIndex) -> bool {
    is_constant_to(flat, makers, value, DEPTH)
}

fn is_constant_to(flat: &Flat, makers: &[Option<usize>], value: ValueIndex, depth: usize) -> bool {
    let Some(node) = makers[value].map(|node| &flat.nodes[node]) else { return false };
    let of_constants = || {
        let mut operands = node.operands.iter();
        depth > 0 && operands.all(|&operand| is_constant_to(flat, makers, operand, depth - 1))
    };
    match &node.work {
        Work::Constant(_) => true,
        Work::Op(op) => {
            op.is_elementwise() && of_constants()
                || is_view(node) && of_constants()
                || matches!(op, Op::Broadcast { .. }) && of_constants()
        }
        _ => false,
    }
}
