//! Ops that make values from attributes.
//!
//! constant: (C1) the constant exists.
//! iota: (C1) `axis` is below the rank; (C2) the type is not bool.
//! random: (C1) the seed is `u32[2]`; (C2) a normal distribution is of floats, a uniform one not of bools.

use super::check;
use crate::errors;
use crate::module::{ConstId, Module};
use crate::op::Distribution;
use crate::types::{Dim, Dims, TensorType};
use pando_base::{DType, Result};

pub(super) fn constant(id: ConstId, module: &Module) -> Result<TensorType> {
    let constant = module.consts.get(id);
    constant
        .map(|constant| constant.ty())
        .ok_or_else(|| errors::constraint("constant", "C1", errors::unknown_id("the constant", id)))
}

pub(super) fn iota(dtype: DType, dims: &Dims, axis: usize) -> Result<TensorType> {
    check(axis < dims.len(), "iota", "C1", || format!("axis {axis} of a result of rank {}", dims.len()))?;
    check(dtype != DType::Bool, "iota", "C2", || "counts in numbers, not in bools".into())?;
    Ok(TensorType { dtype, dims: dims.clone() })
}

pub(super) fn random(
    distribution: Distribution,
    dtype: DType,
    dims: &Dims,
    seed: &TensorType,
) -> Result<TensorType> {
    let is_seed = seed.dtype == DType::U32 && seed.dims.as_slice() == [Dim::Known(2)];
    check(is_seed, "random", "C1", || format!("the seed is u32[2], found {seed}"))?;
    let suits = match distribution {
        Distribution::Uniform => dtype != DType::Bool,
        Distribution::Normal => dtype.is_float(),
    };
    check(suits, "random", "C2", || format!("there are no {} elements of {dtype}", distribution.name()))?;
    Ok(TensorType { dtype, dims: dims.clone() })
}
