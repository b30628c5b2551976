//! What a forward function sees of the program it is part of: values by name, whether it trains, random seeds.

use crate::errors;
use crate::random;
use pando_base::Result;
use pando_graph::{Builder, ValueId};
use std::collections::BTreeMap;

pub struct Scope {
    values: BTreeMap<String, ValueId>,
    training: bool,
    uses: u32,
}

impl Scope {
    pub(super) fn new(values: BTreeMap<String, ValueId>, training: bool) -> Self {
        Scope { values, training, uses: 0 }
    }

    /// A weight, a buffer or an input.
    pub fn get(&self, name: &str) -> Result<ValueId> {
        self.values.get(name).copied().ok_or_else(|| errors::unknown_value(name))
    }

    /// Whether the program trains, rather than evaluates.
    pub fn training(&self) -> bool {
        self.training
    }

    /// A seed that nothing else uses, another one in every step.
    pub fn seed(&mut self, b: &mut Builder) -> Result<ValueId> {
        let seed = self.get("random.seed")?;
        self.uses += 1;
        random::seed_of_use(b, seed, self.uses)
    }

    /// Dropout in training, nothing in evaluation; see [`random::dropout`].
    pub fn dropout(&mut self, b: &mut Builder, x: ValueId, probability: f64) -> Result<ValueId> {
        if !self.training {
            return Ok(x);
        }
        let seed = self.seed(b)?;
        random::dropout(b, x, probability, seed)
    }

    pub(super) fn uses(&self) -> u32 {
        self.uses
    }
}
