//! The rule of dot: the gradient of each operand is a dot of the result's gradient and the other operand.

use super::layout::inverse;
use super::{Gradients, Visit};
use crate::builder::Builder;
use crate::module::ValueId;
use crate::op::Dot;
use pando_base::{DType, Result};

pub(super) fn dot(b: &mut Builder, at: &Visit, dot: &Dot) -> Result<Gradients> {
    let sides = Sides { batch: dot.batch.clone(), contract: dot.contract.clone() };
    at.each(|position| {
        let (own, other) = (at.operand(position), at.operand(1 - position));
        let sides = if position == 0 { sides.clone() } else { sides.flipped() };
        let result = sides.gradient(b, at.gradient(), [own, other], position, dot.dtype)?;
        b.convert(result, b.ty(own).dtype)
    })
}

/// The gradient and the other operand in one type in which they can be multiplied: the operand's, as forward; of
/// 8 bits it would be too coarse.
pub(super) fn factors(b: &mut Builder, gradient: ValueId, other: ValueId) -> Result<[ValueId; 2]> {
    match b.ty(other).dtype {
        DType::F8(..) => Ok([gradient, b.convert(other, b.ty(gradient).dtype)?]),
        dtype => Ok([b.convert(gradient, dtype)?, other]),
    }
}

/// A dot as one of its operands sees it: pairs of (own axis, other operand's axis).
#[derive(Clone)]
struct Sides {
    batch: Vec<(usize, usize)>,
    contract: Vec<(usize, usize)>,
}

impl Sides {
    fn flipped(&self) -> Sides {
        let flip = |pairs: &[(usize, usize)]| pairs.iter().map(|&(own, other)| (other, own)).collect();
        Sides { batch: flip(&self.batch), contract: flip(&self.contract) }
    }

    /// `position` is where the own operand stands in the forward dot.
    fn gradient(
        &self,
        b: &mut Builder,
        gradient: ValueId,
        [own, other]: [ValueId; 2],
        position: usize,
        dtype: Option<DType>,
    ) -> Result<ValueId> {
        let forward = Dot { batch: self.batch.clone(), contract: self.contract.clone(), dtype: None };
        let own_free = forward.lhs_free(b.ty(own).rank());
        let other_free = forward.rhs_free(b.ty(other).rank());
        let others_start = self.batch.len() + if position == 0 { own_free.len() } else { 0 };
        // Axes of (gradient, other operand).
        let mut batch: Vec<(usize, usize)> = (0..).zip(self.batch.iter().map(|pair| pair.1)).collect();
        batch.sort_by_key(|&(index, _)| self.batch[index].0);
        let contract: Vec<(usize, usize)> = (others_start..).zip(other_free).collect();
        let mut contracted = self.contract.clone();
        contracted.sort_by_key(|pair| pair.1);
        let contracted: Vec<usize> = contracted.into_iter().map(|pair| pair.0).collect();
        let batched: Vec<usize> = batch.iter().map(|&(index, _)| self.batch[index].0).collect();
        // The operand's axes in the order in which either order of the factors gives them.
        let gradient_first = [batched.as_slice(), &own_free, &contracted].concat();
        let other_first = [batched.as_slice(), &contracted, &own_free].concat();
        let factors = factors(b, gradient, other)?;
        let product = Sides { batch, contract };
        if !gradient_first.is_sorted() && other_first.is_sorted() {
            let Sides { batch, contract } = product.flipped();
            return b.dot(factors[1], factors[0], Dot { batch, contract, dtype });
        }
        let Sides { batch, contract } = product;
        let result = b.dot(factors[0], factors[1], Dot { batch, contract, dtype })?;
        b.transpose(result, &inverse(&gradient_first))
    }
}
