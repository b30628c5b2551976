//! Reduce: combines over axes. Sum, product, maximum and minimum of numbers, `and` and `or` of integers
//! and bool; not of 8-bit floats.
//!
//! Our definition of the order: elements are combined in row-major order. Floats are combined in f32 and rounded once to the output, which may be another float type
//! (partial sums of f16 are kept in f32); integers wrap. A maximum or minimum with a NaN is NaN.
//! Cycles: hardware.md section 6.4.

use super::combine::{self, Combine, Combining};
use super::cost::{self, Cycles, c};
use super::values::{self, Sizes};
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
    if !combine::are_alike(input.dtype, out.dtype) {
        return Err(format!("reduces {input} to {out}; both need one type, or f32, f16 and bf16"));
    }
    combine::check_type(func, input.dtype)?;
    let kept: Vec<u64> =
        (0..rank).filter(|&dim| !axes.contains(&(dim as u8))).map(|dim| input.lens[dim]).collect();
    if !same_but_ones(&kept, out.lens) {
        return Err(format!("{input} without axes {axes:?} is not {out}"));
    }
    Ok(())
}

pub(super) fn run(func: ReduceFn, axes: &[u8], args: &mut [Arg]) {
    let [input, out] = args else { unreachable!("reduce has two operands") };
    let reduction = Reduction { func, walk: Walk::new(axes, &values::sizes(input.data.shape())) };
    combine::run(&reduction, &[&input.data], &mut out.data);
}

struct Reduction {
    func: ReduceFn,
    walk: Walk,
}

impl Combining for Reduction {
    fn run<T: Combine>(&self, inputs: &[&[T]], out: &mut [T]) {
        out.fill(T::neutral(self.func));
        self.walk.fold(inputs[0], out, |a, b| T::combine(self.func, a, b));
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
