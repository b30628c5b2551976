//! Rules of scans.

use super::indexing::scatter_along;
use super::layout::{self, part};
use super::{Gradients, Visit};
use crate::builder::Builder;
use crate::errors;
use crate::module::ValueId;
use crate::op::{Pad, Scan};
use pando_base::{CompareFn, DType, ReduceFn, Result};
use smallvec::smallvec;

pub(super) fn scan(b: &mut Builder, at: &Visit, scan: &Scan) -> Result<Gradients> {
    let (x, y, gradient) = (at.operand(0), at.result(), at.gradient());
    let result = match scan.func {
        ReduceFn::Sum => b.scan(gradient, backward(scan)),
        ReduceFn::Prod => product(b, scan, x, y, gradient),
        ReduceFn::Max | ReduceFn::Min => extreme(b, scan, x, gradient),
        ReduceFn::And | ReduceFn::Or => Err(errors::not_differentiable("scan", "it combines no numbers")),
    };
    Ok(smallvec![Some(result?)])
}

/// The sum over the results that an element is part of: from the other end.
fn backward(scan: &Scan) -> Scan {
    Scan { func: ReduceFn::Sum, reverse: !scan.reverse, ..scan.clone() }
}

/// `Σ gradient · result / element` over the results that an element is part of, up to the first zero. Its own
/// gradient is that sum with a one in its place; behind it all results stay zero.
fn product(b: &mut Builder, scan: &Scan, x: ValueId, y: ValueId, gradient: ValueId) -> Result<ValueId> {
    let sum_of = |b: &mut Builder, results: ValueId| -> Result<ValueId> {
        let products = b.mul(gradient, results)?;
        b.scan(products, backward(scan))
    };
    let (zero, one) = (b.splat_like(x, 0.0)?, b.splat_like(x, 1.0)?);
    let is_zero = b.compare(CompareFn::Eq, x, zero)?;
    let count = b.convert(is_zero, DType::I32)?;
    let count = b.scan(count, Scan { func: ReduceFn::Sum, exclusive: false, ..scan.clone() })?;
    let (none, first) = (b.splat_like(count, 0.0)?, b.splat_like(count, 1.0)?);
    let before_zeros = b.compare(CompareFn::Eq, count, none)?;
    let up_to_second = b.compare(CompareFn::Eq, count, first)?;
    let is_first = b.and(is_zero, up_to_second)?;
    let sum = sum_of(b, y)?;
    let divisor = b.select(before_zeros, x, one)?;
    let quotient = b.div(sum, divisor)?;
    let without_first = b.select(is_first, one, x)?;
    let results = b.scan(without_first, scan.clone())?;
    let at_first = sum_of(b, results)?;
    let others = b.select(is_first, at_first, zero)?;
    b.select(before_zeros, quotient, others)
}

/// To the element that is the result: of equal ones the latest.
fn extreme(b: &mut Builder, scan: &Scan, x: ValueId, gradient: ValueId) -> Result<ValueId> {
    let inclusive = Scan { exclusive: false, ..scan.clone() };
    let gradient = if scan.exclusive { without_start(b, scan, gradient)? } else { gradient };
    let y = b.scan(x, inclusive.clone())?;
    let is_new = b.compare(CompareFn::Eq, x, y)?;
    let number = b.iota(b.ty(x).with_dtype(DType::I32), scan.axis)?;
    let size = b.ty(x).require_shape()?[scan.axis];
    // Going backward the latest is the one with the lowest number.
    let (func, start) = if scan.reverse { (ReduceFn::Min, size as f64) } else { (ReduceFn::Max, -1.0) };
    let start = b.splat_like(number, start)?;
    let candidate = b.select(is_new, number, start)?;
    let places = b.scan(candidate, Scan { func, ..inclusive })?;
    scatter_along(b, gradient, places, scan.axis)
}

/// An exclusive scan's gradient as that of the inclusive one: moved by one place; of its start there is none.
fn without_start(b: &mut Builder, scan: &Scan, gradient: ValueId) -> Result<ValueId> {
    let shape = b.ty(gradient).require_shape()?;
    let size = shape[scan.axis];
    if size == 0 {
        return Ok(gradient);
    }
    let mut pad =
        Pad { low: vec![0; shape.rank()], high: vec![0; shape.rank()], interior: vec![0; shape.rank()] };
    let start = if scan.reverse { 0 } else { 1 };
    (if scan.reverse { &mut pad.low } else { &mut pad.high })[scan.axis] = 1;
    let rest = part(b, gradient, scan.axis, start, size - 1)?;
    let zero = layout::zero(b, b.ty(gradient).dtype);
    b.pad(rest, zero, pad)
}
