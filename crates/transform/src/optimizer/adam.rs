//! Adam (Kingma and Ba 2015), with weight decay in the gradient or decoupled (AdamW, Loshchilov and Hutter 2019),
//! and Adamax.

use super::step::Step;
use super::{Kind, RuleSlot};

#[derive(Clone, Debug, PartialEq)]
pub struct Adam {
    pub lr: f64,
    pub beta1: f64,
    pub beta2: f64,
    pub eps: f64,
    pub weight_decay: Option<f64>,
    /// Weights shrink by themselves rather than through the gradient: AdamW.
    pub decoupled: bool,
    pub amsgrad: bool,
    /// Off: moments are taken as they are, smaller in the first steps.
    pub bias_correction: bool,
}

impl Default for Adam {
    fn default() -> Self {
        Adam {
            lr: 1e-3,
            beta1: 0.9,
            beta2: 0.999,
            eps: 1e-8,
            weight_decay: None,
            decoupled: false,
            amsgrad: false,
            bias_correction: true,
        }
    }
}

impl Adam {
    /// AdamW as PyTorch has it.
    pub fn adamw() -> Self {
        Adam { weight_decay: Some(1e-2), decoupled: true, ..Adam::default() }
    }

    pub(super) fn hyperparameters(&self) -> Vec<(&'static str, Option<f64>)> {
        vec![
            ("lr", Some(self.lr)),
            ("1-beta1", Some(1.0 - self.beta1)),
            ("1-beta2", Some(1.0 - self.beta2)),
            ("eps", Some(self.eps)),
            ("weight_decay", self.weight_decay),
        ]
    }

    pub(super) fn slots(&self) -> Vec<RuleSlot> {
        let mut slots = vec![("exp_avg", Kind::First), ("exp_avg_sq", Kind::Second)];
        slots.extend(self.amsgrad.then_some(("max_exp_avg_sq", Kind::Second)));
        slots.extend(self.bias_correction.then_some(("step", Kind::Steps)));
        slots
    }

    pub(super) fn step(&self, step: &mut Step) {
        let (lr, rest1, rest2) = (step.hyper("lr"), step.hyper("1-beta1"), step.hyper("1-beta2"));
        match (self.decoupled, step.optional("weight_decay")) {
            (true, Some(decay)) => step.weight = step.weight * (1.0 - lr * decay),
            _ => step.decay_into_gradient(),
        }
        let gradient = step.gradient;
        let average = step.average("exp_avg", gradient, rest1);
        let mut square = step.average_square("exp_avg_sq", gradient, rest2);
        if self.amsgrad {
            square = step.state("max_exp_avg_sq").max(square);
            step.set("max_exp_avg_sq", square);
        }
        let (mut size, mut root) = (lr, square.sqrt());
        if self.bias_correction {
            let steps = step.count();
            size = lr / step.bias_correction(rest1, steps);
            root = root / step.bias_correction(rest2, steps).sqrt();
        }
        step.weight = step.weight - size * average / (root + step.hyper("eps"));
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Adamax {
    pub lr: f64,
    pub beta1: f64,
    pub beta2: f64,
    pub eps: f64,
    pub weight_decay: Option<f64>,
}

impl Default for Adamax {
    fn default() -> Self {
        Adamax { lr: 2e-3, beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: None }
    }
}

impl Adamax {
    pub(super) fn hyperparameters(&self) -> Vec<(&'static str, Option<f64>)> {
        vec![
            ("lr", Some(self.lr)),
            ("1-beta1", Some(1.0 - self.beta1)),
            ("1-beta2", Some(1.0 - self.beta2)),
            ("eps", Some(self.eps)),
            ("weight_decay", self.weight_decay),
        ]
    }

    pub(super) fn slots() -> Vec<RuleSlot> {
        vec![("exp_avg", Kind::First), ("exp_inf", Kind::Second), ("step", Kind::Steps)]
    }

    pub(super) fn step(step: &mut Step) {
        step.decay_into_gradient();
        let (gradient, rest1) = (step.gradient, step.hyper("1-beta1"));
        let average = step.average("exp_avg", gradient, rest1);
        let faded = step.state("exp_inf") * (1.0 - step.hyper("1-beta2"));
        let largest = faded.max(gradient.abs() + step.hyper("eps"));
        step.set("exp_inf", largest);
        let steps = step.count();
        let size = step.hyper("lr") / step.bias_correction(rest1, steps);
        step.weight = step.weight - size * average / largest;
    }
}
