//! Every message a user can get from this crate, one named function each.

use pando_base::{DType, Error, Shape, Tensor};
use pando_tile::Var;

pub fn missing_input(var: &Var) -> Error {
    Error::new(format!("there is no value for %{}: give a {}{}", var.name, var.dtype, var.shape))
}

pub fn wrong_input(var: &Var, given: &Tensor) -> Error {
    let (dtype, shape): (DType, &Shape) = (given.dtype(), given.shape());
    Error::new(format!(
        "%{} is {}{}, the value given for it is {dtype}{shape}",
        var.name, var.dtype, var.shape
    ))
}

pub fn too_much_memory(needed: u128, limit: u64) -> Error {
    let mib = |bytes: u128| bytes.div_ceil(1 << 20);
    Error::new(format!(
        "computing the values of all tiles takes about {} MiB, more than the limit of {} MiB; raise the limit, \
         use a smaller model, or ask for the timing only",
        mib(needed),
        mib(limit.into())
    ))
}

pub fn foreign(what: &str, var: &Var, tile: u32) -> Error {
    Error::new(format!("{what} touches part of %{} that tile {tile} does not hold", var.name))
}

pub fn unwritten(what: &str, var: &Var, tile: u32) -> Error {
    Error::new(format!("{what} reads part of %{} on tile {tile} that was never written", var.name))
}

pub fn narrow_window(what: &str, tile: u32) -> Error {
    Error::new(format!(
        "{what} on tile {tile} needs inputs outside of its input operand; widen that operand's region to the \
         window of its outputs"
    ))
}

pub fn tiles_disagree(var: &Var) -> Error {
    Error::new(format!(
        "tiles branch on different values of %{}; exchange one value to all of them before the branch",
        var.name
    ))
}

pub fn endless_loop(var: &Var) -> Error {
    Error::new(format!("a loop while %{} is set ran 2^32 times; let its condition become false", var.name))
}
