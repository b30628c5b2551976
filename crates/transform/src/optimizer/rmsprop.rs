//! RMSprop, as PyTorch has it, and as TensorFlow has it: `eps` under the root, and the learning rate inside the
//! velocity. Assumption: averages start at zero in both.

use super::step::Step;
use super::{Kind, RuleSlot};

#[derive(Clone, Debug, PartialEq)]
pub struct RmsProp {
    pub lr: f64,
    pub alpha: f64,
    pub eps: f64,
    pub weight_decay: Option<f64>,
    pub momentum: Option<f64>,
    /// Divides by the deviation from the mean gradient instead of from zero.
    pub centered: bool,
    pub tf_variant: bool,
}

impl Default for RmsProp {
    fn default() -> Self {
        let (lr, alpha, eps) = (1e-2, 0.99, 1e-8);
        RmsProp { lr, alpha, eps, weight_decay: None, momentum: None, centered: false, tf_variant: false }
    }
}

impl RmsProp {
    pub(super) fn hyperparameters(&self) -> Vec<(&'static str, Option<f64>)> {
        vec![
            ("lr", Some(self.lr)),
            ("1-alpha", Some(1.0 - self.alpha)),
            ("eps", Some(self.eps)),
            ("weight_decay", self.weight_decay),
            ("momentum", self.momentum),
        ]
    }

    pub(super) fn slots(&self) -> Vec<RuleSlot> {
        let mut slots = vec![("square_avg", Kind::Second)];
        slots.extend(self.centered.then_some(("grad_avg", Kind::First)));
        slots.extend(self.momentum.map(|_| ("momentum_buffer", Kind::First)));
        slots
    }

    pub(super) fn step(&self, step: &mut Step) {
        step.decay_into_gradient();
        let (gradient, rest, lr, eps) =
            (step.gradient, step.hyper("1-alpha"), step.hyper("lr"), step.hyper("eps"));
        let mut square = step.average_square("square_avg", gradient, rest);
        if self.centered {
            square = square - step.average("grad_avg", gradient, rest).square();
        }
        let root = if self.tf_variant { (square + eps).sqrt() } else { square.sqrt() + eps };
        step.weight = match (step.optional("momentum"), self.tf_variant) {
            (None, _) => step.weight - lr * gradient / root,
            (Some(momentum), tf_variant) => {
                let new = if tf_variant { lr * gradient / root } else { gradient / root };
                let velocity = step.state("momentum_buffer") * momentum + new;
                step.set("momentum_buffer", velocity);
                step.weight - if tf_variant { velocity } else { lr * velocity }
            }
        };
    }
}
