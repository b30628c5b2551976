//! Named tensors that programs share, as the engine holds them.

use crate::errors;
use pando_base::{Result, Tensor};
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

    pub fn tensor(&self, place: usize) -> &Tensor {
        self.variables[place].tensor()
    }

    pub fn tensors(&self) -> impl Iterator<Item = &Tensor> {
        self.variables.iter().map(Variable::tensor)
    }

    /// Replaces a tensor by another of its type.
    pub fn set(&mut self, place: usize, tensor: Tensor) -> Result<()> {
        let (expected, found) = (type_of(self.tensor(place)), type_of(&tensor));
        if expected != found {
            return Err(errors::wrong_state_type(&self.names[place], expected, found));
        }
        self.put(place, tensor);
        Ok(())
    }

    /// As [`State::set`], where the type is known to be right.
    pub fn put(&mut self, place: usize, tensor: Tensor) {
        *self.variables[place].tensor_mut() = tensor;
    }

    /// The variables at these places, which are different ones, to change.
    pub fn variables_mut(&mut self, places: &[usize]) -> Vec<&mut Variable> {
        let mut all: Vec<Option<&mut Variable>> = self.variables.iter_mut().map(Some).collect();
        places.iter().map(|&place| all[place].take().expect("no place is listed twice")).collect()
    }
}

/// A tensor's type as texts spell it: `f32[2,3]`.
pub(crate) fn type_of(tensor: &Tensor) -> String {
    format!("{}{}", tensor.dtype(), tensor.shape())
}
