//! Random numbers in programs. The state is one seed, `u32[2]`; every use in a step draws from a seed of its own,
//! derived from the state and the number of the use, and the next step's state is derived, too. So a program
//! writes [`next_seed`] and numbers its uses from 1; nothing depends on the order in which they are computed.

use crate::errors;
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

/// See [`Builder::round_stochastically`].
pub fn round_stochastically(b: &mut Builder, x: ValueId, dtype: DType, seed: ValueId) -> Result<ValueId> {
    b.round_stochastically(x, dtype, seed)
}

/// A seed as a number, the inverse of [`seed`].
pub fn number(seed: &Tensor) -> Option<u64> {
    let words = seed.as_slice::<u32>().filter(|_| *seed.shape() == Shape::from([2]))?;
    Some(u64::from(words[0]) | u64::from(words[1]) << 32)
}
