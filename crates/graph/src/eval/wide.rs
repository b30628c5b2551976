//! Floats that are not rounded: to compare derivatives with differences, which need more digits than f32 has.
//! A float tensor of any type is held as u64, the bits of f64; ops that only move elements need not know.

use super::scalar::Scalar;
use crate::types::TensorType;
use pando_base::{DType, ReduceFn, Shape, Tensor};

/// Numbers as a float argument of a wide evaluation.
pub fn wide(shape: impl Into<Shape>, values: &[f64]) -> Tensor {
    let bits: Vec<i128> = values.iter().map(|value| value.to_bits().into()).collect();
    Tensor::from_ints(DType::U64, shape, &bits)
}

/// The numbers of a float result of a wide evaluation.
pub fn wide_values(tensor: &Tensor) -> Vec<f64> {
    tensor.to_ints().into_iter().map(|bits| f64::from_bits(bits as u64)).collect()
}

pub(super) fn widened(tensor: &Tensor) -> Tensor {
    wide(tensor.shape().clone(), &tensor.to_f64())
}

/// The type of the tensors that hold values of a type.
pub(super) fn held_as(ty: &TensorType) -> TensorType {
    if ty.dtype.is_float() { ty.with_dtype(DType::U64) } else { ty.clone() }
}

/// An f64 that is stored whole.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
pub(super) struct Wide(pub f64);

impl Scalar for Wide {
    const ZERO: Wide = Wide(0.0);

    fn read(tensor: &Tensor) -> Vec<Wide> {
        wide_values(tensor).into_iter().map(Wide).collect()
    }

    fn write(_dtype: DType, shape: Shape, values: &[Wide]) -> Tensor {
        wide(shape, &values.iter().map(|value| value.0).collect::<Vec<_>>())
    }

    fn mul_add(self, a: Wide, b: Wide) -> Wide {
        Wide(Scalar::mul_add(self.0, a.0, b.0))
    }

    fn combine(func: ReduceFn, a: Wide, b: Wide) -> Wide {
        Wide(f64::combine(func, a.0, b.0))
    }

    fn neutral(func: ReduceFn, _dtype: DType) -> Wide {
        Wide(f64::neutral(func, DType::F32))
    }
}
