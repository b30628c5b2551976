//! Reduce: combines over axes. Sum, product, maximum and minimum of numbers, `and` and `or` of integers
//! and bool; not of 8-bit floats.
//!
//! Our definition of the order: elements are combined in row-major order. Floats are combined in f32 and rounded once to the output, which may be another float type
//! (partial sums of f16 are kept in f32); integers wrap. A maximum or minimum with a NaN is NaN.
//! Cycles: hardware.md section 6.4.

use super::cost::{self, Cycles, c};
use super::elementwise::{maximum, minimum};
use super::values::{self, Int, Sizes, with_int};
use super::{Arg, OperandType, VertexCost, movement, same_but_ones};
use pando_base::{DType, ReduceFn};
use pando_machine::Chip;

/// `in, out`: `out` lacks the axes, or keeps them with length 1.
pub(super) fn check(func: ReduceFn, axes: &[u8], operands: &[OperandType]) -> Result<(), String> {
    let [input, out] = [operands[0], operands[1]];
    let rank = input.lens.len();
    if !axes.iter().all(|&axis| usize::from(axis) < rank) || !movement::are_distinct(axes) {
        return Err(format!("axes {axes:?} are not distinct dimensions of {input}"));
    }
    let is_float = |dtype| matches!(dtype, DType::F32 | DType::F16 | DType::BF16);
    if input.dtype != out.dtype && !(is_float(input.dtype) && is_float(out.dtype)) {
        return Err(format!("reduces {input} to {out}; both need one type, or f32, f16 and bf16"));
    }
    let suits = match func {
        ReduceFn::And | ReduceFn::Or => !input.dtype.is_float(),
        _ => is_float(input.dtype) || input.dtype.is_int(),
    };
    if !suits {
        return Err(format!("{func} of {} does not exist", input.dtype));
    }
    let kept: Vec<u64> =
        (0..rank).filter(|&dim| !axes.contains(&(dim as u8))).map(|dim| input.lens[dim]).collect();
    if !same_but_ones(&kept, out.lens) {
        return Err(format!("{input} without axes {axes:?} is not {out}"));
    }
    Ok(())
}

pub(super) fn run(func: ReduceFn, axes: &[u8], args: &mut [Arg]) {
    let [input, out] = args else { unreachable!("reduce has two operands") };
    let walk = Walk::new(axes, &values::sizes(input.data.shape()));
    let dtype = input.data.dtype();
    if dtype.is_float() {
        let mut sums = vec![neutral_float(func); out.data.num_elements() as usize];
        combine_floats(func, &walk, &values::to_f32(&input.data), &mut sums);
        values::write_f32(&mut out.data, &sums);
    } else if dtype == DType::Bool {
        let sums = out.data.bytes_mut();
        sums.fill(u8::from(func == ReduceFn::And));
        let input = input.data.bytes();
        match func {
            ReduceFn::And => walk.fold(input, sums, |a, b| a & b),
            _ => walk.fold(input, sums, |a, b| a | b),
        }
    } else {
        with_int!(dtype, T => {
            let (low, high) = (T::MIN, T::MAX);
            let sums = values::slice_mut::<T>(&mut out.data);
            combine_ints(func, &walk, values::slice::<T>(&input.data), sums, (low, high))
        });
    }
}

fn neutral_float(func: ReduceFn) -> f32 {
    match func {
        ReduceFn::Prod => 1.0,
        ReduceFn::Max => f32::NEG_INFINITY,
        ReduceFn::Min => f32::INFINITY,
        _ => 0.0,
    }
}

fn combine_floats(func: ReduceFn, walk: &Walk, input: &[f32], sums: &mut [f32]) {
    match func {
        ReduceFn::Sum => walk.fold(input, sums, |a, b| a + b),
        ReduceFn::Prod => walk.fold(input, sums, |a, b| a * b),
        ReduceFn::Max => walk.fold(input, sums, maximum),
        ReduceFn::Min => walk.fold(input, sums, minimum),
        ReduceFn::And | ReduceFn::Or => unreachable!("{func} of floats does not pass the check"),
    }
}

fn combine_ints<T: Int + Ord>(func: ReduceFn, walk: &Walk, input: &[T], sums: &mut [T], (low, high): (T, T)) {
    sums.fill(match func {
        ReduceFn::Sum | ReduceFn::Or => T::wrap(0),
        ReduceFn::Prod => T::wrap(1),
        ReduceFn::Max => low,
        ReduceFn::Min => high,
        ReduceFn::And => T::wrap(-1),
    });
    let wrapped = |f: fn(i128, i128) -> i128| move |a: T, b: T| T::wrap(f(a.widen(), b.widen()));
    match func {
        ReduceFn::Sum => walk.fold(input, sums, wrapped(|a, b| a + b)),
        ReduceFn::Prod => walk.fold(input, sums, wrapped(i128::wrapping_mul)),
        ReduceFn::Max => walk.fold(input, sums, |a, b| a.max(b)),
        ReduceFn::Min => walk.fold(input, sums, |a, b| a.min(b)),
        ReduceFn::And => walk.fold(input, sums, wrapped(|a, b| a & b)),
        ReduceFn::Or => walk.fold(input, sums, wrapped(|a, b| a | b)),
    }
}

/// The input in row-major order, and for each of its rows where in the output it goes. Output strides are
/// 0 along reduced axes, so one walk serves reductions of inner, outer and mixed axes.
struct Walk {
    lens: Sizes,
    out_strides: Sizes,
}

