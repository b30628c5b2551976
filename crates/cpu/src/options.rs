//! What a user chooses when compiling.

use crate::isa::{Isa, TileUnit};
use crate::kernel::gemm::{Word, pays, time_share, word_tiles};
use pando_base::Result;

/// How exact products of f32 with weights are, as PyTorch names it. All levels sum in f32. What is less exact is so
/// only where that is faster: [`MatmulPrecision::used`] tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MatmulPrecision {
    /// Error no larger than that of plain f32 products. Where the processor has a unit for tiles, six products of
    /// bf16 may take the place of one: if they are a quarter faster, as measured once in a process.
    #[default]
    Highest,
    /// About 16 mantissa bits are enough: three products of bf16 on a unit for tiles, if they are faster than one of
    /// f32. Runs as `Highest` elsewhere: pairs of bf16 in vectors are at most twice as fast as f32.
    High,
    /// About 8 mantissa bits are enough: weights and what they are multiplied with as bf16, and so both products of
    /// attention. Runs as `Highest`
    /// where the processor has no products of bf16 (AVX-512 BF16, or a unit for tiles).
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

    /// Numbers of bf16 whose sum an f32 is on a unit for tiles.
    pub(crate) fn parts(self) -> usize {
        match self {
            MatmulPrecision::Highest => 3,
            MatmulPrecision::High => 2,
            MatmulPrecision::Medium => 1,
        }
    }

    /// The precision that products with weights have in fact.
    pub fn used(self, isa: Isa, unit: TileUnit) -> MatmulPrecision {
        let on_unit = || pays(self.parts(), time_share(unit.usable(), self.parts()));
        let there = match self {
            MatmulPrecision::Highest => true,
            MatmulPrecision::High => on_unit(),
            MatmulPrecision::Medium => word_tiles(isa, Word::Bf16).is_some() || on_unit(),
        };
        if there { self } else { MatmulPrecision::Highest }
    }
}

#[derive(Clone, Debug)]
pub struct CompileOptions {
    /// Threads that compute, the caller's included. Results do not depend on it.
    pub threads: usize,
    pub matmul_precision: MatmulPrecision,
    /// The instructions to use: never more than [`Isa::detect`] finds.
    pub isa: Isa,
    /// The unit for tiles to use beside them.
    pub tile_unit: TileUnit,
    /// Whether ops are computed together. Off is for tests: the same kernels, one op at a time.
    pub fuse: bool,
    /// Whether floats of 16 bits are f32 between a model's parameters and its results. Models with state never do so.
    pub widen: bool,
}

impl CompileOptions {
    /// With a level of instructions by its name, if one is given. What comes beside the best level, the unit for tiles,
    /// is left out with a lower one, or on request.
    pub fn with_instructions(self, isa: Option<&str>, with_unit: bool) -> Result<CompileOptions> {
        let isa = isa.map_or(Ok(self.isa), Isa::named)?;
        let tile_unit = if with_unit && isa == Isa::detect() { self.tile_unit } else { TileUnit::None };
        Ok(CompileOptions { isa, tile_unit, ..self })
    }
}

impl Default for CompileOptions {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        CompileOptions {
            threads,
            matmul_precision: MatmulPrecision::default(),
            isa: Isa::detect(),
            tile_unit: TileUnit::detect(),
            fuse: true,
            widen: true,
        }
    }
}
