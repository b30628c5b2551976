//! Ops that work element by element.

use super::scalar::{self, Domain, Scalar, in_domain};
use super::wide::{self, Wide};
use pando_base::{BinaryFn, CompareFn, DType, Tensor, UnaryFn};

pub(super) fn unary(func: UnaryFn, domain: Domain, x: &Tensor) -> Tensor {
    let dtype = x.dtype();
    match domain {
        Domain::Float => map(x, dtype, |x| scalar::unary_float(func, x)),
        Domain::Wide => map(x, dtype, |x: Wide| Wide(scalar::unary_float(func, x.0))),
        Domain::Int => map(x, dtype, |x| scalar::unary_int(func, dtype, x)),
    }
}

fn map<T: Scalar>(x: &Tensor, dtype: DType, f: impl Fn(T) -> T) -> Tensor {
    let values: Vec<T> = T::read(x).into_iter().map(f).collect();
    T::write(dtype, x.shape().clone(), &values)
}

pub(super) fn binary(func: BinaryFn, domain: Domain, a: &Tensor, b: &Tensor) -> Tensor {
    let dtype = a.dtype();
    match domain {
        Domain::Float => zip(a, b, |a, b| scalar::binary_float(func, a, b)),
        Domain::Wide => zip(a, b, |a: Wide, b: Wide| Wide(scalar::binary_float(func, a.0, b.0))),
        Domain::Int => zip(a, b, |a, b| scalar::binary_int(func, dtype, a, b)),
    }
}

fn zip<T: Scalar>(a: &Tensor, b: &Tensor, f: impl Fn(T, T) -> T) -> Tensor {
    let values: Vec<T> = T::read(a).into_iter().zip(T::read(b)).map(|(a, b)| f(a, b)).collect();
    T::write(a.dtype(), a.shape().clone(), &values)
}

pub(super) fn compare(func: CompareFn, domain: Domain, a: &Tensor, b: &Tensor) -> Tensor {
    in_domain!(domain, compare_as(func, a, b))
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

pub(super) fn convert(dtype: DType, domain: Domain, x: &Tensor, wide: bool) -> Tensor {
    let shape = x.shape().clone();
    let as_floats = |values: &[f64]| match wide && dtype.is_float() {
        true => wide::wide(shape.clone(), values),
        false => Tensor::from_f64(dtype, shape.clone(), values),
    };
    match domain {
        Domain::Float => as_floats(&x.to_f64()),
        Domain::Wide => as_floats(&wide::wide_values(x)),
        Domain::Int if dtype.is_float() => {
            as_floats(&x.to_ints().into_iter().map(scalar::int_to_float).collect::<Vec<f64>>())
        }
        Domain::Int => Tensor::from_ints(dtype, shape.clone(), &x.to_ints()),
    }
}

pub(super) fn bitcast(dtype: DType, x: &Tensor) -> Tensor {
    Tensor::from_bytes(dtype, x.shape().clone(), x.bytes()).expect("inference demands equal sizes")
}