impl Walk {
    fn new(axes: &[u8], lens: &[usize]) -> Self {
        let mut out_strides = Sizes::from_elem(0, lens.len());
        let mut stride = 1;
        for dim in (0..lens.len()).rev().filter(|&dim| !axes.contains(&(dim as u8))) {
            out_strides[dim] = stride;
            stride *= lens[dim];
        }
        Walk { lens: lens.into(), out_strides }
    }

    fn fold<T: Copy>(&self, input: &[T], sums: &mut [T], f: impl Fn(T, T) -> T) {
        let len = self.lens.last().copied().unwrap_or(1);
        let reduces_rows = self.out_strides.last() == Some(&0);
        let mut rest = input;
        values::for_rows(&self.lens, &self.out_strides, |offset| {
            let (row, tail) = rest.split_at(len);
            rest = tail;
            if reduces_rows {
                sums[offset] = row.iter().fold(sums[offset], |sum, &x| f(sum, x));
            } else {
                sums[offset..offset + len].iter_mut().zip(row).for_each(|(sum, &x)| *sum = f(*sum, x));
            }
        });
    }
}

/// How the elements of a reduction lie: `outputs` results in runs of `run` neighbours; each combines
/// `outer` runs of `inner` neighbouring inputs.
struct Geometry {
    outputs: u64,
    run: u64,
    outer: u64,
    inner: u64,
}

impl Geometry {
    fn new(axes: &[u8], lens: &[u64]) -> Self {
        // Dimensions of length 1 do not change how elements lie.
        let dims: Vec<(u64, bool)> = lens
            .iter()
            .enumerate()
            .filter(|(_, len)| **len != 1)
            .map(|(dim, &len)| (len, axes.contains(&(dim as u8))))
            .collect();
        let over =
            |dims: &mut dyn Iterator<Item = &(u64, bool)>| dims.fold(1u64, |n, dim| n.saturating_mul(dim.0));
        let all = |reduced| over(&mut dims.iter().filter(|dim| dim.1 == reduced));
        let trailing = |reduced| over(&mut dims.iter().rev().take_while(|dim| dim.1 == reduced));
        let inner = trailing(true);
        Geometry { outputs: all(false), run: trailing(false), outer: all(true) / inner.max(1), inner }
    }
}

/// Set-up of a worker, from "strided: 16 + ...". Assumption: the continuous formula, for which section 6.4
/// names none, has the same.
const SET_UP: u64 = 16;

/// A tile's workers each reduce some outputs.
///
/// Assumption: with fewer outputs than workers they first reduce parts of the inputs, which one of them
/// then combines, without another launch. Floats go by vectors whatever the function, integers and bool one
/// by one.
pub(super) fn cycles(axes: &[u8], operands: &[OperandType], chip: &Chip) -> VertexCost {
    let [input, out] = [operands[0], operands[1]];
    let shape = Geometry::new(axes, input.lens);
    let width = if input.dtype.is_float() { cost::vector_len(input.dtype, chip) } else { 1 };
    let slots = if shape.inner > 1 || shape.run <= 1 {
        continuous(&shape, width, chip)
    } else {
        strided(&shape, width, store_slots(width, out.dtype, chip), chip)
    };
    cost::supervisor(slots, 0, chip)
}

/// "Continuous: 12/output + P/vec". Assumption: each further run of inputs costs the "10/partials ptr" of
/// the general formula.
fn continuous(shape: &Geometry, width: u64, chip: &Chip) -> Cycles {
    let output = |outer: u64, inner: u64| {
        c(12) + c(10) * c(outer.saturating_sub(1)) + c(outer) * c(inner.div_ceil(width))
    };
    let whole = c(SET_UP) + c(cost::per_worker(shape.outputs, chip)) * output(shape.outer, shape.inner);
    let parts = cost::sharers(shape.outputs, chip);
    let (outer, inner) = if shape.outer >= parts {
        (shape.outer.div_ceil(parts), shape.inner)
    } else {
        (shape.outer, shape.inner.div_ceil(parts))
    };
    let split = c(SET_UP) + output(outer, inner) + c(SET_UP) + output(1, parts);
    if parts > 1 { whole.min(split) } else { whole }
}

/// "Strided: 16 + outer(6 + post + strides(3 + (P-1)))", where an outer step is one vector of outputs, and
/// has one stride.
fn strided(shape: &Geometry, width: u64, post: u64, chip: &Chip) -> Cycles {
    let vectors = c(shape.outputs / shape.run.max(1)) * c(shape.run.div_ceil(width));
    let step = |partials: u64| c(6) + c(post) + c(3) + c(partials.saturating_sub(1));
    let whole = c(SET_UP) + c(cost::per_worker(vectors.0, chip)) * step(shape.outer);
    let parts = cost::sharers(vectors.0, chip);
    let split = c(SET_UP) + step(shape.outer.div_ceil(parts)) + c(SET_UP) + step(parts);
    if parts > 1 { whole.min(split) } else { whole }
}

/// Assumption: the "post" of the strided formula is a slot for each 64 bits stored (section 2: 64-bit
/// stores, most instructions one slot), and one more to round the sums, which are f32, to a shorter float.
fn store_slots(width: u64, out: DType, chip: &Chip) -> u64 {
    let stores = width.saturating_mul(out.size_bytes()).div_ceil(chip.issue.vector_bytes.max(1));
    stores.max(1) + u64::from(out.is_float() && out != DType::F32)
}

#[cfg(test)]
mod tests;
