//! What users are told when a model cannot be lowered.

use pando_base::Error;
use pando_machine::Machine;

pub fn no_main() -> Error {
    Error::new("the module has no function named 'main'; name the one to compile so")
}

/// All at once, so that a user sees the whole distance.
pub fn unsupported(operations: &[String]) -> Error {
    let list = operations.join("; ");
    Error::new(format!(
        "{} operation(s) cannot be lowered to tiles yet: {list}. `pando run` computes the model without a system",
        operations.len()
    ))
}

pub fn no_elements(func: &str, value: &str) -> Error {
    Error::new(format!("{func}: {value} has no elements, so there is nothing to place on tiles"))
}

/// `operation` as steps are called: `dot/y`.
pub fn kernel_refuses(operation: &str, reason: &str) -> Error {
    let (op, value) = operation.split_once('/').unwrap_or((operation, "?"));
    let reason = reason.split_once(") ").map_or(reason, |(_, rest)| rest);
    Error::new(format!(
        "{op} (%{value}) cannot be lowered to tiles: {reason}. `pando run` computes the model without a system"
    ))
}

pub fn too_many_elements(func: &str, value: &str) -> Error {
    Error::new(format!(
        "{func}: {value} has more than 2^40 elements, more than any machine holds; use smaller sizes"
    ))
}

pub fn no_stage_end(name: &str) -> Error {
    Error::new(format!(
        "--stage-end {name}: no operation after the last stage's end, with others behind it, computes a value of that name"
    ))
}

pub fn too_few_operations(stages: usize) -> Error {
    Error::new(format!("--stages {stages}: the model has fewer operations than that; use fewer stages"))
}

pub fn too_many_io_tiles(io_tiles: u32, machine: &Machine) -> Error {
    Error::new(format!(
        "--io-tiles {io_tiles}: a chip of {} has {} tiles, and some have to work; use fewer",
        machine.name, machine.chip.tiles
    ))
}

pub fn branches_with_io_tiles() -> Error {
    Error::new(
        "--io-tiles: the model branches on data, in which every tile takes part, so none can be reserved for the host; use 0",
    )
}
