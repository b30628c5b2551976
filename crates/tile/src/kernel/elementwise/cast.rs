//! Conversions between any two types, with the rounding of [`DType::round`]: float to integer truncates
//! and saturates, integers wrap among each other, bool is whether an element is not zero.

use crate::kernel::values::{self, with_int};
use pando_base::{DType, Tensor};

pub fn cast(input: &Tensor, out: &mut Tensor) {
    let (from, to) = (input.dtype(), out.dtype());
    if from == to {
        out.bytes_mut().copy_from_slice(input.bytes());
    } else if from.is_float() && to.is_float() {
        floats(input, out);
    } else if from.is_float() {
        write_rounded(out, input.to_f64().into_iter());
    } else if to.is_float() {
        write_rounded(out, integers(input).into_iter().map(sticky_f64));
    } else if to == DType::Bool {
        let flags = out.bytes_mut().iter_mut().zip(integers(input));
        flags.for_each(|(flag, value)| *flag = u8::from(value != 0));
    } else {
        with_int!(to, T => {
            values::slice_mut::<T>(out).iter_mut().zip(integers(input)).for_each(|(y, value)| *y = value as T)
        });
    }
}

/// By way of f32, which holds every element of every float type exactly, but for 8-bit floats of extreme
/// scales.
fn floats(input: &Tensor, out: &mut Tensor) {
    if matches!(input.dtype(), DType::F8(..)) {
        write_rounded(out, input.to_f64().into_iter());
    } else {
        values::write_f32(out, &values::to_f32(input));
    }
}

fn integers(input: &Tensor) -> Vec<i128> {
    if input.dtype() == DType::Bool {
        return input.bytes().iter().map(|&flag| flag.into()).collect();
    }
    with_int!(input.dtype(), T => values::slice::<T>(input).iter().map(|&value| value.into()).collect())
}

/// Rounds each value once to the output's type.
fn write_rounded(out: &mut Tensor, values: impl Iterator<Item = f64>) {
    match out.dtype() {
        DType::F32 => write(values::slice_mut::<f32>(out), values, |value| value as f32),
        DType::F16 => write(values::slice_mut(out), values, half::f16::from_f64),
        DType::BF16 => write(values::slice_mut(out), values, half::bf16::from_f64),
        // Rust's `as` truncates, saturates and maps NaN to 0, as a tile does.
        dtype if dtype.is_int() => {
            with_int!(dtype, T => write(values::slice_mut::<T>(out), values, |value| value as T))
        }
        dtype => {
            let elements = out.bytes_mut().iter_mut();
            elements.zip(values).for_each(|(byte, value)| dtype.write_f64(value, std::slice::from_mut(byte)));
        }
    }
}

fn write<T>(out: &mut [T], values: impl Iterator<Item = f64>, f: impl Fn(f64) -> T) {
    out.iter_mut().zip(values).for_each(|(y, value)| *y = f(value));
}

/// An integer as f64, rounded to odd: the bits that do not fit leave a trace in the last one, so that a
/// second rounding to a shorter type is the same as rounding once.
fn sticky_f64(value: i128) -> f64 {
    let magnitude = value.unsigned_abs();
    let excess = (128 - magnitude.leading_zeros()).saturating_sub(f64::MANTISSA_DIGITS);
    let kept = magnitude >> excess;
    let lost = u128::from(kept << excess != magnitude);
    let rounded = ((kept | lost) << excess) as f64;
    if value < 0 { -rounded } else { rounded }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pando_base::F8Format;

    fn convert(from: DType, to: DType, values: &[f64]) -> Vec<f64> {
        let shape = [values.len() as u64];
        let mut out = Tensor::zeros(to, shape);
        cast(&Tensor::from_f64(from, shape, values), &mut out);
        out.to_f64()
    }

    #[test]
    fn floats_round_once() {
        assert_eq!(
            convert(DType::F32, DType::F16, &[2049.0, 70000.0, -0.1]),
            [2048.0, f64::INFINITY, -0.0999755859375]
        );
        let f8 = DType::F8(F8Format::F143, 0);
        assert_eq!(convert(DType::F32, f8, &[300.0, -17.0, 0.3]), [240.0, -16.0, 0.3125]);
        assert_eq!(convert(f8, DType::F16, &[240.0, -0.5]), [240.0, -0.5]);
        assert_eq!(convert(f8, DType::F8(F8Format::F152, 1), &[15.0]), [16.0]);
    }

    #[test]
    fn floats_truncate_and_saturate() {
        assert_eq!(convert(DType::F32, DType::I8, &[-2.9, 1e9, f64::NAN, -1e9]), [-2.0, 127.0, 0.0, -128.0]);
        assert_eq!(convert(DType::F16, DType::U32, &[-3.0, 2.5]), [0.0, 2.0]);
        assert_eq!(convert(DType::F32, DType::Bool, &[0.0, -0.5, f64::NAN]), [0.0, 1.0, 1.0]);
    }

    #[test]
    fn integers_wrap_or_round() {
        assert_eq!(convert(DType::I32, DType::U8, &[-1.0, 300.0]), [255.0, 44.0]);
        assert_eq!(convert(DType::U8, DType::I8, &[200.0]), [-56.0]);
        assert_eq!(convert(DType::I16, DType::Bool, &[256.0, 0.0]), [1.0, 0.0]);
        assert_eq!(convert(DType::Bool, DType::F16, &[1.0, 0.0]), [1.0, 0.0]);
        assert_eq!(convert(DType::I32, DType::F32, &[16777217.0]), [16777216.0]);
        assert_eq!(convert(DType::I32, DType::F16, &[65520.0, 65519.0]), [f64::INFINITY, 65504.0]);
    }

    /// Neighbours in f32 are 2^39 apart here. By way of f64 rounded to nearest, the 1 would be lost first
    /// and the rest be a tie.
    #[test]
    fn large_integers_round_once() {
        let value = (1i128 << 62) + (1 << 38) + 1;
        let mut out = Tensor::zeros(DType::F32, [1]);
        cast(&Tensor::from_ints(DType::I64, [1], &[value]), &mut out);
        assert_eq!(out.to_f64(), [((1i128 << 62) + (1 << 39)) as f64], "just above the middle rounds up");
        let mut out = Tensor::zeros(DType::F32, [1]);
        cast(&Tensor::from_ints(DType::I64, [1], &[-(value - 1)]), &mut out);
        assert_eq!(out.to_f64(), [-((1i128 << 62) as f64)], "the middle rounds to even");
    }
}
