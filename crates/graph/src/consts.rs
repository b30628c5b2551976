//! Constants of a module: written out, or a rule that makes them (large weights of a model that is only
//! planned need no memory).

use crate::random;
use crate::types::{TensorType, known_dims};
use pando_base::{DType, Shape, Tensor};

#[derive(Clone, Debug, PartialEq)]
pub struct Const {
    /// Unique in the module.
    pub name: String,
    pub dtype: DType,
    pub shape: Shape,
    pub data: ConstData,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ConstData {
    /// Has the constant's type and shape.
    Dense(Tensor),
    /// Every element, rounded to the type.
    Splat(f64),
    Normal {
        seed: u64,
        mean: f64,
        std: f64,
    },
    /// `[low, high)` before rounding to the type.
    Uniform {
        seed: u64,
        low: f64,
        high: f64,
    },
}

impl Const {
    pub fn dense(name: &str, tensor: Tensor) -> Self {
        let (dtype, shape) = (tensor.dtype(), tensor.shape().clone());
        Const { name: name.into(), dtype, shape, data: ConstData::Dense(tensor) }
    }

    pub fn ty(&self) -> TensorType {
        TensorType { dtype: self.dtype, dims: known_dims(&self.shape) }
    }

    pub fn materialize(&self) -> Tensor {
        self.data.materialize(self.dtype, &self.shape)
    }
}

impl ConstData {
    /// The elements. Element `i` of a rule depends on the rule and `i` only.
    pub fn materialize(&self, dtype: DType, shape: &Shape) -> Tensor {
        match *self {
            ConstData::Dense(ref tensor) => tensor.clone(),
            ConstData::Splat(value) => fill(dtype, shape, |_| value),
            ConstData::Normal { seed, mean, std } => {
                fill(dtype, shape, |index| mean + std * random::normal(seed, index))
            }
            ConstData::Uniform { seed, low, high } => {
                fill(dtype, shape, |index| low + (high - low) * random::uniform(seed, index))
            }
        }
    }
}

fn fill(dtype: DType, shape: &Shape, value: impl Fn(u64) -> f64) -> Tensor {
    let mut tensor = Tensor::zeros(dtype, shape.clone());
    let size = dtype.size_bytes() as usize;
    for (index, bytes) in tensor.bytes_mut().chunks_exact_mut(size).enumerate() {
        dtype.write_f64(value(index as u64), bytes);
    }
    tensor
}
