//! Tensors as slices of numbers, and walks over strided boxes: what the kernels' loops run on.
//! In: tensors. Out: typed values, or tensors rounded from them. Types are matched once per tensor, never
//! per element. What is computed is not decided here.

use half::{bf16, f16};
use pando_base::tensor::Element;
use pando_base::{DType, Tensor};
use smallvec::SmallVec;
use std::borrow::Cow;

/// Float types that kernels compute with, by way of f32.
pub(super) trait Float: Element + PartialOrd {
    fn to_f32(self) -> f32;
    /// Rounds to nearest, ties to even.
    fn from_f32(value: f32) -> Self;
}

/// Integer types; i128 holds each exactly.
pub(super) trait Int: Element + PartialOrd {
    const BITS: u32;
    fn widen(self) -> i128;
    /// The low bits: two's complement wrapping.
    fn wrap(value: i128) -> Self;
}

impl Float for f32 {
    fn to_f32(self) -> f32 {
        self
    }
    fn from_f32(value: f32) -> f32 {
        value
    }
}

macro_rules! small_floats {
    ($($rust:ty),*) => {
        $(impl Float for $rust {
            fn to_f32(self) -> f32 {
                self.to_f32()
            }
            fn from_f32(value: f32) -> Self {
                <$rust>::from_f32(value)
            }
        })*
    };
}
small_floats!(f16, bf16);

macro_rules! ints {
    ($($rust:ty),*) => {
        $(impl Int for $rust {
            const BITS: u32 = <$rust>::BITS;
            fn widen(self) -> i128 {
                self.into()
            }
            fn wrap(value: i128) -> Self {
                value as $rust
            }
        })*
    };
}
ints!(i8, i16, i32, i64, u8, u16, u32, u64);

/// Evaluates the body with `T` as the Rust type of an element type, which must be one of those listed.
macro_rules! with_type {
    ($dtype:expr, $T:ident => $body:expr; $($variant:ident: $rust:ty),*) => {
        match $dtype {
            $(pando_base::DType::$variant => {
                type $T = $rust;
                $body
            })*
            other => unreachable!("{other} does not pass the kernel's check"),
        }
    };
}

/// [`with_type`] for the float types other than the 8-bit ones.
macro_rules! with_float {
    ($dtype:expr, $T:ident => $body:expr) => {
        $crate::kernel::values::with_type!($dtype, $T => $body; F32: f32, F16: half::f16, BF16: half::bf16)
    };
}

/// [`with_type`] for the integer types.
macro_rules! with_int {
    ($dtype:expr, $T:ident => $body:expr) => {
        $crate::kernel::values::with_type!($dtype, $T => $body;
            I8: i8, I16: i16, I32: i32, I64: i64, U8: u8, U16: u16, U32: u32, U64: u64)
    };
}

/// Evaluates the body with `SIZE` as the constant size of an element in bytes.
macro_rules! with_size {
    ($dtype:expr, $SIZE:ident => $body:expr) => {
        match $dtype.size_bytes() {
            1 => {
                const $SIZE: usize = 1;
                $body
            }
            2 => {
                const $SIZE: usize = 2;
                $body
            }
            4 => {
                const $SIZE: usize = 4;
                $body
            }
            _ => {
                const $SIZE: usize = 8;
                $body
            }
        }
    };
}
pub(super) use {with_float, with_int, with_size, with_type};

/// The elements as Rust values; the caller matched the type.
pub(super) fn slice<T: Element>(tensor: &Tensor) -> &[T] {
    tensor.as_slice().expect("the caller matched the type")
}

pub(super) fn slice_mut<T: Element>(tensor: &mut Tensor) -> &mut [T] {
    tensor.as_mut_slice().expect("the caller matched the type")
}

/// The elements as opaque bytes.
pub(super) fn chunks<const SIZE: usize>(tensor: &Tensor) -> &[[u8; SIZE]] {
    tensor.bytes().as_chunks().0
}

pub(super) fn chunks_mut<const SIZE: usize>(tensor: &mut Tensor) -> &mut [[u8; SIZE]] {
    tensor.bytes_mut().as_chunks_mut().0
}

/// The elements of any float type. Exact, but for 8-bit floats whose scale exceeds the range of f32.
pub(super) fn to_f32(tensor: &Tensor) -> Cow<'_, [f32]> {
    match tensor.dtype() {
        DType::F32 => Cow::Borrowed(slice::<f32>(tensor)),
        DType::F8(format, scale) => {
            let unit = 2f64.powi(scale.into());
            let table: [f32; 256] = std::array::from_fn(|code| (format.decode(code as u8) * unit) as f32);
            tensor.bytes().iter().map(|&code| table[usize::from(code)]).collect()
        }
        dtype => with_float!(dtype, T => slice::<T>(tensor).iter().map(|&x| Float::to_f32(x)).collect()),
    }
}

/// Rounds each value to the tensor's float type.
pub(super) fn write_f32(tensor: &mut Tensor, values: &[f32]) {
    match tensor.dtype() {
        DType::F32 => slice_mut::<f32>(tensor).copy_from_slice(values),
        DType::F8(format, scale) => {
            let unit = 2f64.powi(scale.into());
            let codes = tensor.bytes_mut().iter_mut();
            codes.zip(values).for_each(|(code, &value)| *code = format.encode(f64::from(value) / unit));
        }
        dtype => with_float!(dtype, T => {
            slice_mut::<T>(tensor).iter_mut().zip(values).for_each(|(x, &value)| *x = Float::from_f32(value))
        }),
    }
}

