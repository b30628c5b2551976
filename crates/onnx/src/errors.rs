//! Every message this crate shows a user. Each says what, where and what to do.

use crate::elem::Elem;
use crate::import::Unsupported;
use pando_base::Error;
use std::fmt::Display;

pub fn unreadable(what: impl Display, error: impl Display) -> Error {
    Error::new(format!("cannot read {what}: {error}"))
}

pub fn not_onnx(error: impl Display) -> Error {
    Error::new(format!(
        "is no ONNX model, or a damaged one ({error}); check that the file is complete and was written by an \
         ONNX exporter"
    ))
}

pub fn no_graph() -> Error {
    Error::new("is no ONNX model: it holds no graph; check that the file is complete")
}

pub fn opset_out_of_range(version: i64, low: i64, high: i64) -> Error {
    Error::new(format!(
        "uses version {version} of the default operator set; versions {low} to {high} are supported; convert \
         the model with onnx.version_converter"
    ))
}

pub fn bad_tensor(name: &str, what: impl Display) -> Error {
    Error::new(format!("tensor '{name}': {what}"))
}

pub fn unsupported_elem(elem: Elem) -> Error {
    Error::new(format!("the element type {elem} is not supported here"))
}

pub fn path_escapes(tensor: &str, location: &str) -> Error {
    bad_tensor(
        tensor,
        format!(
            "its external data file '{location}' lies outside the model's folder; paths are relative, without '..'"
        ),
    )
}

pub fn external_unavailable(tensor: &str, location: &str, why: impl Display) -> Error {
    bad_tensor(
        tensor,
        format!("its external data file '{location}' cannot be read ({why}); keep it beside the model"),
    )
}

pub fn bad_type(name: &str, what: impl Display) -> Error {
    Error::new(format!("the type of '{name}': {what}"))
}

pub fn undefined_name(name: &str) -> Error {
    Error::new(format!(
        "'{name}' is not defined by an input, an initializer or an earlier node; nodes must be in topological \
         order, without cycles"
    ))
}

pub fn unknown_input(name: &str, known: &[String]) -> Error {
    Error::new(format!("the model has no input '{name}'; it has: {}", known.join(", ")))
}

pub fn unknown_dim(name: &str, known: &[String]) -> Error {
    let known = if known.is_empty() {
        "there are none".to_string()
    } else {
        format!("they are {}", known.join(", "))
    };
    Error::new(format!("the model's inputs have no named dimension '{name}' to give a size to; {known}"))
}

pub fn wrong_sample(name: &str, declared: impl Display, found: impl Display) -> Error {
    Error::new(format!("the value given for input '{name}' is {found}, the model declares {declared}"))
}

pub fn input_not_given(name: &str, ty: impl Display) -> Error {
    Error::new(format!("no tensor is given for input '{name}', which is {ty}"))
}

pub fn sizes_differ(name: &str, first: u64, second: u64) -> Error {
    Error::new(format!("the inputs give the dimension {name} two sizes, {first} and {second}"))
}

pub fn missing_input(position: usize) -> Error {
    Error::new(format!("input {position} is missing"))
}

pub fn not_a_tensor(position: usize, found: &str) -> Error {
    Error::new(format!("input {position} is {found}, not a tensor"))
}

pub fn needs_value(position: usize) -> Error {
    Error::new(format!(
        "input {position} must be known when the model is imported, for sizes depend on it; give the values \
         of the model inputs it comes from (Options::sample)"
    ))
}

pub fn needs_size(what: impl Display) -> Error {
    Error::new(format!(
        "{what} must have a known size; give numbers to the named dimensions of the inputs (--dim NAME=N)"
    ))
}

pub fn wrong_attribute(name: &str, what: impl Display) -> Error {
    Error::new(format!("attribute {name}: {what}"))
}

pub fn missing_attribute(name: &str) -> Error {
    Error::new(format!("the attribute {name} is missing"))
}

pub fn bad_axis(axis: i64, rank: usize) -> Error {
    Error::new(format!("axis {axis} of a value of rank {rank}"))
}

pub fn wrong_rank(ty: impl Display, ranks: &std::ops::RangeInclusive<usize>) -> Error {
    let wanted = match (*ranks.start(), *ranks.end()) {
        (low, high) if low == high => format!("{low}"),
        (low, usize::MAX) => format!("{low} at least"),
        (low, high) => format!("{low} to {high}"),
    };
    Error::new(format!("an operand is {ty}, its rank must be {wanted}"))
}

pub fn cannot_broadcast(a: impl Display, b: impl Display) -> Error {
    Error::new(format!("{a} and {b} do not broadcast"))
}

pub fn invalid(what: impl Display) -> Error {
    Error::new(what.to_string())
}

pub fn unknown_op(op: &str, domain: &str) -> Error {
    match domain {
        "" => Error::new(format!("there is no translation of {op}")),
        _ => Error::new(format!("there is no translation of {domain}.{op}")),
    }
}

/// A subgraph or function in which a node failed: the cause has been noted at that node.
pub fn failed_inside() -> Error {
    Error::new("a node inside failed")
}

pub fn nests_too_deep() -> Error {
    Error::new("functions and subgraphs nest deeper than 64, or a function calls itself")
}

pub fn too_much_work(what: impl Display) -> Error {
    Error::new(format!("{what} is too large to unroll"))
}

pub fn no_onnx_op(op: &pando_graph::Op, what: impl Display) -> Error {
    Error::new(format!("ONNX has no operator for {op} {what}; the graph cannot be exported"))
}

pub fn no_onnx_type(dtype: pando_base::DType) -> Error {
    Error::new(format!(
        "few of ONNX's operators take {dtype}; convert such values before the graph is exported"
    ))
}

pub fn too_large_to_export() -> Error {
    Error::new("the model is larger than 2 GiB, more than an ONNX file can hold")
}

pub fn no_main() -> Error {
    Error::new("the module has no function named 'main'")
}

/// All of a model's unsupported operators at once.
pub fn unsupported(list: &[Unsupported]) -> Error {
    let lines: Vec<String> = list.iter().map(|item| format!("\n  {item}")).collect();
    Error::new(format!("{} node(s) cannot be imported:{}", list.len(), lines.concat()))
}
