//! Kernels that work element by element: unary, binary, compare, select, cast. Operands have one shape.
//!
//! f32 is computed in f32; f16 and bf16 in f32, rounded once; integers wrap; 8-bit floats only convert and
//! are selected, as on the hardware. Functions without an exact definition come from `libm`, so results do
//! not depend on the platform.

mod cast;
mod cycles;
mod float;
mod int;
mod smooth;

use super::values::{self, with_float, with_int, with_size};
use super::{Arg, OperandType};
use pando_base::{BinaryFn, CompareFn, DType, UnaryFn};

pub(super) use cycles::{
    binary_cycles, cast_cycles, compare_cycles, loop_slots, select_cycles, smooth_cycles, unary_cycles,
};
pub(super) use float::{maximum, minimum};
pub use smooth::Smooth;

fn is_float(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F16 | DType::BF16)
}

pub(super) fn check_unary(func: UnaryFn, operands: &[OperandType]) -> Result<(), String> {
    let [input, out] = [operands[0], operands[1]];
    if (input.dtype, input.lens) != (out.dtype, out.lens) {
        return Err(format!("maps {input} to {out}; both need one type and shape"));
    }
    let dtype = input.dtype;
    let (suits, types) = match func {
        UnaryFn::Neg | UnaryFn::Abs | UnaryFn::Sign => {
            (is_float(dtype) || dtype.is_int(), "f32, f16, bf16 and integers")
        }
        UnaryFn::Not => (!dtype.is_float(), "integers and bool"),
        _ => (is_float(dtype), "f32, f16 and bf16"),
    };
    if suits { Ok(()) } else { Err(format!("{func} exists for {types}, not {dtype}")) }
}

pub(super) fn check_binary(func: BinaryFn, operands: &[OperandType]) -> Result<(), String> {
    let [lhs, rhs, out] = [operands[0], operands[1], operands[2]];
    let same = |other: OperandType| (other.dtype, other.lens) == (lhs.dtype, lhs.lens);
    if !same(rhs) || !same(out) {
        return Err(format!("combines {lhs} and {rhs} to {out}; all need one type and shape"));
    }
    let dtype = lhs.dtype;
    let (suits, types) = match func {
        BinaryFn::Atan2 => (is_float(dtype), "f32, f16 and bf16"),
        BinaryFn::And | BinaryFn::Or | BinaryFn::Xor => (!dtype.is_float(), "integers and bool"),
        BinaryFn::Shl | BinaryFn::Shr => (dtype.is_int(), "integers"),
        _ => (is_float(dtype) || dtype.is_int(), "f32, f16, bf16 and integers"),
    };
    if suits { Ok(()) } else { Err(format!("{func} exists for {types}, not {dtype}")) }
}

pub(super) fn check_compare(operands: &[OperandType]) -> Result<(), String> {
    let [lhs, rhs, out] = [operands[0], operands[1], operands[2]];
    if (lhs.dtype, lhs.lens) != (rhs.dtype, rhs.lens) || lhs.lens != out.lens {
        return Err(format!(
            "compares {lhs} with {rhs} to {out}; all need one shape, the first two one type"
        ));
    }
    if out.dtype != DType::Bool {
        return Err(format!("the result is bool, not {}", out.dtype));
    }
    if matches!(lhs.dtype, DType::F8(..)) {
        return Err(format!("compares every type but 8-bit floats, not {}", lhs.dtype));
    }
    Ok(())
}

pub(super) fn check_select(operands: &[OperandType]) -> Result<(), String> {
    let [condition, on_true, on_false, out] = [operands[0], operands[1], operands[2], operands[3]];
    let same = |other: OperandType| (other.dtype, other.lens) == (out.dtype, out.lens);
    if !same(on_true) || !same(on_false) {
        return Err(format!("selects from {on_true} and {on_false} to {out}; all need one type and shape"));
    }
    if condition.dtype != DType::Bool || condition.lens != out.lens {
        return Err(format!("the condition {condition} is not bool of the shape of {out}"));
    }
    Ok(())
}

/// Every type converts to every type.
pub(super) fn check_cast(operands: &[OperandType]) -> Result<(), String> {
    let [input, out] = [operands[0], operands[1]];
    if input.lens == out.lens { Ok(()) } else { Err(format!("converts {input} to {out} of another shape")) }
}

