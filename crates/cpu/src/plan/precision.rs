//! Which tiles multiply two matrices: the words their types and the precision asked for allow, on the unit that is
//! fastest. Only products with one constant right side, which is packed while planning, have a choice.

use super::Planner;
use super::product::is_summed_in_f32;
use crate::kernel::gemm::{
    Tiles, Word, bf16_tiles, byte_tiles, bytes_pay, f16_tiles, is_tame, pays, time_share, word_tiles,
};
use crate::options::MatmulPrecision;
use crate::view::View;
use pando_base::{DType, Tensor};

/// Fewer rows leave a unit for tiles idle: as many weights are read for them as f32 has, or more.
const ROWS_FOR_PARTS: usize = 16;
/// Shorter sums are more exact in f32, where each step rounds once, than where each part does.
pub(super) const STEPS_FOR_PARTS: usize = 64;

impl Planner<'_> {
    /// Tiles over words for a product with a packed right side; `None`: those of f32.
    pub(super) fn word_tiles(&self, [lhs, rhs]: [&View; 2], [m, k]: [usize; 2]) -> Option<&'static Tiles> {
        let (isa, unit) = (self.options.isa, self.options.tile_unit.usable());
        let on_unit = |parts| pays(parts, time_share(unit, parts)).then(|| bf16_tiles(unit, parts)).flatten();
        let precision = self.options.matmul_precision;
        match (lhs.dtype, rhs.dtype) {
            (DType::I32, DType::I32) => word_tiles(isa, Word::I16),
            (DType::U8, DType::I8 | DType::I32) => {
                let on_unit = byte_tiles(unit).filter(|_| bytes_pay(unit));
                on_unit.or(word_tiles(isa, Word::I8)).or(word_tiles(isa, Word::I16))
            }
            (_, DType::F16) => f16_tiles(isa),
            // Products of two bf16 are exact; a model's bf16 that is f32 between steps is rounded as it is packed.
            (DType::BF16 | DType::F32, DType::BF16) => self.bf16_tiles(),
            (DType::F32, rhs) if is_summed_in_f32(rhs) && precision == MatmulPrecision::Medium => {
                self.bf16_tiles()
            }
            (DType::F32, DType::F32) if m >= ROWS_FOR_PARTS && k >= STEPS_FOR_PARTS => {
                on_unit(precision.parts()).filter(|_| self.is_tame(rhs))
            }
            _ => None,
        }
    }

    /// Tiles over pairs of bf16, where they are faster than f32.
    pub(super) fn bf16_tiles(&self) -> Option<&'static Tiles> {
        let unit = self.options.tile_unit.usable();
        let on_unit = pays(1, time_share(unit, 1)).then(|| bf16_tiles(unit, 1)).flatten();
        on_unit.or(word_tiles(self.options.isa, Word::Bf16))
    }

    /// Whether a view is of a constant whose numbers sums of bf16 can hold.
    pub(super) fn is_tame(&self, view: &View) -> bool {
        let constant = self.buffers[view.buffer].constant.as_ref();
        constant.is_some_and(|(constant, _)| all_tame(&constant.tensor()))
    }
}

fn all_tame(tensor: &Tensor) -> bool {
    let f32s = |bytes: &[u8]| {
        let numbers = bytes.chunks_exact(4).map(|x| f32::from_le_bytes([x[0], x[1], x[2], x[3]]));
        numbers.fold(true, |tame, x| tame & is_tame(x))
    };
    // In parts without branches, which are vectorised.
    tensor.dtype() == DType::F32 && tensor.bytes().chunks(1 << 14).all(f32s)
}
