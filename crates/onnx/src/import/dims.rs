//! The names of sizes that a user may give numbers for.

use super::names;
use crate::errors;
use crate::proto::{DimensionValue, GraphProto, TypeValue, ValueInfoProto};
use pando_base::Result;
use pando_graph::Dim;

/// A number for a name that no input has is a slip of the pen.
pub(super) fn check(graph: &GraphProto, given: &[(String, u64)]) -> Result<()> {
    let known: Vec<Dim> = graph.input.iter().flat_map(named).collect();
    let stranger = given.iter().find(|(name, _)| {
        // As in the file, or as the graph spells it.
        !known.contains(&names::dim(name)) && !known.contains(&Dim::named(name))
    });
    let Some((name, _)) = stranger else { return Ok(()) };
    let mut known: Vec<String> = known.iter().map(Dim::to_string).collect();
    known.sort();
    known.dedup();
    Err(errors::unknown_dim(name, &known))
}

/// The dimensions of an input that are no numbers.
fn named(info: &ValueInfoProto) -> Vec<Dim> {
    let Some(TypeValue::Tensor(tensor)) = info.r#type.as_ref().and_then(|ty| ty.value.as_ref()) else {
        return Vec::new();
    };
    let axes = tensor.shape.iter().flat_map(|shape| &shape.dim).enumerate();
    axes.filter_map(|(axis, dim)| match &dim.value {
        Some(DimensionValue::DimValue(size)) if *size >= 0 => None,
        Some(DimensionValue::DimParam(name)) if !names::symbol(name).is_empty() => Some(names::dim(name)),
        _ => Some(names::dim(&format!("{}_{axis}", info.name))),
    })
    .collect()
}
