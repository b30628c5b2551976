//! Named tensors that programs share, as the engine holds them.

use crate::errors;
use pando_base::{DType, Result, Shape, Tensor};
use pando_cpu::Variable;
use rustc_hash::FxHashMap;

#[derive(Default)]
pub(crate) struct State {
    places: FxHashMap<String, usize>,
    pub names: Vec<String>,
    variables: Vec<Variable>,
}

impl State {
    pub fn new(entries: Vec<(String, Tensor)>) -> Result<Self> {
        let mut state = State::default();
        for (name, tensor) in entries {
            // Files of tensors keep this name for themselves.
            if name.is_empty() || name == "__metadata__" {
                return Err(errors::bad_state_name(&name));
            }
            if state.places.insert(name.clone(), state.names.len()).is_some() {
                return Err(errors::duplicate("state", &name));
            }
            state.names.push(name);
            state.variables.push(Variable::new(tensor));
        }
        Ok(state)
    }

    pub fn place(&self, name: &str) -> Result<usize> {
        self.places.get(name).copied().ok_or_else(|| errors::unknown_state(name))
    }

    pub fn variable(&self, place: usize) -> &Variable {
        &self.variables[place]
    }

    pub fn variables(&self) -> impl Iterator<Item = &Variable> {
        self.variables.iter()
    }

    /// Replaces a tensor by another of its type.
    pub fn set(&mut self, place: usize, tensor: Tensor) -> Result<()> {
        self.check_type(place, (tensor.dtype(), tensor.shape()))?;
        self.put(place, tensor);
        Ok(())
    }

    /// As [`State::set`], where the type is known to be right.
    pub fn put(&mut self, place: usize, tensor: Tensor) {
        self.variables[place].set(tensor);
    }

    /// Another variable of the same type in place of one.
    pub fn replace(&mut self, place: usize, variable: Variable) -> Result<()> {
        self.check_type(place, variable.ty())?;
        self.variables[place] = variable;
        Ok(())
    }

    fn check_type(&self, place: usize, found: (DType, &Shape)) -> Result<()> {
        let (expected, found) = (type_of(self.variable(place)), text_of(found));
        match expected == found {
            true => Ok(()),
            false => Err(errors::wrong_state_type(&self.names[place], expected, found)),
        }
    }

    /// The variables at these places, which are different ones, to change.
    pub fn variables_mut(&mut self, places: &[usize]) -> Vec<&mut Variable> {
        let mut all: Vec<Option<&mut Variable>> = self.variables.iter_mut().map(Some).collect();
        places.iter().map(|&place| all[place].take().expect("no place is listed twice")).collect()
    }
}

/// A variable's type as texts spell it: `f32[2,3]`.
pub(crate) fn type_of(variable: &Variable) -> String {
    text_of(variable.ty())
}

fn text_of((dtype, shape): (DType, &Shape)) -> String {
    format!("{dtype}{shape}")
}
