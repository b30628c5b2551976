//! What a user chooses when compiling.

use crate::isa::Isa;
use crate::kernel::gemm::{Pairs, pair_tiles};

/// How exact products of f32 are, as PyTorch names it. All levels sum in f32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MatmulPrecision {
    /// Error no larger than that of plain f32 products.
    #[default]
    Highest,
    /// About 16 mantissa bits are enough. Runs as `Highest`: three products of bf16 in place of one take longer
    /// than a product of f32 where the processor's pairs of bf16 are twice as fast, and longer still elsewhere.
    High,
    /// About 8 mantissa bits are enough: weights and what they are multiplied with as bf16. Runs as `Highest`
    /// where the processor has no products of bf16 (AVX-512 BF16).
    Medium,
}

impl MatmulPrecision {
    pub const ALL: [MatmulPrecision; 3] =
        [MatmulPrecision::Highest, MatmulPrecision::High, MatmulPrecision::Medium];

    pub fn name(self) -> &'static str {
        match self {
            MatmulPrecision::Highest => "highest",
            MatmulPrecision::High => "high",
            MatmulPrecision::Medium => "medium",
        }
    }

    /// The precision that products with weights have in fact.
    pub fn used(self, isa: Isa) -> MatmulPrecision {
        match self {
            MatmulPrecision::Medium if pair_tiles(isa, Pairs::Bf16).is_some() => MatmulPrecision::Medium,
            _ => MatmulPrecision::Highest,
        }
    }
}

#[derive(Clone, Debug)]
pub struct CompileOptions {
    /// Threads that compute, the caller's included. Results do not depend on it.
    pub threads: usize,
    pub matmul_precision: MatmulPrecision,
    /// The instructions to use: never more than [`Isa::detect`] finds.
    pub isa: Isa,
    /// Whether ops are computed together. Off is for tests: the same kernels, one op at a time.
    pub fuse: bool,
}

impl Default for CompileOptions {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        CompileOptions {
            threads,
            matmul_precision: MatmulPrecision::default(),
            isa: Isa::detect(),
            fuse: true,
        }
    }
}
