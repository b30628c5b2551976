//! Gradient descent with momentum. PyTorch's own form keeps a velocity beside the gradient; the combined form
//! (PopTorch's `use_combined_accum`) sums gradients into the velocity itself, so that accumulation over
//! micro-batches needs no tensor of its own.

use super::step::Step;
use super::{Kind, RuleSlot};
use crate::formula::Expr;

#[derive(Clone, Debug, PartialEq)]
pub struct Sgd {
    pub lr: f64,
    pub momentum: Option<f64>,
    /// Of what a gradient adds to the velocity; PyTorch's first step is not dampened. Needs a momentum.
    pub dampening: Option<f64>,
    pub weight_decay: Option<f64>,
    pub nesterov: bool,
    /// Combined form: the factor that its velocity is stored with, so that small ones survive in f16. The velocity
    /// rests multiplied by the momentum, ready to be added to; Assumption: every step is dampened, the first one
    /// too, and there is no Nesterov form.
    pub velocity_scaling: Option<f64>,
}

impl Default for Sgd {
    fn default() -> Self {
        let none = None;
        Sgd {
            lr: 1e-3,
            momentum: none,
            dampening: none,
            weight_decay: none,
            nesterov: false,
            velocity_scaling: none,
        }
    }
}

impl Sgd {
    pub(super) fn hyperparameters(&self) -> Vec<(&'static str, Option<f64>)> {
        vec![
            ("lr", Some(self.lr)),
            ("momentum", self.momentum.or(self.velocity_scaling.map(|_| 0.0))),
            ("1-dampening", self.dampening.map(|dampening| 1.0 - dampening)),
            ("weight_decay", self.weight_decay),
            ("velocity_scaling", self.velocity_scaling),
        ]
    }

    pub(super) fn slots(&self) -> Vec<RuleSlot> {
        let combined = self.velocity_scaling.is_some();
        let velocity = (self.momentum.is_some() || combined).then_some(("momentum_buffer", Kind::First));
        let counts = self.momentum.is_some() && self.dampening.is_some() && !combined;
        velocity.into_iter().chain(counts.then_some(("step", Kind::Steps))).collect()
    }

    pub(super) fn step(&self, step: &mut Step) {
        if self.velocity_scaling.is_some() {
            return combined_step(step);
        }
        step.decay_into_gradient();
        if let (Some(_), Some(momentum)) = (self.momentum, step.optional("momentum")) {
            let velocity = step.state("momentum_buffer") * momentum + dampened(step);
            step.set("momentum_buffer", velocity);
            step.gradient = if self.nesterov { step.gradient + velocity * momentum } else { velocity };
        }
        step.weight = step.weight - step.hyper("lr") * step.gradient;
    }
}

/// The gradient as it joins the velocity.
fn dampened<'f>(step: &mut Step<'f>) -> Expr<'f> {
    match step.optional("1-dampening") {
        None => step.gradient,
        Some(rest) => {
            let later = step.count().gt(1.0);
            step.gradient * later.pick(rest, 1.0)
        }
    }
}

/// The velocity with the gradient in it: `momentum · v + (1 - dampening) · scaling · gradient`, of which the first
/// term is what is stored.
pub(super) fn combined_velocity<'f>(step: &Step<'f>) -> Expr<'f> {
    let velocity = step.state("momentum_buffer");
    match step.has_gradient {
        true => velocity + step.gradient * combined_factor(step),
        false => velocity,
    }
}

fn combined_factor<'f>(step: &Step<'f>) -> Expr<'f> {
    let scaling = step.hyper("velocity_scaling");
    step.optional("1-dampening").map_or(scaling, |rest| rest * scaling)
}

fn combined_step(step: &mut Step) {
    let mut velocity = combined_velocity(step);
    if let Some(decay) = step.optional("weight_decay") {
        velocity = velocity + step.weight * (decay * combined_factor(step));
    }
    step.weight = step.weight - (step.hyper("lr") / step.hyper("velocity_scaling")) * velocity;
    step.set("momentum_buffer", velocity * step.hyper("momentum"));
}
