//! Random numbers in programs. The state is one seed, `u32[2]`; every use in a step draws from a seed of its own,
//! derived from the state and the number of the use, and the next step's state is derived, too. So a program
//! writes [`next_seed`] and numbers its uses from 1; nothing depends on the order in which they are computed.

use crate::errors;
use crate::formula::Formula;
use pando_base::{BinaryFn, CompareFn, DType, Result, Shape, Tensor};
use pando_graph::{Builder, Distribution, Op, TensorType, ValueId};

/// The seed of a number, as state holds it.
pub fn seed(number: u64) -> Tensor {
    Tensor::from_ints(DType::U32, [2], &[(number & 0xffff_ffff).into(), (number >> 32).into()])
}

/// The type of seeds.
pub fn seed_type() -> TensorType {
    TensorType::new(DType::U32, [2u64])
}

/// The seed of the next step.
pub fn next_seed(b: &mut Builder, seed: ValueId) -> Result<ValueId> {
    seed_of_use(b, seed, 0)
}

/// The seed of one use of random numbers in a step; uses count from 1.
pub fn seed_of_use(b: &mut Builder, seed: ValueId, number: u32) -> Result<ValueId> {
    let words = Tensor::from_ints(DType::U32, [2], &[number.into(), 0]);
    let words = b.constant(words);
    // Drawn first, so that the uses of seed 0 are not those of seed 1: people choose small seeds.
    let drawn = uniform(b, &seed_type(), seed)?;
    let own = b.binary(BinaryFn::Xor, drawn, words)?;
    uniform(b, &seed_type(), own)
}

/// `[0, 1)` for floats, every value equally likely for integers.
pub fn uniform(b: &mut Builder, ty: &TensorType, seed: ValueId) -> Result<ValueId> {
    let (distribution, dtype, dims) = (Distribution::Uniform, ty.dtype, ty.dims.clone());
    b.op(Op::Random { distribution, dtype, dims }, &[seed])
}

/// Each element is kept with probability `1 - probability` and multiplied by its inverse, or else zero. The mask
/// is a node of the graph, and gradients see the same one.
pub fn dropout(b: &mut Builder, x: ValueId, probability: f64, seed: ValueId) -> Result<ValueId> {
    if !(0.0..=1.0).contains(&probability) {
        return Err(errors::no_probability(probability));
    }
    let ty = b.ty(x).clone();
    if probability == 0.0 {
        return Ok(x);
    }
    let zeros = b.splat(&ty, 0.0)?;
    if probability == 1.0 {
        return Ok(zeros);
    }
    let noise = uniform(b, &ty.with_dtype(DType::F32), seed)?;
    let limit = b.splat_like(noise, probability)?;
    let kept = b.compare(CompareFn::Ge, noise, limit)?;
    let scaled = b.binary_scalar(BinaryFn::Mul, x, 1.0 / (1.0 - probability))?;
    b.select(kept, scaled, zeros)
}

/// f32 as f16 or bf16: one of the two neighbours, the nearer one more often, so that the mean of many roundings is
/// the value itself. What the type holds exactly stays.
pub fn round_stochastically(b: &mut Builder, x: ValueId, dtype: DType, seed: ValueId) -> Result<ValueId> {
    let ty = b.ty(x).clone();
    let dropped_bits = match dtype {
        DType::F16 => 13,
        DType::BF16 => 16,
        _ => return Err(errors::no_stochastic_rounding(dtype)),
    };
    if ty.dtype != DType::F32 {
        return Err(errors::no_stochastic_rounding(ty.dtype));
    }
    let noise = uniform(b, &ty.with_dtype(DType::U32), seed)?;
    let mut rounded = drop_bits(b, x, noise, dropped_bits)?;
    if dtype == DType::F16 {
        rounded = with_subnormals(b, x, rounded, noise)?;
    }
    b.convert(rounded, dtype)
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
    let f = Formula::new(b);
    let [x, rounded, noise] = f.all([x, rounded, noise]);
    // 13 bits of noise, as above, in the middle of their steps: values that are exact stay so.
    let fraction = (noise.and(f.scalar(DType::U32, 8191.0)).to(DType::F32) + 0.5) * 2f64.powi(-13);
    let steps = (x.abs() * 2f64.powi(24) + fraction).then(|b, steps| b.floor(steps));
    let small = steps * 2f64.powi(-24) * x.sign();
    let result = x.abs().lt(2f64.powi(-14)).pick(small, rounded);
    f.value(result)
}

/// A seed as a number, the inverse of [`seed`].
pub fn number(seed: &Tensor) -> Option<u64> {
    let words = seed.as_slice::<u32>().filter(|_| *seed.shape() == Shape::from([2]))?;
    Some(u64::from(words[0]) | u64::from(words[1]) << 32)
}
