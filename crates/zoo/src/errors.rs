//! Every message this crate shows a user.

use pando_base::{DType, Error, Shape};
use std::fmt::Display;

pub fn unknown_model(name: &str, names: &[&str]) -> Error {
    Error::new(format!("there is no built-in model '{name}'; there are: {}", names.join(", ")))
}

pub fn unknown_size(name: &str, known: &[(&str, u64)]) -> Error {
    let known: Vec<&str> = known.iter().map(|&(name, _)| name).collect();
    Error::new(format!("the model has no size '{name}'; it has: {}", known.join(", ")))
}

pub fn size_out_of_range(name: &str, value: u64, least: u64, most: u64) -> Error {
    Error::new(format!("{name} is {value}; it must be {least} to {most}"))
}

pub fn not_divisible(name: &str, value: u64, by: u64) -> Error {
    Error::new(format!("{name} is {value}; it must be a multiple of {by}"))
}

pub fn wrong_type(dtype: DType) -> Error {
    Error::new(format!("models have weights of f32, f16 or bf16, not {dtype}"))
}

pub fn missing_weights(names: &[String], others: usize) -> Error {
    let more = if others == 0 { String::new() } else { format!(" and {others} more") };
    Error::new(format!("no weights are given for {}{more}", names.join(", ")))
}

pub fn wrong_weight(name: &str, found: &Shape, expected: &[u64]) -> Error {
    Error::new(format!("the weight {name} has shape {found}, the model needs {}", Shape::new(expected)))
}

pub fn bad_option(text: impl Display) -> Error {
    Error::new(format!(
        "'{text}' is no option; write NAME?batch=16&dtype=f16&seed=1 with the sizes the model has"
    ))
}
