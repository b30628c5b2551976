//! From a forward function to the programs of a training job and the state that they share: `step`, or `accumulate`
//! and `update` where several micro-batches make one update, and `eval`.
//!
//! State, by name: weights and buffers under their own; `WEIGHT.SLOT` for what the optimizer keeps of a weight
//! (`fc.weight.exp_avg`), `GROUP.step` for what all weights of a group share, `GROUP.lr` and so on for
//! hyperparameters, which may be set between steps; `WEIGHT.accumulator` and `accumulation.count`; `random.seed`;
//! `max_grad_norm`; `loss_scale` and `loss_scale.good_steps`.
//! `scope.rs`: what a forward function sees. `plan.rs`: the programs. `update.rs`: from gradients to new weights.
//! `draft.rs`: a program under construction.

mod draft;
mod plan;
mod scope;
mod update;

pub use scope::Scope;

use crate::accumulate::Accumulation;
use crate::loss_scaling::Automatic;
use crate::optimizer::Optimizer;
use crate::program::Program;
use pando_base::{Result, Tensor};
use pando_graph::{Builder, TensorType, ValueId, known_dims};

/// What a forward function takes.
#[derive(Clone, Debug, Default)]
pub struct Network {
    pub weights: Vec<(String, Tensor)>,
    /// What the forward function replaces rather than an optimizer: running statistics.
    pub buffers: Vec<(String, Tensor)>,
    /// Sizes may have names: batches of any size.
    pub inputs: Vec<(String, TensorType)>,
}

/// What a forward function gives.
#[derive(Clone, Debug)]
pub struct Forward {
    /// A float without dimensions.
    pub loss: ValueId,
    /// What programs give beside the loss.
    pub outputs: Vec<(String, ValueId)>,
    /// New values of buffers, for training; those that are not listed stay.
    pub buffers: Vec<(String, ValueId)>,
}

impl Forward {
    /// Only a loss.
    pub fn new(loss: ValueId) -> Self {
        Forward { loss, outputs: Vec::new(), buffers: Vec::new() }
    }
}

/// Weights that are updated by one optimizer with the same hyperparameters.
#[derive(Clone, Debug)]
pub struct Group {
    /// The state of its hyperparameters is called `NAME.lr`, ….
    pub name: String,
    pub optimizer: Optimizer,
    /// `None`: all that no other group lists. A weight that no group has stays as it is.
    pub weights: Option<Vec<String>>,
}

/// The factor of the loss from which gradients are computed, for gradients in f16.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum LossScale {
    #[default]
    None,
    /// In state: may be set between steps.
    Static(f64),
    /// Where it starts, and how it adapts.
    Automatic(f64, Automatic),
}

#[derive(Clone, Debug)]
pub struct Training {
    pub groups: Vec<Group>,
    pub accumulation: Accumulation,
    pub max_grad_norm: Option<f64>,
    pub loss_scale: LossScale,
    /// Where random numbers start.
    pub seed: u64,
}

impl Training {
    /// One optimizer, called `optimizer`, for all weights; one batch makes an update.
    pub fn new(optimizer: Optimizer) -> Self {
        let group = Group { name: "optimizer".into(), optimizer, weights: None };
        Training {
            groups: vec![group],
            accumulation: Accumulation::default(),
            max_grad_norm: None,
            loss_scale: LossScale::None,
            seed: 0,
        }
    }
}

/// Programs and the state that they share, ready for a session.
#[derive(Clone, Debug, Default)]
pub struct Job {
    pub programs: Vec<(String, Program)>,
    pub state: Vec<(String, Tensor)>,
    /// Runs of `accumulate` before one of `update`; 1 where there is `step`.
    pub micro_batches: u64,
}

/// The programs that train a network, and evaluate it. All but `update` give the loss first, then what `forward`
/// gives. `forward` is called once for each program that computes a loss.
pub fn job(
    network: &Network,
    training: &Training,
    forward: impl Fn(&mut Builder, &mut Scope) -> Result<Forward>,
) -> Result<Job> {
    let plan = plan::Plan::new(network, training)?;
    let programs = match training.accumulation.count() {
        1 => vec![("step", plan.step(&forward)?)],
        _ => vec![("accumulate", plan.accumulate(&forward)?), ("update", plan.update()?)],
    };
    let eval = ("eval", plan.eval(&forward)?);
    let named = programs.into_iter().chain([eval]).map(|(name, program)| (name.into(), program));
    Ok(Job { programs: named.collect(), state: plan.state(), micro_batches: training.accumulation.count() })
}

fn type_of(tensor: &Tensor) -> TensorType {
    TensorType { dtype: tensor.dtype(), dims: known_dims(tensor.shape()) }
}