pub(super) fn run_unary(func: UnaryFn, args: &mut [Arg]) {
    let [input, out] = args else { unreachable!("unary has two operands") };
    let dtype = out.data.dtype();
    if dtype == DType::Bool {
        // The only function of bool is `not`.
        let flags = out.data.bytes_mut().iter_mut().zip(input.data.bytes());
        flags.for_each(|(y, &x)| *y = u8::from(x == 0));
    } else if dtype.is_float() {
        with_float!(dtype, T => {
            float::unary(func, values::slice::<T>(&input.data), values::slice_mut::<T>(&mut out.data))
        });
    } else {
        with_int!(dtype, T => {
            int::unary(func, values::slice::<T>(&input.data), values::slice_mut::<T>(&mut out.data))
        });
    }
}

pub(super) fn run_smooth(func: Smooth, args: &mut [Arg]) {
    let [input, out] = args else { unreachable!("a function has two operands") };
    with_float!(out.data.dtype(), T => {
        float::smooth(func, values::slice::<T>(&input.data), values::slice_mut::<T>(&mut out.data))
    });
}

pub(super) fn run_binary(func: BinaryFn, args: &mut [Arg]) {
    let [lhs, rhs, out] = args else { unreachable!("binary has three operands") };
    let (a, b, y) = (&lhs.data, &rhs.data, &mut out.data);
    match y.dtype() {
        DType::Bool => int::logical(func, a.bytes(), b.bytes(), y.bytes_mut()),
        dtype if dtype.is_float() => with_float!(dtype, T => {
            float::binary(func, values::slice::<T>(a), values::slice::<T>(b), values::slice_mut::<T>(y))
        }),
        dtype => with_int!(dtype, T => {
            int::binary(func, values::slice::<T>(a), values::slice::<T>(b), values::slice_mut::<T>(y))
        }),
    }
}

pub(super) fn run_compare(func: CompareFn, args: &mut [Arg]) {
    let [lhs, rhs, out] = args else { unreachable!("compare has three operands") };
    let (a, b, y) = (&lhs.data, &rhs.data, out.data.bytes_mut());
    match a.dtype() {
        DType::Bool => compare(func, a.bytes(), b.bytes(), y),
        dtype if dtype.is_float() => {
            with_float!(dtype, T => compare(func, values::slice::<T>(a), values::slice::<T>(b), y))
        }
        dtype => with_int!(dtype, T => compare(func, values::slice::<T>(a), values::slice::<T>(b), y)),
    }
}

fn compare<T: PartialOrd>(func: CompareFn, a: &[T], b: &[T], y: &mut [u8]) {
    fn zip<T>(a: &[T], b: &[T], y: &mut [u8], f: impl Fn(&T, &T) -> bool) {
        y.iter_mut().zip(a.iter().zip(b)).for_each(|(y, (a, b))| *y = f(a, b).into());
    }
    match func {
        CompareFn::Eq => zip(a, b, y, |a, b| a == b),
        CompareFn::Ne => zip(a, b, y, |a, b| a != b),
        CompareFn::Lt => zip(a, b, y, |a, b| a < b),
        CompareFn::Le => zip(a, b, y, |a, b| a <= b),
        CompareFn::Gt => zip(a, b, y, |a, b| a > b),
        CompareFn::Ge => zip(a, b, y, |a, b| a >= b),
    }
}

/// Moves bits: a NaN keeps its payload.
pub(super) fn run_select(args: &mut [Arg]) {
    let [condition, on_true, on_false, out] = args else { unreachable!("select has four operands") };
    let flags = condition.data.bytes();
    with_size!(out.data.dtype(), SIZE => {
        let choices = values::chunks::<SIZE>(&on_true.data).iter().zip(values::chunks(&on_false.data));
        let elements = values::chunks_mut(&mut out.data).iter_mut();
        for ((y, (a, b)), &flag) in elements.zip(choices).zip(flags) {
            *y = if flag != 0 { *a } else { *b };
        }
    });
}

pub(super) fn run_cast(args: &mut [Arg]) {
    let [input, out] = args else { unreachable!("cast has two operands") };
    cast::cast(&input.data, &mut out.data);
}

#[cfg(test)]
mod tests;