/// The elements of an integer type modulo 2^64, which sums and products of any integer type respect.
pub(super) fn to_wrapping(tensor: &Tensor) -> Vec<i64> {
    with_int!(tensor.dtype(), T => slice::<T>(tensor).iter().map(|x| x.widen() as i64).collect())
}

pub(super) fn write_wrapping(tensor: &mut Tensor, values: &[i64]) {
    with_int!(tensor.dtype(), T => {
        slice_mut::<T>(tensor).iter_mut().zip(values).for_each(|(x, &value)| *x = T::wrap(value.into()))
    });
}

/// Lengths or strides of the dimensions of a box.
pub(super) type Sizes = SmallVec<[usize; 6]>;

pub(super) fn sizes(lens: &[u64]) -> Sizes {
    lens.iter().map(|&len| len as usize).collect()
}

/// Row-major strides.
pub(super) fn strides(lens: &[usize]) -> Sizes {
    let mut strides = Sizes::from_elem(1, lens.len());
    for dim in (1..lens.len()).rev() {
        strides[dim - 1] = strides[dim] * lens[dim];
    }
    strides
}

/// Calls `row` with the offset `Σ i·stride` of each innermost row of a box, in row-major order. A box
/// without dimensions has one row.
pub(super) fn for_rows(lens: &[usize], strides: &[usize], mut row: impl FnMut(usize)) {
    if lens.contains(&0) {
        return;
    }
    let outer = lens.len().saturating_sub(1);
    let mut index = Sizes::from_elem(0, outer);
    let mut offset = 0;
    loop {
        row(offset);
        let mut dim = outer;
        loop {
            if dim == 0 {
                return;
            }
            dim -= 1;
            index[dim] += 1;
            offset += strides[dim];
            if index[dim] < lens[dim] {
                break;
            }
            offset -= strides[dim] * lens[dim];
            index[dim] = 0;
        }
    }
}

/// Fills `dst`, a row-major box of `lens`, whose element `i` lies at `Σ i·stride` in `src`.
pub(super) fn copy_strided<T: Copy>(src: &[T], lens: &[usize], strides: &[usize], dst: &mut [T]) {
    let (len, stride) = (lens.last().copied().unwrap_or(1), strides.last().copied().unwrap_or(1));
    let mut rest = dst;
    for_rows(lens, strides, |offset| {
        let (row, tail) = std::mem::take(&mut rest).split_at_mut(len);
        rest = tail;
        match stride {
            0 => row.fill(src[offset]),
            1 => row.copy_from_slice(&src[offset..offset + len]),
            _ => row.iter_mut().zip(src[offset..].iter().step_by(stride)).for_each(|(to, &from)| *to = from),
        }
    });
}

/// The elements with dimension `i` taken from dimension `order[i]`.
pub(super) fn permuted<T: Copy + Default>(src: &[T], lens: &[usize], order: &[usize]) -> Vec<T> {
    let all = strides(lens);
    let mut dst = vec![T::default(); src.len()];
    let pick = |values: &[usize]| -> Sizes { order.iter().map(|&dim| values[dim]).collect() };
    copy_strided(src, &pick(lens), &pick(&all), &mut dst);
    dst
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::block::Block;
    use crate::kernel::{Arg, Kernel, OperandType};
    use pando_base::F8Format;

    /// The only operand or one of several, covering its whole variable.
    pub fn arg(dtype: DType, shape: &[u64], values: &[f64]) -> Arg {
        Arg::new(Block::full(shape), shape, Tensor::from_f64(dtype, shape.to_vec(), values))
    }

    pub fn out(dtype: DType, shape: &[u64]) -> Arg {
        Arg::new(Block::full(shape), shape, Tensor::zeros(dtype, shape.to_vec()))
    }

    /// Checks and runs a kernel; the last operand's values.
    pub fn run(kernel: &Kernel, mut args: Vec<Arg>) -> Vec<f64> {
        let lens: Vec<_> = args.iter().map(|arg| arg.block.lens()).collect();
        let operands: Vec<OperandType> =
            args.iter().zip(&lens).map(|(arg, lens)| OperandType { dtype: arg.data.dtype(), lens }).collect();
        kernel.check(&operands).expect("operands that suit the kernel");
        kernel.run(&mut args);
        args.pop().expect("kernels have an output").data.to_f64()
    }

    /// Reproducible values in (-1, 1): a linear congruential generator (Knuth's MMIX constants).
    pub fn random(seed: u64, count: u64) -> Vec<f64> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 40) as f64 / f64::from(1 << 23) - 1.0
        };
        (0..count).map(|_| next()).collect()
    }

    #[test]
    fn floats_read_and_round() {
        let f8 = Tensor::from_f64(DType::F8(F8Format::F143, 2), [3], &[1.0, -8.0, 960.0]);
        assert_eq!(*to_f32(&f8), [1.0, -8.0, 960.0]);
        let mut half = Tensor::zeros(DType::F16, [3]);
        write_f32(&mut half, &[2049.0, 1e6, -0.5]);
        assert_eq!(half.to_f64(), [2048.0, f64::INFINITY, -0.5]);
    }

    #[test]
    fn strided_boxes() {
        let src = [0, 1, 2, 3, 4, 5];
        assert_eq!(permuted(&src, &[2, 3], &[1, 0]), [0, 3, 1, 4, 2, 5]);
        assert_eq!(permuted(&[7], &[], &[]), [7]);
        let mut dst = [0; 6];
        copy_strided(&[8, 9], &[2, 3], &[1, 0], &mut dst);
        assert_eq!(dst, [8, 8, 8, 9, 9, 9]);
        let mut calls = 0;
        for_rows(&[2, 0], &[1, 1], |_| calls += 1);
        assert_eq!(calls, 0);
    }
}
