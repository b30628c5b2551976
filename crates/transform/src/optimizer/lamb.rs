//! LAMB (You et al. 2020, algorithm 2): Adam's direction, in steps as long as the weight is.

use super::step::Step;
use super::{Kind, RuleSlot};

#[derive(Clone, Debug, PartialEq)]
pub struct Lamb {
    pub lr: f64,
    pub beta1: f64,
    pub beta2: f64,
    pub eps: f64,
    pub weight_decay: Option<f64>,
    /// Off: moments are taken as they are, smaller in the first steps.
    pub bias_correction: bool,
    /// A weight's norm counts as this much at most.
    pub max_weight_norm: Option<f64>,
}

/// PopTorch's defaults (frontends.md, section 1.7); PyTorch has no LAMB.
impl Default for Lamb {
    fn default() -> Self {
        Lamb {
            lr: 1e-3,
            beta1: 0.9,
            beta2: 0.999,
            eps: 1e-8,
            weight_decay: Some(1e-2),
            bias_correction: true,
            max_weight_norm: Some(65500.0),
        }
    }
}

impl Lamb {
    pub(super) fn hyperparameters(&self) -> Vec<(&'static str, Option<f64>)> {
        vec![
            ("lr", Some(self.lr)),
            ("1-beta1", Some(1.0 - self.beta1)),
            ("1-beta2", Some(1.0 - self.beta2)),
            ("eps", Some(self.eps)),
            ("weight_decay", self.weight_decay),
            ("max_weight_norm", self.max_weight_norm),
        ]
    }

    pub(super) fn slots(&self) -> Vec<RuleSlot> {
        let mut slots = vec![("exp_avg", Kind::First), ("exp_avg_sq", Kind::Second)];
        slots.extend(self.bias_correction.then_some(("step", Kind::Steps)));
        slots
    }

    pub(super) fn step(&self, step: &mut Step) {
        let (gradient, rest1, rest2) = (step.gradient, step.hyper("1-beta1"), step.hyper("1-beta2"));
        let mut average = step.average("exp_avg", gradient, rest1);
        let mut square = step.average_square("exp_avg_sq", gradient, rest2);
        if self.bias_correction {
            let steps = step.count();
            average = average / step.bias_correction(rest1, steps);
            square = square / step.bias_correction(rest2, steps);
        }
        let mut direction = average / (square.sqrt() + step.hyper("eps"));
        if let Some(decay) = step.optional("weight_decay") {
            direction = direction + step.weight * decay;
        }
        let (mut weight_norm, norm) = (step.weight.norm(), direction.norm());
        if let Some(most) = step.optional("max_weight_norm") {
            weight_norm = weight_norm.min(most);
        }
        // A weight of zeros, or no direction, takes steps of Adam's length.
        let ratio = weight_norm.gt(0.0).and(norm.gt(0.0)).pick(weight_norm / norm, 1.0);
        step.weight = step.weight - (step.hyper("lr") * ratio) * direction;
    }
}
