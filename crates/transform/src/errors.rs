//! Every message this crate shows a user.

use pando_base::Error;
use pando_graph::TensorType;
use std::fmt::Display;

fn list(types: &[&TensorType]) -> String {
    types.iter().map(|ty| ty.to_string()).collect::<Vec<_>>().join(", ")
}

pub fn weight_of_integers(ty: &TensorType) -> Error {
    Error::new(format!("a weight {ty} cannot be trained; weights are floats"))
}

pub fn wrong_gradient(gradient: &TensorType, weight: &TensorType) -> Error {
    Error::new(format!(
        "the gradient is {gradient}, the weight is {weight}; a gradient is of floats in the weight's dimensions"
    ))
}

pub fn no_gradient() -> Error {
    Error::new("the update has no gradient; only a combined velocity can hold it already")
}

pub fn no_combined_velocity() -> Error {
    Error::new("only SGD with a velocity scaling adds gradients to its velocity; use accumulators instead")
}

pub fn no_seed() -> Error {
    Error::new("stochastic rounding needs a seed, u32[2]")
}

pub fn wrong_types(what: &str, found: &[&TensorType], expected: &[&TensorType]) -> Error {
    Error::new(format!("the optimizer takes {what} ({}), found ({})", list(expected), list(found)))
}

pub fn unknown_optimizer(name: &str) -> Error {
    let known = "sgd, adam, adamw, adamax, lamb, rmsprop, adagrad, adadelta";
    Error::new(format!("there is no optimizer '{name}'; there are: {known}"))
}

pub fn unknown_setting(of: &str, setting: &str, known: &[&str]) -> Error {
    Error::new(format!(
        "{of} has no setting '{setting}'; it has: {}",
        if known.is_empty() { "none".into() } else { known.join(", ") }
    ))
}

pub fn no_probability(value: f64) -> Error {
    Error::new(format!("dropout with probability {value}; a probability is from 0 to 1"))
}

pub fn nothing_to_clip() -> Error {
    Error::new("there are no gradients to clip; state which weights are trained")
}

pub fn unknown_loss(name: &str, known: &[&str]) -> Error {
    Error::new(format!("there is no loss '{name}'; there are: {}", known.join(", ")))
}

pub fn wrong_loss_operands(loss: &str, what: &str, found: usize) -> Error {
    Error::new(format!("{loss} takes {what}, found {found} values"))
}

pub fn wrong_loss_operand(loss: &str, what: &str, expected: impl Display, found: &TensorType) -> Error {
    Error::new(format!("{loss}: {what} is {found}, expected {expected}"))
}

pub fn wrong_loss_number(loss: &str, what: &str, range: &str, found: f64) -> Error {
    Error::new(format!("{loss}: {what} is {found}; it is {range}"))
}

pub fn unknown_value(name: &str) -> Error {
    Error::new(format!(
        "there is no weight, buffer or input '{name}' in this program; list it in the network"
    ))
}

pub fn unknown_weight(name: &str) -> Error {
    Error::new(format!("a group trains '{name}', which is no weight of the network"))
}

pub fn weight_in_two_groups(name: &str) -> Error {
    Error::new(format!("the weight '{name}' is listed twice; one group trains it"))
}

pub fn two_groups_of_the_rest() -> Error {
    Error::new("two groups take the weights that no group lists; list those of one of them")
}

pub fn two_groups_of_a_name(name: &str) -> Error {
    Error::new(format!("there are two groups '{name}'; give them different names"))
}

pub fn no_micro_batches() -> Error {
    Error::new("an update of no gradients; use 1 micro-batch and 1 replica or more")
}

pub fn combined_velocity_and(group: &str, what: &str) -> Error {
    Error::new(format!(
        "the group '{group}' has a combined velocity, whose gradients {what} cannot reach; leave out its velocity scaling"
    ))
}

pub fn wrong_loss(ty: &TensorType) -> Error {
    Error::new(format!("the loss is {ty}, not a single float; reduce it with a mean or a sum"))
}

pub fn unknown_buffer(name: &str) -> Error {
    Error::new(format!("the forward function replaces '{name}', which is no buffer of the network"))
}

pub fn wrong_buffer(name: &str, expected: &TensorType, found: &TensorType) -> Error {
    Error::new(format!("the new value of the buffer '{name}' is {found}, the buffer is {expected}"))
}
