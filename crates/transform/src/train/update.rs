//! From gradients to new weights: unscaled, clipped, one update per weight, all of it left out where a gradient has
//! overflowed and the scale of the loss is automatic.

use super::draft::Draft;
use super::plan::{Named, Plan};
use super::{Group, LossScale, Training, type_of};
use crate::clip;
use crate::loss_scaling;
use crate::optimizer::{Rounding, Slot, Update};
use pando_base::{DType, Result, Tensor};
use pando_graph::ValueId;

/// Gradients of the weights of one group. `None`: it is in the velocity already.
type Gradients = Vec<Named<Option<ValueId>>>;

pub(super) fn accumulator_name(weight: &str) -> String {
    format!("{weight}.accumulator")
}

fn hyper_name(group: &Group, name: &str) -> String {
    format!("{}.{name}", group.name)
}

fn slot_name(group: &Group, weight: &str, slot: &Slot) -> String {
    let owner = if slot.shared { &group.name } else { weight };
    format!("{owner}.{}", slot.name)
}

/// What the optimizers keep of their weights, and their hyperparameters.
pub(super) fn optimizer_state(training: &Training, groups: &[Vec<&Named<Tensor>>]) -> Vec<Named<Tensor>> {
    let mut state: Vec<Named<Tensor>> = Vec::new();
    for (group, weights) in training.groups.iter().zip(groups) {
        for (index, (name, weight)) in weights.iter().enumerate() {
            let slots = group.optimizer.slots(&type_of(weight)).into_iter();
            // What is shared is there once.
            let slots = slots.filter(|slot| index == 0 || !slot.shared);
            state.extend(slots.map(|slot| (slot_name(group, name, &slot), slot.tensor(weight))));
        }
        let hyper = group.optimizer.hyperparameters().into_iter();
        let tensor = |value| Tensor::scalar(DType::F32, value);
        state.extend(hyper.map(|hyper| (hyper_name(group, hyper.name), tensor(hyper.value))));
    }
    state
}

fn hyper_values(draft: &Draft, group: &Group) -> Vec<ValueId> {
    let hyper = group.optimizer.hyperparameters().into_iter();
    hyper.map(|hyper| draft.read(&hyper_name(group, hyper.name))).collect()
}

/// One more gradient into its accumulator, or into a combined velocity.
pub(super) fn accumulate(
    plan: &Plan,
    draft: &mut Draft,
    group: &Group,
    weight: &str,
    gradient: Option<ValueId>,
) -> Result<()> {
    let Some(gradient) = gradient else { return Ok(()) };
    let accumulation = &plan.training.accumulation;
    if !super::plan::is_combined(&group.optimizer) {
        let name = accumulator_name(weight);
        let (accumulator, count) = (draft.read(&name), draft.read("accumulation.count"));
        let sum = accumulation.add(&mut draft.b, accumulator, gradient, count)?;
        draft.write(&name, sum);
        return Ok(());
    }
    let gradient = unscaled(plan, draft, gradient)?;
    let share = accumulation.share(&mut draft.b, gradient)?;
    let name = format!("{weight}.momentum_buffer");
    let (velocity, hyper) = (draft.read(&name), hyper_values(draft, group));
    let velocity = group.optimizer.add_to_velocity(&mut draft.b, velocity, share, &hyper)?;
    draft.write(&name, velocity);
    Ok(())
}

fn unscaled(plan: &Plan, draft: &mut Draft, gradient: ValueId) -> Result<ValueId> {
    match plan.training.loss_scale {
        LossScale::None => Ok(gradient),
        _ => {
            let scale = draft.read("loss_scale");
            loss_scaling::unscale(&mut draft.b, gradient, scale)
        }
    }
}

/// New weights and state of the optimizers.
pub(super) fn apply(plan: &Plan, draft: &mut Draft, gradients: Vec<Gradients>) -> Result<()> {
    let (gradients, finite) = prepared(plan, draft, gradients)?;
    for (group, gradients) in plan.training.groups.iter().zip(gradients) {
        let hyper = hyper_values(draft, group);
        for (index, (weight, gradient)) in gradients.into_iter().enumerate() {
            update_weight(draft, group, &weight, gradient, &hyper, finite, index == 0)?;
        }
    }
    if let (LossScale::Automatic(_, automatic), Some(finite)) = (plan.training.loss_scale, finite) {
        let (scale, steps) = (draft.read("loss_scale"), draft.read("loss_scale.good_steps"));
        let (scale, steps) = automatic.next(&mut draft.b, finite, scale, steps)?;
        draft.write("loss_scale", scale);
        draft.write("loss_scale.good_steps", steps);
    }
    Ok(())
}

/// Gradients of the loss itself, clipped; and whether they are finite, if anybody wants to know.
fn prepared(
    plan: &Plan,
    draft: &mut Draft,
    mut gradients: Vec<Gradients>,
) -> Result<(Vec<Gradients>, Option<ValueId>)> {
    for gradient in gradients.iter_mut().flatten().filter_map(|(_, gradient)| gradient.as_mut()) {
        *gradient = unscaled(plan, draft, *gradient)?;
    }
    let all: Vec<ValueId> = gradients.iter().flatten().filter_map(|&(_, gradient)| gradient).collect();
    let automatic = matches!(plan.training.loss_scale, LossScale::Automatic(..));
    let finite = match automatic {
        true => Some(loss_scaling::all_finite(&mut draft.b, &all)?),
        false => None,
    };
    if plan.training.max_grad_norm.is_some() {
        let limit = draft.read("max_grad_norm");
        let (clipped, _) = clip::by_global_norm(&mut draft.b, &all, limit)?;
        let present = gradients.iter_mut().flatten().filter_map(|(_, gradient)| gradient.as_mut());
        present.zip(clipped).for_each(|(gradient, clipped)| *gradient = clipped);
    }
    Ok((gradients, finite))
}

/// Writes a weight and its state; what the group shares with the first weight only.
fn update_weight(
    draft: &mut Draft,
    group: &Group,
    name: &str,
    gradient: Option<ValueId>,
    hyper: &[ValueId],
    finite: Option<ValueId>,
    first: bool,
) -> Result<()> {
    let weight = draft.read(name);
    let slots = group.optimizer.slots(draft.b.ty(weight));
    let names: Vec<String> = slots.iter().map(|slot| slot_name(group, name, slot)).collect();
    let state: Vec<ValueId> = names.iter().map(|name| draft.read(name)).collect();
    let seed = match group.optimizer.rounding {
        Rounding::Stochastic => Some(draft.scope.seed(&mut draft.b)?),
        Rounding::Nearest => None,
    };
    let update = Update { weight, gradient, state: &state, hyper, seed };
    let updated = group.optimizer.update(&mut draft.b, &update)?;
    let old = [weight].into_iter().chain(state);
    let new = [updated.weight].into_iter().chain(updated.state);
    let shared = [false].into_iter().chain(slots.iter().map(|slot| slot.shared));
    let names = [name].into_iter().chain(names.iter().map(String::as_str));
    for (((name, old), mut new), _) in
        names.zip(old).zip(new).zip(shared).filter(|(_, shared)| first || !shared)
    {
        if let Some(finite) = finite {
            new = loss_scaling::keep_if(&mut draft.b, finite, new, old)?;
        }
        draft.write(name, new);
    }
    Ok(())
}
