//! Which integers need no more than 16 bits: quantised models subtract zero points from 8-bit numbers in i32,
//! and products of such numbers are faster as pairs of i16.

use super::Planner;
use super::groups::is_view;
use crate::flat::{FlatNode, FlatType, ValueIndex, Work};
use crate::kernel::gemm::{Pairs, pair_tiles};
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
            let range = self.range(*value, DEPTH);
            range.is_some_and(|(low, high)| low >= i16::MIN.into() && high <= i16::MAX.into())
        };
        let pairs = pair_tiles(self.options.isa, Pairs::I16).is_some();
        i32 && constant && pairs && node.operands.iter().all(fits)
    }

    /// Bounds of a value's elements, from the types and the small constants it is made of.
    fn range(&self, value: ValueIndex, depth: usize) -> Option<(i64, i64)> {
        match self.flat.values[value].dtype {
            DType::I8 => return Some((i8::MIN.into(), i8::MAX.into())),
            DType::U8 => return Some((0, u8::MAX.into())),
            _ => {}
        }
        let node = self.flat.nodes.get(self.makers[value]?)?;
        let operand = |index: usize| self.range(node.operands[index], depth.checked_sub(1)?);
        match &node.work {
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
}
