//! One step of one weight while a rule writes it down: everything in f32, state and hyperparameters by name.

use crate::formula::{Expr, Formula};
use pando_base::{DType, Result};
use pando_graph::ValueId;

pub(super) struct Step<'f> {
    formula: &'f Formula<'f>,
    pub weight: Expr<'f>,
    /// 0 where there is none.
    pub gradient: Expr<'f>,
    /// Whether the gradient is still to be added to a combined velocity.
    pub has_gradient: bool,
    state: Vec<(&'static str, Expr<'f>)>,
    hyper: Vec<(&'static str, Expr<'f>)>,
}

impl<'f> Step<'f> {
    pub fn new(
        formula: &'f Formula<'f>,
        weight: ValueId,
        gradient: Option<ValueId>,
        state: impl Iterator<Item = (&'static str, ValueId)>,
        hyper: impl Iterator<Item = (&'static str, ValueId)>,
    ) -> Self {
        let at = |value| formula.at(value).to(DType::F32);
        Step {
            formula,
            weight: at(weight),
            gradient: gradient.map_or_else(|| formula.scalar(DType::F32, 0.0), at),
            has_gradient: gradient.is_some(),
            state: state.map(|(name, value)| (name, at(value))).collect(),
            hyper: hyper.map(|(name, value)| (name, at(value))).collect(),
        }
    }

    /// A hyperparameter that the rule lists always.
    pub fn hyper(&self, name: &str) -> Expr<'f> {
        self.optional(name).expect("the rule lists what it reads")
    }

    /// A hyperparameter that the rule may leave out.
    pub fn optional(&self, name: &str) -> Option<Expr<'f>> {
        self.hyper.iter().find(|(other, _)| *other == name).map(|&(_, value)| value)
    }

    pub fn state(&self, name: &str) -> Expr<'f> {
        let found = self.state.iter().find(|(other, _)| *other == name);
        found.expect("the rule lists the state it has").1
    }

    pub fn set(&mut self, name: &str, value: Expr<'f>) {
        let found = self.state.iter_mut().find(|(other, _)| *other == name);
        found.expect("the rule lists the state it has").1 = value;
    }

    /// Counts this step and gives its number, from 1.
    pub fn count(&mut self) -> Expr<'f> {
        let steps = self.state("step") + 1.0;
        self.set("step", steps);
        steps
    }

    /// The gradient of a penalty on the weight's square, if the rule has one, joins the gradient.
    pub fn decay_into_gradient(&mut self) {
        if let Some(decay) = self.optional("weight_decay") {
            self.gradient = self.gradient + self.weight * decay;
        }
    }

    /// A running average: `rest` is the weight of the new value.
    pub fn average(&mut self, name: &str, new: Expr<'f>, rest: Expr<'f>) -> Expr<'f> {
        let old = self.state(name);
        let average = old + rest * (new - old);
        self.set(name, average);
        average
    }

    /// A running average of squares, in the form that PyTorch gives it.
    pub fn average_square(&mut self, name: &str, new: Expr<'f>, rest: Expr<'f>) -> Expr<'f> {
        let average = self.state(name) * (1.0 - rest) + new * new * rest;
        self.set(name, average);
        average
    }

    /// `1 - (1 - rest)^steps` without the cancellation.
    pub fn bias_correction(&self, rest: Expr<'f>, steps: Expr<'f>) -> Expr<'f> {
        -(steps * (-rest).log1p()).expm1()
    }

    /// The weight, then the state.
    pub fn results(self) -> Result<Vec<ValueId>> {
        let state = self.state.into_iter().map(|(_, value)| value);
        std::iter::once(self.weight).chain(state).map(|value| self.formula.value(value)).collect()
    }
}
