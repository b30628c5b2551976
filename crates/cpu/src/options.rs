//! What a user chooses when compiling.

use crate::isa::Isa;

/// How exact products of f32 are, as PyTorch names it. All levels sum in f32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MatmulPrecision {
    /// Error no larger than that of plain f32 products.
    #[default]
    Highest,
    /// About 16 mantissa bits are enough. Runs as `Highest`: only AMX would make it faster.
    High,
    /// About 8 mantissa bits are enough. Runs as `Highest`: only AMX would make it faster.
    Medium,
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
