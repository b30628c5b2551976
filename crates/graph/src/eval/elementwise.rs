//! Ops that work element by element.

use super::scalar::{self, Scalar};
use pando_base::{BinaryFn, CompareFn, DType, Tensor, UnaryFn};

pub(super) fn unary(func: UnaryFn, x: &Tensor) -> Tensor {
    let dtype = x.dtype();
    if dtype.is_float() {
        map(x, dtype, |x| scalar::unary_float(func, x))
    } else {
        map(x, dtype, |x| scalar::unary_int(func, dtype, x))
    }
}

fn map<T: Scalar>(x: &Tensor, dtype: DType, f: impl Fn(T) -> T) -> Tensor {
    let values: Vec<T> = T::read(x).into_iter().map(f).collect();
    T::write(dtype, x.shape().clone(), &values)
}

pub(super) fn binary(func: BinaryFn, a: &Tensor, b: &Tensor) -> Tensor {
    let dtype = a.dtype();
    if dtype.is_float() {
        zip(a, b, |a, b| scalar::binary_float(func, a, b))
    } else {
        zip(a, b, |a, b| scalar::binary_int(func, dtype, a, b))
    }
}

fn zip<T: Scalar>(a: &Tensor, b: &Tensor, f: impl Fn(T, T) -> T) -> Tensor {
    let values: Vec<T> = T::read(a).into_iter().zip(T::read(b)).map(|(a, b)| f(a, b)).collect();
    T::write(a.dtype(), a.shape().clone(), &values)
}

pub(super) fn compare(func: CompareFn, a: &Tensor, b: &Tensor) -> Tensor {
    if a.dtype().is_float() { compare_as::<f64>(func, a, b) } else { compare_as::<i128>(func, a, b) }
}

fn compare_as<T: Scalar>(func: CompareFn, a: &Tensor, b: &Tensor) -> Tensor {
    let flags: Vec<i128> =
        T::read(a).into_iter().zip(T::read(b)).map(|(a, b)| scalar::compare(func, a, b).into()).collect();
    Tensor::from_ints(DType::Bool, a.shape().clone(), &flags)
}

/// Copies bits: a NaN keeps its payload.
pub(super) fn select(operands: &[&Tensor]) -> Tensor {
    let [condition, on_true, on_false] = [operands[0], operands[1], operands[2]];
    let size = on_true.dtype().size_bytes() as usize;
    let mut result = on_true.clone();
    for (position, bytes) in result.bytes_mut().chunks_exact_mut(size).enumerate() {
        if condition.bytes()[position] == 0 {
            bytes.copy_from_slice(&on_false.bytes()[position * size..][..size]);
        }
    }
    result
}

pub(super) fn convert(dtype: DType, x: &Tensor) -> Tensor {
    let shape = x.shape().clone();
    if x.dtype().is_float() {
        Tensor::from_f64(dtype, shape, &x.to_f64())
    } else if dtype.is_float() {
        let values: Vec<f64> = x.to_ints().into_iter().map(scalar::int_to_float).collect();
        Tensor::from_f64(dtype, shape, &values)
    } else {
        Tensor::from_ints(dtype, shape, &x.to_ints())
    }
}

pub(super) fn bitcast(dtype: DType, x: &Tensor) -> Tensor {
    Tensor::from_bytes(dtype, x.shape().clone(), x.bytes()).expect("inference demands equal sizes")
}
