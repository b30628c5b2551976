//! Every message this crate shows a user, built here so that they can be read side by side. Each says
//! what, where and what to do. Constraint violations carry the label under which `ops/` lists them.

use crate::types::{Dim, TensorType};
use pando_base::Error;
use std::fmt::Display;

/// An op's constraint is violated; `label` is its number in the op's definition, such as `C2`.
pub fn constraint(op: &str, label: &str, what: impl Display) -> Error {
    Error::new(format!("{op} ({label}): {what}"))
}

pub fn unknown_dims(ty: &TensorType) -> Error {
    let names: Vec<String> = ty.dims.iter().filter(|dim| dim.known().is_none()).map(Dim::to_string).collect();
    let names = names.join(", ");
    Error::new(format!(
        "the type {ty} has sizes without a number: {names}; give each a number (--dim NAME=N)"
    ))
}

pub fn too_large(what: impl Display) -> Error {
    Error::new(format!("{what} would have 2^60 elements or more; use smaller sizes"))
}

pub fn unknown_id(what: &str, id: impl Display) -> Error {
    Error::new(format!("{what} {id} does not exist"))
}

pub fn bad_name(what: &str, name: &str) -> Error {
    Error::new(format!(
        "{name:?} cannot name a {what}: use letters, digits, '_' and single '.'s inside; a value's name \
         needs more than digits, a dimension's starts with a letter or '_' and is no element type"
    ))
}

pub fn duplicate_name(what: &str, name: &str) -> Error {
    Error::new(format!("the {what} name '{name}' is used twice; names are unique"))
}

pub fn used_before_defined(value: impl Display) -> Error {
    Error::new(format!("{value} is used before it is defined; move its definition up"))
}

pub fn wrong_result_type(value: impl Display, stated: &TensorType, inferred: &TensorType) -> Error {
    Error::new(format!("{value} is stated as {stated} but is {inferred}"))
}

pub fn wrong_result_count(op: &str, stated: usize, inferred: usize) -> Error {
    Error::new(format!("{op} has {inferred} result(s), {stated} stated"))
}

pub fn wrong_definition(value: impl Display) -> Error {
    Error::new(format!("{value} does not point back to the place that defines it"))
}

pub fn recursion(func: &str) -> Error {
    Error::new(format!("@{func} calls itself, directly or through others; use while or repeat instead"))
}

pub fn calls_too_deep(func: &str, limit: usize) -> Error {
    Error::new(format!("calls below @{func} nest deeper than {limit}"))
}

pub fn wrong_const_data(name: &str, what: impl Display) -> Error {
    Error::new(format!("constant @{name}: {what}"))
}

pub fn unknown_op(name: &str, closest: Option<&str>) -> Error {
    let hint = closest.map_or_else(String::new, |op| format!("; did you mean '{op}'?"));
    Error::new(format!("there is no op '{name}'{hint}"))
}

pub fn unknown_attribute(op: &str, name: &str, known: &[&str]) -> Error {
    let known = if known.is_empty() { "none".into() } else { known.join(", ") };
    Error::new(format!("{op} has no attribute '{name}'; it has: {known}"))
}

pub fn missing_attribute(op: &str, name: &str, form: &str) -> Error {
    Error::new(format!("{op} needs the attribute {name}={form}"))
}

pub fn wrong_attribute(op: &str, name: &str, form: &str) -> Error {
    Error::new(format!("{op}: the attribute {name} has the form {name}={form}"))
}

pub fn unknown_value(name: &str) -> Error {
    Error::new(format!("there is no value %{name} above this line; define it before its use"))
}

pub fn unknown_symbol(what: &str, name: &str) -> Error {
    Error::new(format!("there is no {what} @{name} in this text"))
}

pub fn wrong_literal_count(expected: impl Display, found: usize) -> Error {
    Error::new(format!("expected {expected} elements, found {found}"))
}

pub fn literal_out_of_range(dtype: impl Display, value: impl Display) -> Error {
    Error::new(format!("{value} is no {dtype}"))
}

pub fn wrong_argument_count(expected: usize, found: usize) -> Error {
    Error::new(format!("takes {expected} argument(s), found {found}"))
}

pub fn wrong_argument(position: usize, expected: &TensorType, found: &TensorType) -> Error {
    Error::new(format!("argument {position} is {found}, the parameter's type is {expected}"))
}

pub fn too_many_bytes(needed: u128, limit: u64) -> Error {
    Error::new(format!("needs {needed} bytes in all, more than the limit of {limit} (max_bytes)"))
}

pub fn too_many_steps(limit: u64) -> Error {
    Error::new(format!("stopped after {limit} operations (max_steps)"))
}

pub fn unbound_name(name: &str) -> Error {
    Error::new(format!("no dimension is named '{name}'; nothing to bind"))
}

pub fn binding_conflict(name: &str, first: &Dim, second: &Dim) -> Error {
    Error::new(format!("the dimension '{name}' would be both {first} and {second}"))
}

pub fn differs(what: impl Display) -> Error {
    Error::new(what.to_string())
}

pub fn bad_directive(kind: &str, form: &str) -> Error {
    Error::new(format!("a '; {kind}' line has the form: {form}"))
}

pub fn missing_symbol(op: &str) -> Error {
    Error::new(format!("{op} needs a name after it: {op} @name"))
}

pub fn used_param(name: &str) -> Error {
    Error::new(format!("the parameter %{name} is used but not among those to keep"))
}

pub fn missing_result_type(op: &str) -> Error {
    Error::new(format!("{op} takes attributes from its result's type; give the type, such as f32[2,3]"))
}

pub fn stray_symbol(op: &str, name: &str) -> Error {
    Error::new(format!("{op} takes no @{name} after it"))
}

pub fn too_many_operations(most: u64) -> Error {
    Error::new(format!(
        "@main: with every call replaced by its body the model has more than {most} operations"
    ))
}

pub fn wrong_seed(output: &TensorType, seed: &TensorType) -> Error {
    Error::new(format!("a gradient's seed is {seed}, its output {output}; give them one type"))
}

pub fn not_differentiable(op: &str, why: &str) -> Error {
    Error::new(format!("{op} has no gradient: {why}"))
}

pub fn no_channels(ty: &TensorType) -> Error {
    Error::new(format!("{ty} has no channels to normalize; give it the form [N, C, …]"))
}

pub fn no_stochastic_rounding(dtype: impl Display) -> Error {
    Error::new(format!("stochastic rounding is from f32 to f16 or bf16; {dtype} is neither"))
}
