//! Stochastic rounding as a composite: machines have it as a mode of their conversion.

use super::Builder;
use super::standard::is_built_by;
use crate::errors;
use crate::module::{Func, Module, ValueId};
use crate::op::{Distribution, Op};
use pando_base::{BinaryFn, CompareFn, DType, Result, UnaryFn};

const ROUNDING: &str = "round_stochastically";

impl Builder {
    /// f32 as f16 or bf16: one of the two neighbours, the nearer one more often, so that the mean of many roundings is
    /// the value itself. What the type holds exactly stays. The seed is `u32[2]`.
    pub fn round_stochastically(&mut self, x: ValueId, dtype: DType, seed: ValueId) -> Result<ValueId> {
        let dropped_bits = match dtype {
            DType::F16 => 13,
            DType::BF16 => 16,
            _ => return Err(errors::no_stochastic_rounding(dtype)),
        };
        if self.ty(x).dtype != DType::F32 {
            return Err(errors::no_stochastic_rounding(self.ty(x).dtype));
        }
        self.composite(ROUNDING, &dtype.to_string(), &[x, seed], |b, args| {
            let (x, dims) = (args[0], b.ty(args[0]).dims.clone());
            let noise = b.op(
                Op::Random { distribution: Distribution::Uniform, dtype: DType::U32, dims },
                &[args[1]],
            )?;
            let mut rounded = drop_bits(b, x, noise, dropped_bits)?;
            if dtype == DType::F16 {
                rounded = with_subnormals(b, x, rounded, noise)?;
            }
            b.convert(rounded, dtype)
        })
    }
}

/// f32 with the lowest bits zero: random bits are added below the last one that stays, and what is below it then
/// is cut off. NaNs stay as they are, since theirs may be all in the lowest bits.
fn drop_bits(b: &mut Builder, x: ValueId, noise: ValueId, bits: u32) -> Result<ValueId> {
    let low = (1u32 << bits) - 1;
    let pattern = b.bitcast(x, DType::U32)?;
    let below = b.binary_scalar(BinaryFn::And, noise, low.into())?;
    let raised = b.add(pattern, below)?;
    let cut = b.binary_scalar(BinaryFn::And, raised, (!low).into())?;
    let cut = b.bitcast(cut, DType::F32)?;
    let is_number = b.compare(CompareFn::Eq, x, x)?;
    b.select(is_number, cut, x)
}

/// Below 2^-14 the steps of f16 no longer shrink with the value: they are 2^-24.
fn with_subnormals(b: &mut Builder, x: ValueId, rounded: ValueId, noise: ValueId) -> Result<ValueId> {
    // 13 bits of noise, as above, in the middle of their steps: values that are exact stay so.
    let low = b.binary_scalar(BinaryFn::And, noise, 8191.0)?;
    let low = b.convert(low, DType::F32)?;
    let middle = b.binary_scalar(BinaryFn::Add, low, 0.5)?;
    let fraction = b.binary_scalar(BinaryFn::Mul, middle, 2f64.powi(-13))?;
    let size = b.abs(x)?;
    let steps = b.binary_scalar(BinaryFn::Mul, size, 2f64.powi(24))?;
    let steps = b.add(steps, fraction)?;
    let steps = b.floor(steps)?;
    let steps = b.binary_scalar(BinaryFn::Mul, steps, 2f64.powi(-24))?;
    let sign = b.unary(UnaryFn::Sign, x)?;
    let small = b.mul(steps, sign)?;
    let limit = b.splat_like(x, 2f64.powi(-14))?;
    let is_small = b.compare(CompareFn::Lt, size, limit)?;
    b.select(is_small, small, rounded)
}

/// Whether a function is the composite, whose meaning is its body.
pub fn is_stochastic_rounding(module: &Module, func: &Func) -> bool {
    if func.composite.as_deref() != Some(ROUNDING) || func.params.len() != 2 || func.results.len() != 1 {
        return false;
    }
    let dtype = func.ty(func.results[0]).dtype;
    is_built_by(module, func, |b, x| b.round_stochastically(x[0], dtype, x[1]).map(drop))
}
