//! Every message this crate shows a user.

use pando_base::{DType, Error, Shape};
use pando_graph::TensorType;

pub fn no_main() -> Error {
    Error::new("the module has no function @main to compile")
}

pub fn in_func(error: Error, name: &str) -> Error {
    error.context(format!("func @{name}"))
}

pub fn wrong_input_count(expected: usize, found: usize) -> Error {
    Error::new(format!("the model takes {expected} input(s), found {found}"))
}

pub fn wrong_input(position: usize, expected: &TensorType, dtype: DType, shape: &Shape) -> Error {
    Error::new(format!("input {position} is {dtype}{shape}, the model takes {expected}"))
}

pub fn binding_conflict(name: &str, first: u64, second: u64) -> Error {
    Error::new(format!("the dimension '{name}' would be both {first} and {second}; make the inputs agree"))
}

pub fn wrong_output(position: usize, expected: &str, found: &str) -> Error {
    Error::new(format!("output {position} was given room for {found}, it is {expected}"))
}

pub fn too_large(bytes: u128) -> Error {
    Error::new(format!("a plan for these sizes needs {bytes} bytes of memory; use smaller inputs"))
}

pub fn too_much_state(state: usize, params: usize) -> Error {
    Error::new(format!("{state} parameters are to be state, @main has {params}"))
}

pub fn wrong_alias(param: usize, result: usize, why: &str) -> Error {
    Error::new(format!("result {result} cannot replace parameter {param}: {why}"))
}

pub fn wrong_state_count(expected: usize, found: usize) -> Error {
    Error::new(format!(
        "the model has {expected} variable(s) of state, found {found}; pass them to `run_in_place`"
    ))
}

pub fn wrong_state(position: usize, expected: &TensorType, dtype: DType, shape: &Shape) -> Error {
    Error::new(format!("state {position} is {dtype}{shape}, the model has {expected}"))
}

pub fn no_such_isa(name: &str, available: &str) -> Error {
    Error::new(format!("this computer has no instructions called {name:?}: choose one of {available}"))
}
