//! Elements that running, sliding and scattered reductions combine, and the dispatch to their types.
//! Floats are combined in f32 and rounded when written; integers wrap; a maximum or minimum with a NaN is
//! NaN. In: the operands' tensors. Which elements meet is said by the [`Combining`] kernel.

use super::elementwise::{maximum, minimum};
use super::values::{self, with_int};
use pando_base::{DType, ReduceFn, Tensor};
use std::borrow::Cow;

/// An element type that functions combine.
pub(super) trait Combine: Copy {
    /// What changes nothing when it is combined.
    fn neutral(func: ReduceFn) -> Self;
    fn combine(func: ReduceFn, a: Self, b: Self) -> Self;
}

impl Combine for f32 {
    fn neutral(func: ReduceFn) -> f32 {
        match func {
            ReduceFn::Prod => 1.0,
            ReduceFn::Max => f32::NEG_INFINITY,
            ReduceFn::Min => f32::INFINITY,
            _ => 0.0,
        }
    }

    fn combine(func: ReduceFn, a: f32, b: f32) -> f32 {
        match func {
            ReduceFn::Sum => a + b,
            ReduceFn::Prod => a * b,
            ReduceFn::Max => maximum(a, b),
            ReduceFn::Min => minimum(a, b),
            ReduceFn::And | ReduceFn::Or => unreachable!("{func} of floats does not pass the check"),
        }
    }
}

macro_rules! combine_ints {
    ($($rust:ty),*) => {
        $(impl Combine for $rust {
            fn neutral(func: ReduceFn) -> $rust {
                match func {
                    ReduceFn::Sum | ReduceFn::Or => 0,
                    ReduceFn::Prod => 1,
                    ReduceFn::Max => <$rust>::MIN,
                    ReduceFn::Min => <$rust>::MAX,
                    ReduceFn::And => !0,
                }
            }

            fn combine(func: ReduceFn, a: $rust, b: $rust) -> $rust {
                match func {
                    ReduceFn::Sum => a.wrapping_add(b),
                    ReduceFn::Prod => a.wrapping_mul(b),
                    ReduceFn::Max => a.max(b),
                    ReduceFn::Min => a.min(b),
                    ReduceFn::And => a & b,
                    ReduceFn::Or => a | b,
                }
            }
        })*
    };
}
combine_ints!(i8, i16, i32, i64, u8, u16, u32, u64);

impl Combine for bool {
    fn neutral(func: ReduceFn) -> bool {
        func == ReduceFn::And
    }

    fn combine(func: ReduceFn, a: bool, b: bool) -> bool {
        if func == ReduceFn::And { a & b } else { a | b }
    }
}

/// A kernel's loop, for every element type.
pub(super) trait Combining {
    /// Writes all of `out`.
    fn run<T: Combine>(&self, inputs: &[&[T]], out: &mut [T]);
}

/// Runs a kernel's loop on tensors of one type; floats may be different ones.
pub(super) fn run(kernel: &impl Combining, inputs: &[&Tensor], out: &mut Tensor) {
    let count = out.num_elements() as usize;
    match out.dtype() {
        dtype if dtype.is_float() => {
            let inputs: Vec<Cow<[f32]>> = inputs.iter().map(|&input| values::to_f32(input)).collect();
            let inputs: Vec<&[f32]> = inputs.iter().map(|input| &**input).collect();
            let mut results = vec![0.0; count];
            kernel.run(&inputs, &mut results);
            values::write_f32(out, &results);
        }
        DType::Bool => {
            let flags = |tensor: &Tensor| -> Vec<bool> { tensor.bytes().iter().map(|&b| b != 0).collect() };
            let inputs: Vec<Vec<bool>> = inputs.iter().map(|&input| flags(input)).collect();
            let inputs: Vec<&[bool]> = inputs.iter().map(|input| &**input).collect();
            let mut results = vec![false; count];
            kernel.run(&inputs, &mut results);
            out.bytes_mut().iter_mut().zip(results).for_each(|(byte, flag)| *byte = u8::from(flag));
        }
        dtype => with_int!(dtype, T => {
            let inputs: Vec<&[T]> = inputs.iter().map(|&input| values::slice::<T>(input)).collect();
            kernel.run(&inputs, values::slice_mut::<T>(out))
        }),
    }
}

/// Whether a function exists for a type; which for 8-bit floats none does.
pub(super) fn check_type(func: ReduceFn, dtype: DType) -> Result<(), String> {
    let suits = match func {
        ReduceFn::And | ReduceFn::Or => !dtype.is_float(),
        _ => is_float(dtype) || dtype.is_int(),
    };
    if suits { Ok(()) } else { Err(format!("{func} of {dtype} does not exist")) }
}

/// Whether two types are one, or floats that are both combined in f32.
pub(super) fn are_alike(a: DType, b: DType) -> bool {
    a == b || (is_float(a) && is_float(b))
}

pub(super) fn is_float(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F16 | DType::BF16)
}
