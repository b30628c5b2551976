//! Adagrad (Duchi et al. 2011) and Adadelta (Zeiler 2012).

use super::step::Step;
use super::{Kind, RuleSlot};

#[derive(Clone, Debug, PartialEq)]
pub struct Adagrad {
    pub lr: f64,
    /// The learning rate falls as `lr / (1 + steps · lr_decay)`.
    pub lr_decay: Option<f64>,
    pub eps: f64,
    pub weight_decay: Option<f64>,
}

impl Default for Adagrad {
    fn default() -> Self {
        Adagrad { lr: 1e-2, lr_decay: None, eps: 1e-10, weight_decay: None }
    }
}

impl Adagrad {
    pub(super) fn hyperparameters(&self) -> Vec<(&'static str, Option<f64>)> {
        vec![
            ("lr", Some(self.lr)),
            ("lr_decay", self.lr_decay),
            ("eps", Some(self.eps)),
            ("weight_decay", self.weight_decay),
        ]
    }

    pub(super) fn slots(&self) -> Vec<RuleSlot> {
        let counts = self.lr_decay.map(|_| ("step", Kind::Steps));
        [("sum", Kind::Second)].into_iter().chain(counts).collect()
    }

    pub(super) fn step(step: &mut Step) {
        step.decay_into_gradient();
        let mut lr = step.hyper("lr");
        if let Some(decay) = step.optional("lr_decay") {
            let steps = step.count();
            lr = lr / ((steps - 1.0) * decay + 1.0);
        }
        let sum = step.state("sum") + step.gradient.square();
        step.set("sum", sum);
        step.weight = step.weight - lr * step.gradient / (sum.sqrt() + step.hyper("eps"));
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Adadelta {
    pub lr: f64,
    pub rho: f64,
    pub eps: f64,
    pub weight_decay: Option<f64>,
}

impl Default for Adadelta {
    fn default() -> Self {
        Adadelta { lr: 1.0, rho: 0.9, eps: 1e-6, weight_decay: None }
    }
}

impl Adadelta {
    pub(super) fn hyperparameters(&self) -> Vec<(&'static str, Option<f64>)> {
        vec![
            ("lr", Some(self.lr)),
            ("1-rho", Some(1.0 - self.rho)),
            ("eps", Some(self.eps)),
            ("weight_decay", self.weight_decay),
        ]
    }

    pub(super) fn slots() -> Vec<RuleSlot> {
        vec![("square_avg", Kind::Second), ("acc_delta", Kind::Second)]
    }

    pub(super) fn step(step: &mut Step) {
        step.decay_into_gradient();
        let (gradient, rest, eps) = (step.gradient, step.hyper("1-rho"), step.hyper("eps"));
        let square = step.average_square("square_avg", gradient, rest);
        let delta = (step.state("acc_delta") + eps).sqrt() / (square + eps).sqrt() * gradient;
        step.average_square("acc_delta", delta, rest);
        step.weight = step.weight - step.hyper("lr") * delta;
    }
}
