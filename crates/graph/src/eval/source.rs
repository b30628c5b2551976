//! Ops that make elements from their index.

use super::scalar::Domain;
use super::wide::wide;
use crate::op::Distribution;
use crate::random;
use pando_base::{DType, Shape, Tensor};

pub(super) fn iota(domain: Domain, dtype: DType, shape: Shape, axis: usize) -> Tensor {
    let values = shape.indices().map(|index| index[axis]);
    match domain {
        Domain::Int => Tensor::from_ints(dtype, shape.clone(), &values.map(i128::from).collect::<Vec<_>>()),
        _ => floats(domain, dtype, &shape, values.map(|value| value as f64)),
    }
}

fn floats(domain: Domain, dtype: DType, shape: &Shape, values: impl Iterator<Item = f64>) -> Tensor {
    let values: Vec<f64> = values.collect();
    match domain {
        Domain::Wide => wide(shape.clone(), &values),
        _ => Tensor::from_f64(dtype, shape.clone(), &values),
    }
}

/// The seed's first word is the low half. Element `i` depends on the seed and `i` only.
pub(super) fn random(
    domain: Domain,
    distribution: Distribution,
    dtype: DType,
    shape: Shape,
    seed: &Tensor,
) -> Tensor {
    let seed = seed.get_int(0) as u64 | (seed.get_int(1) as u64) << 32;
    let count = shape.num_elements();
    if domain == Domain::Int {
        let values: Vec<i128> = (0..count).map(|i| random::bits(seed, i).into()).collect();
        return Tensor::from_ints(dtype, shape, &values);
    }
    let element = |i| match distribution {
        Distribution::Uniform => random::uniform_in(dtype, seed, i),
        Distribution::Normal => random::normal(seed, i),
    };
    floats(domain, dtype, &shape, (0..count).map(element))
}
