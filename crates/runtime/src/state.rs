//! Named tensors that programs share, each with a number that grows whenever it changes.

use crate::errors;
use pando_base::{Result, Tensor};
use rustc_hash::FxHashMap;

#[derive(Default)]
pub(crate) struct State {
    places: FxHashMap<String, usize>,
    pub names: Vec<String>,
    pub tensors: Vec<Tensor>,
    versions: Vec<u64>,
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
            state.tensors.push(tensor);
            state.versions.push(0);
        }
        Ok(state)
    }

    pub fn place(&self, name: &str) -> Result<usize> {
        self.places.get(name).copied().ok_or_else(|| errors::unknown_state(name))
    }

    /// Replaces a tensor by another of its type.
    pub fn set(&mut self, place: usize, tensor: Tensor) -> Result<()> {
        let (expected, found) = (type_of(&self.tensors[place]), type_of(&tensor));
        if expected != found {
            return Err(errors::wrong_state_type(&self.names[place], expected, found));
        }
        self.put(place, tensor);
        Ok(())
    }

    /// As [`State::set`], where the type is known to be right.
    pub fn put(&mut self, place: usize, tensor: Tensor) {
        self.tensors[place] = tensor;
        self.versions[place] += 1;
    }

    pub fn version(&self, place: usize) -> u64 {
        self.versions[place]
    }
}

/// A tensor's type as texts spell it: `f32[2,3]`.
pub(crate) fn type_of(tensor: &Tensor) -> String {
    format!("{}{}", tensor.dtype(), tensor.shape())
}
