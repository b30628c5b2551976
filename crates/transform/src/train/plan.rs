//! The programs of a job, each from the state that it needs.

use super::draft::Draft;
use super::update;
use super::{Forward, Group, LossScale, Network, Scope, Training, type_of};
use crate::errors;
use crate::loss_scaling;
use crate::optimizer::{Optimizer, Rule};
use crate::program::Program;
use crate::random;
use pando_base::{DType, Result, Tensor};
use pando_graph::{Builder, ValueId};

/// A name and what it stands for.
pub(super) type Named<T> = (String, T);

/// What all programs of a job are made from: state by what it is for.
pub(super) struct Plan<'a> {
    network: &'a Network,
    pub training: &'a Training,
    /// The weights of each group.
    pub groups: Vec<Vec<&'a Named<Tensor>>>,
    /// What optimizers keep, and their hyperparameters.
    optimizers: Vec<Named<Tensor>>,
    accumulators: Vec<Named<Tensor>>,
    scale: Vec<Named<Tensor>>,
    max_grad_norm: Vec<Named<Tensor>>,
    seed: Named<Tensor>,
}

pub(super) fn is_combined(optimizer: &Optimizer) -> bool {
    matches!(&optimizer.rule, Rule::Sgd(sgd) if sgd.velocity_scaling.is_some())
}

fn number(value: f64) -> Tensor {
    Tensor::scalar(DType::F32, value)
}

impl<'a> Plan<'a> {
    pub fn new(network: &'a Network, training: &'a Training) -> Result<Self> {
        let groups = groups(network, training)?;
        check(training, &groups)?;
        let scale = match training.loss_scale {
            LossScale::None => Vec::new(),
            LossScale::Static(scale) => vec![("loss_scale".into(), number(scale))],
            LossScale::Automatic(scale, _) => {
                vec![("loss_scale".into(), number(scale)), ("loss_scale.good_steps".into(), number(0.0))]
            }
        };
        Ok(Plan {
            network,
            training,
            optimizers: update::optimizer_state(training, &groups),
            accumulators: accumulators(training, &groups),
            groups,
            scale,
            max_grad_norm: training
                .max_grad_norm
                .map(|norm| ("max_grad_norm".into(), number(norm)))
                .into_iter()
                .collect(),
            seed: ("random.seed".into(), random::seed(training.seed)),
        })
    }

    /// All of it, before the first step.
    pub fn state(&self) -> Vec<Named<Tensor>> {
        let parts = [&self.network.weights, &self.network.buffers, &self.optimizers, &self.accumulators];
        let rest = [&self.scale, &self.max_grad_norm].into_iter().flatten().chain([&self.seed]);
        parts.into_iter().flatten().chain(rest).cloned().collect()
    }

    /// A program that reads all that may be needed to train but for these parts.
    fn draft(&self, parts: &[&Vec<Named<Tensor>>], with_inputs: bool, training: bool) -> Draft {
        let state: Vec<&Named<Tensor>> = parts.iter().copied().flatten().chain([&self.seed]).collect();
        Draft::new(&state, if with_inputs { &self.network.inputs } else { &[] }, training)
    }

    pub fn step(&self, forward: &impl Fn(&mut Builder, &mut Scope) -> Result<Forward>) -> Result<Program> {
        let Network { weights, buffers, .. } = self.network;
        let parts = [weights, buffers, &self.optimizers, &self.scale, &self.max_grad_norm];
        let mut draft = self.draft(&parts, true, true);
        let loss = self.forward(&mut draft, forward)?;
        let gradients = self.gradients(&mut draft, loss)?;
        update::apply(self, &mut draft, gradients)?;
        draft.advance_seed()?;
        Ok(draft.finish())
    }

    pub fn accumulate(
        &self,
        forward: &impl Fn(&mut Builder, &mut Scope) -> Result<Forward>,
    ) -> Result<Program> {
        let Network { weights, buffers, .. } = self.network;
        // A combined velocity, and what scales it, is state of the optimizer.
        let combined = self.training.groups.iter().any(|group| is_combined(&group.optimizer));
        let none = Vec::new();
        let optimizers = if combined { &self.optimizers } else { &none };
        let mut draft =
            self.draft(&[weights, buffers, optimizers, &self.accumulators, &self.scale], true, true);
        let loss = self.forward(&mut draft, forward)?;
        let gradients = self.gradients(&mut draft, loss)?;
        let count = draft.read("accumulation.count");
        for (group, gradients) in self.training.groups.iter().zip(gradients) {
            for (name, gradient) in gradients {
                update::accumulate(self, &mut draft, group, &name, gradient)?;
            }
        }
        let one = draft.b.scalar(DType::F32, 1.0);
        let count = draft.b.add(count, one)?;
        draft.write("accumulation.count", count);
        draft.advance_seed()?;
        Ok(draft.finish())
    }

    pub fn update(&self) -> Result<Program> {
        let parts =
            [&self.network.weights, &self.optimizers, &self.accumulators, &self.scale, &self.max_grad_norm];
        let mut draft = self.draft(&parts, false, true);
        let mut gradients = Vec::new();
        for (group, weights) in self.training.groups.iter().zip(&self.groups) {
            let of_group = weights.iter().map(|(name, _)| self.total(&mut draft, group, name));
            gradients.push(of_group.collect::<Result<_>>()?);
        }
        let zero = draft.b.scalar(DType::F32, 0.0);
        draft.write("accumulation.count", zero);
        update::apply(self, &mut draft, gradients)?;
        draft.advance_seed()?;
        Ok(draft.finish())
    }

