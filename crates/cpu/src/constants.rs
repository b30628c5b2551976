//! The elements of constants, shared by all plans of a model and held once: as they are, or as products read
//! them. Whoever wants elements that only a packed copy has gets them from it.

#![allow(unsafe_code)]

use crate::allocation::Bytes;
use pando_base::{DType, Shape, Tensor};
use pando_graph::{ConstData, ConstId, Module};
use rustc_hash::FxHashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Fewer bytes are not worth letting go.
const LARGE_BYTES: u64 = 64 << 10;

/// One constant.
pub struct Constant {
    pub dtype: DType,
    pub shape: Shape,
    state: Mutex<State>,
}

enum State {
    Elements(Tensor),
    Packed(Panels),
    /// Packed in a form that does not tell them; no plan will ask.
    Gone,
}

/// A constant as panels of f32: `k` rows of `columns` columns each, zeros behind the last.
#[derive(Clone)]
pub struct Panels {
    pub bytes: Arc<Bytes>,
    pub k: usize,
    pub n: usize,
    pub columns: usize,
    /// Distances in the constant's elements.
    pub row: isize,
    pub column: isize,
}

impl Constant {
    pub fn new(tensor: Tensor) -> Arc<Constant> {
        let (dtype, shape) = (tensor.dtype(), tensor.shape().clone());
        Arc::new(Constant { dtype, shape, state: Mutex::new(State::Elements(tensor)) })
    }

    pub fn is_large(&self) -> bool {
        self.shape.num_elements() * self.dtype.size_bytes() >= LARGE_BYTES
    }

    /// The elements where they are held as such.
    pub fn held(&self) -> Option<Tensor> {
        match &*self.state() {
            State::Elements(tensor) => Some(tensor.clone()),
            _ => None,
        }
    }

    /// The elements, from the packed copy if need be; held again from now on.
    pub fn tensor(&self) -> Tensor {
        let mut state = self.state();
        let tensor = match &*state {
            State::Elements(tensor) => return tensor.clone(),
            State::Packed(panels) => panels.unpacked(self.dtype, &self.shape),
            State::Gone => unreachable!("a constant that no other step reads was let go"),
        };
        *state = State::Elements(tensor.clone());
        tensor
    }

    /// Lets the elements go. `panels`: all of them, packed.
    pub fn release(&self, panels: Option<Panels>) {
        *self.state() = panels.map_or(State::Gone, State::Packed);
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Panels {
    fn unpacked(&self, dtype: DType, shape: &Shape) -> Tensor {
        let mut tensor = Tensor::zeros(dtype, shape.clone());
        let elements = tensor.bytes_mut().as_mut_ptr().cast::<f32>();
        let packed = self.bytes.as_ptr().cast::<f32>();
        for column in 0..self.n {
            let (panel, lane) = (column / self.columns, column % self.columns);
            for row in 0..self.k {
                let to = row as isize * self.row + column as isize * self.column;
                // SAFETY: the panels were packed from these places of a tensor of this type and shape.
                unsafe {
                    let from = packed.add((panel * self.k + row) * self.columns + lane);
                    elements.offset(to).write(from.read());
                }
            }
        }
        tensor
    }
}

/// All constants of a module.
#[derive(Default)]
pub struct Constants(FxHashMap<ConstId, Arc<Constant>>);

impl Constants {
    /// Takes the large tensors out of a module, which keeps only their types: what remains is small enough for
    /// those who compute with it.
    pub fn take(module: &mut Module) -> Constants {
        let mut constants = Constants::default();
        for (id, constant) in module.consts.iter_mut() {
            let large = constant.shape.num_elements() * constant.dtype.size_bytes() >= LARGE_BYTES;
            if let ConstData::Dense(tensor) = &constant.data
                && large
            {
                constants.0.insert(id, Constant::new(tensor.clone()));
                constant.data = ConstData::Splat(0.0);
            }
        }
        constants
    }

    pub fn get(&mut self, module: &Module, id: ConstId) -> Arc<Constant> {
        let make = || Constant::new(module.consts[id].materialize());
        Arc::clone(self.0.entry(id).or_insert_with(make))
    }
}
