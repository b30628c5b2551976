//! What kernels are told about their operands, and what they answer.

use crate::block::Block;
use pando_base::{DType, Shape, Tensor};
use smallvec::SmallVec;
use std::fmt;

/// How a kernel uses an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    In,
    Out,
}

/// Type and size of the block that one vertex touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperandType<'a> {
    pub dtype: DType,
    /// Length of each dimension of the block.
    pub lens: &'a [u64],
}

impl OperandType<'_> {
    /// Saturates, since plans ask about operands that no tile could hold.
    pub fn num_elements(&self) -> u64 {
        self.lens.iter().fold(1, |product, &len| product.saturating_mul(len))
    }

    pub fn num_bytes(&self) -> u64 {
        self.num_elements().saturating_mul(self.dtype.size_bytes())
    }
}

impl fmt::Display for OperandType<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.dtype, Shape::new(self.lens))
    }
}

/// One operand of a running vertex.
#[derive(Clone, Debug)]
pub struct Arg {
    /// Where the block lies in the variable.
    pub block: Block,
    /// The variable's shape.
    pub shape: SmallVec<[u64; 4]>,
    /// The block's elements, dense; outputs hold what was there before.
    pub data: Tensor,
}

/// Time of a vertex.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VertexCost {
    /// One worker, in that worker's issue slots: with W workers in round robin, a slot every W cycles.
    Worker(u64),
    /// All workers of the tile under a supervisor, in cycles of the tile.
    Supervisor(u64),
}

/// Whether two shapes agree but for dimensions of length 1. Partial results are written into one more
/// dimension, of which each tile has one index, and reduced dimensions may stay: dense blocks look alike.
pub(super) fn same_but_ones(a: &[u64], b: &[u64]) -> bool {
    let long = |lens: &&u64| **lens != 1;
    a.iter().filter(long).eq(b.iter().filter(long))
}
