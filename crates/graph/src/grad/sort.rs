//! The rule of sort: every gradient goes back to where its element came from.

use super::indexing::scatter_along;
use super::{Gradients, Visit};
use crate::builder::Builder;
use crate::module::ValueId;
use crate::op::{Op, Sort};
use pando_base::{DType, Result};

pub(super) fn sort(b: &mut Builder, at: &Visit, sort: &Sort) -> Result<Gradients> {
    let places = places(b, at, sort)?;
    let gradient = |result: &Option<ValueId>| {
        result.map(|result| scatter_along(b, result, places, sort.axis)).transpose()
    };
    at.results.iter().map(gradient).collect()
}

/// Where each result element was along the axis: a payload that the same sort moves. It takes the old sort's
/// place, so that equal keys are ordered once.
fn places(b: &mut Builder, at: &Visit, sort: &Sort) -> Result<ValueId> {
    let mut operands = at.node.operands.clone();
    let number = b.iota(b.ty(operands[0]).with_dtype(DType::I32), sort.axis)?;
    if let Some(position) = operands.iter().position(|&operand| operand == number) {
        return Ok(at.node.results[position]);
    }
    operands.push(number);
    let results = b.insert(Op::Sort(sort.clone()), &operands)?;
    b.supersede(&at.node.results, &results);
    Ok(*results.last().expect("a sort has a result for each operand"))
}