    /// What has been accumulated for a weight, if not in its velocity; the accumulator is empty again.
    fn total(&self, draft: &mut Draft, group: &Group, weight: &str) -> Result<Named<Option<ValueId>>> {
        if is_combined(&group.optimizer) {
            return Ok((weight.into(), None));
        }
        let name = update::accumulator_name(weight);
        let sum = draft.read(&name);
        let total = self.training.accumulation.total(&mut draft.b, sum)?;
        let zeros = draft.b.splat_like(sum, 0.0)?;
        draft.write(&name, zeros);
        Ok((weight.into(), Some(total)))
    }

    pub fn eval(&self, forward: &impl Fn(&mut Builder, &mut Scope) -> Result<Forward>) -> Result<Program> {
        let Network { weights, buffers, .. } = self.network;
        let mut draft = self.draft(&[weights, buffers], true, false);
        let forward = forward(&mut draft.b, &mut draft.scope)?;
        draft.output("loss", forward.loss);
        forward.outputs.into_iter().for_each(|(name, value)| draft.output(&name, value));
        Ok(draft.finish())
    }

    /// The loss; outputs and buffers are on their way.
    fn forward(
        &self,
        draft: &mut Draft,
        forward: &impl Fn(&mut Builder, &mut Scope) -> Result<Forward>,
    ) -> Result<ValueId> {
        let forward = forward(&mut draft.b, &mut draft.scope)?;
        let ty = draft.b.ty(forward.loss);
        if ty.rank() != 0 || !ty.dtype.is_float() {
            return Err(errors::wrong_loss(ty));
        }
        draft.output("loss", forward.loss);
        forward.outputs.into_iter().for_each(|(name, value)| draft.output(&name, value));
        for (name, value) in forward.buffers {
            let known = self.network.buffers.iter().find(|(other, _)| *other == name);
            let (_, buffer) = known.ok_or_else(|| errors::unknown_buffer(&name))?;
            if type_of(buffer) != *draft.b.ty(value) {
                return Err(errors::wrong_buffer(&name, &type_of(buffer), draft.b.ty(value)));
            }
            draft.write(&name, value);
        }
        Ok(forward.loss)
    }

    /// Gradients of the scaled loss by group. Weights that the loss does not depend on have none, and stay.
    fn gradients(&self, draft: &mut Draft, loss: ValueId) -> Result<Vec<Vec<Named<Option<ValueId>>>>> {
        let mut seed = draft.b.splat_like(loss, self.training.accumulation.loss_factor())?;
        if self.training.loss_scale != LossScale::None {
            let scale = draft.read("loss_scale");
            seed = loss_scaling::scale(&mut draft.b, seed, scale)?;
        }
        let weights: Vec<ValueId> = self.groups.iter().flatten().map(|(name, _)| draft.read(name)).collect();
        let mut gradients = draft.b.gradients(&[(loss, seed)], &weights)?.into_iter();
        let mut of_group = |weights: &Vec<&Named<Tensor>>| {
            let named = weights.iter().map(|(name, _)| name.clone()).zip(gradients.by_ref());
            named.filter(|(_, gradient)| gradient.is_some()).collect()
        };
        Ok(self.groups.iter().map(&mut of_group).collect())
    }
}

fn accumulators(training: &Training, groups: &[Vec<&Named<Tensor>>]) -> Vec<Named<Tensor>> {
    if training.accumulation.count() == 1 {
        return Vec::new();
    }
    let weights = training.groups.iter().zip(groups).filter(|(group, _)| !is_combined(&group.optimizer));
    let accumulators = weights.flat_map(|(_, weights)| weights.iter()).map(|(name, weight)| {
        let zeros = Tensor::zeros(training.accumulation.dtype, weight.shape().clone());
        (update::accumulator_name(name), zeros)
    });
    accumulators.chain([("accumulation.count".into(), number(0.0))]).collect()
}

/// The weights of each group.
fn groups<'a>(network: &'a Network, training: &Training) -> Result<Vec<Vec<&'a Named<Tensor>>>> {
    let listed: Vec<&String> =
        training.groups.iter().filter_map(|group| group.weights.as_ref()).flatten().collect();
    for (index, name) in listed.iter().enumerate() {
        if !network.weights.iter().any(|(other, _)| other == *name) {
            return Err(errors::unknown_weight(name));
        }
        if listed[..index].contains(name) {
            return Err(errors::weight_in_two_groups(name));
        }
    }
    if training.groups.iter().filter(|group| group.weights.is_none()).count() > 1 {
        return Err(errors::two_groups_of_the_rest());
    }
    let of_group = |group: &Group| {
        let belongs = |name: &String| match &group.weights {
            Some(names) => names.contains(name),
            None => !listed.contains(&name),
        };
        network.weights.iter().filter(|(name, _)| belongs(name)).collect()
    };
    Ok(training.groups.iter().map(of_group).collect())
}

fn check(training: &Training, groups: &[Vec<&Named<Tensor>>]) -> Result<()> {
    if training.accumulation.count() == 0 {
        return Err(errors::no_micro_batches());
    }
    for (index, group) in training.groups.iter().enumerate() {
        if training.groups[..index].iter().any(|other| other.name == group.name) {
            return Err(errors::two_groups_of_a_name(&group.name));
        }
        if !is_combined(&group.optimizer) || groups[index].is_empty() {
            continue;
        }
        // Gradients that have joined a velocity can be neither measured nor taken out again.
        if training.max_grad_norm.is_some() {
            return Err(errors::combined_velocity_and(&group.name, "clipping"));
        }
        if matches!(training.loss_scale, LossScale::Automatic(..)) {
            return Err(errors::combined_velocity_and(&group.name, "automatic loss scaling"));
        }
    }
    Ok(())
}
