//! Ops that make elements from their index.

use crate::op::Distribution;
use crate::random;
use pando_base::{DType, Shape, Tensor};

pub(super) fn iota(dtype: DType, shape: Shape, axis: usize) -> Tensor {
    let values = shape.indices().map(|index| index[axis]);
    match dtype.is_float() {
        true => Tensor::from_f64(dtype, shape.clone(), &values.map(|i| i as f64).collect::<Vec<_>>()),
        false => Tensor::from_ints(dtype, shape.clone(), &values.map(i128::from).collect::<Vec<_>>()),
    }
}

/// The seed's first word is the low half. Element `i` depends on the seed and `i` only.
pub(super) fn random(distribution: Distribution, dtype: DType, shape: Shape, seed: &Tensor) -> Tensor {
    let seed = seed.get_int(0) as u64 | (seed.get_int(1) as u64) << 32;
    let count = shape.num_elements();
    if !dtype.is_float() {
        let values: Vec<i128> = (0..count).map(|i| random::bits(seed, i).into()).collect();
        return Tensor::from_ints(dtype, shape, &values);
    }
    let element = |i| match distribution {
        Distribution::Uniform => random::uniform_in(dtype, seed, i),
        Distribution::Normal => random::normal(seed, i),
    };
    Tensor::from_f64(dtype, shape, &(0..count).map(element).collect::<Vec<f64>>())
}
