//! Programs over shared state, as Python sees them.

#![allow(unsafe_code)]

use crate::array::{Array, Location, borrow, element_type};
use crate::graph::Module;
use crate::model::precision_of;
use crate::to_python;
use pando_base::Tensor;
use pando_runtime::{CompileOptions, Input, Program};
use pyo3::prelude::*;
use std::path::PathBuf;
use std::ptr::NonNull;

/// A program: its name, module, names of state read and written, names of inputs and outputs.
type Described<'py> = (String, PyRef<'py, Module>, Vec<String>, Vec<String>, Vec<String>, Vec<String>);

#[pyclass]
pub struct Session(pando_runtime::Session);

#[pymethods]
impl Session {
    /// Compiles the programs; the arrays of the state are copied. State that begins with the same value everywhere is
    /// described (name, element type, sizes, value) and takes no memory of Python's.
    #[new]
    fn new(
        py: Python<'_>,
        programs: Vec<Described<'_>>,
        state: Vec<(String, Location)>,
        uniform: Vec<(String, String, Vec<u64>, f64)>,
        threads: Option<usize>,
        precision: &str,
    ) -> PyResult<Self> {
        let programs = programs.into_iter().map(|(name, module, reads, writes, inputs, outputs)| {
            (name, Program { module: (*module.0).clone(), reads, writes, inputs, outputs })
        });
        let programs: Vec<_> = programs.collect();
        // SAFETY: the caller holds the arrays while it waits for this call.
        let copied = |(name, at): &(String, Location)| Ok((name.clone(), unsafe { borrow(at) }?.to_tensor()));
        let mut state = state.iter().map(copied).collect::<PyResult<Vec<_>>>()?;
        for (name, dtype, sizes, value) in uniform {
            state.push((name, filled(&dtype, sizes, value)?));
        }
        let mut options = CompileOptions {
            matmul_precision: precision_of(precision).map_err(to_python)?,
            ..CompileOptions::default()
        };
        options.threads = threads.unwrap_or(options.threads);
        let session = py.detach(|| pando_runtime::Session::new(programs, state, &options));
        session.map(Session).map_err(to_python)
    }

    /// Runs a program: the state it writes changes in place; returns its outputs. The arrays stay unchanged meanwhile.
    fn run(&mut self, py: Python<'_>, program: &str, arrays: Vec<Location>) -> PyResult<Vec<Array>> {
        // SAFETY: the caller holds the arrays while it waits for this call.
        let inputs: Vec<Input> = arrays.iter().map(|at| unsafe { borrow(at) }).collect::<PyResult<_>>()?;
        let results = py.detach(|| self.0.run(program, &inputs)).map_err(to_python)?;
        Ok(results.into_iter().map(Array::new).collect())
    }

    /// A copy of a tensor of the state.
    fn state(&self, name: &str) -> PyResult<Array> {
        self.0.state(name).map(Array::new).map_err(to_python)
    }

    fn state_names(&self) -> Vec<String> {
        self.0.state_names().map(String::from).collect()
    }

    /// Replaces a tensor of the state by another of its type.
    fn set_state(&mut self, name: &str, array: Location) -> PyResult<()> {
        // SAFETY: the caller holds the array until this call returns, and it is copied.
        let tensor = unsafe { borrow(&array) }?.to_tensor();
        self.0.set_state(name, tensor).map_err(to_python)
    }

    /// From now on a tensor of the state is the array, elements included, until `take_back`. The caller keeps it alive
    /// and untouched.
    fn lend(&mut self, name: &str, array: Location) -> PyResult<()> {
        // SAFETY: the caller's promise.
        let input = unsafe { borrow(&array) }?;
        let Some(address) = NonNull::new(std::ptr::with_exposed_provenance_mut(array.0)) else {
            return Ok(());
        };
        let (dtype, shape) = (input.dtype(), input.shape().clone());
        // SAFETY: as above.
        unsafe { self.0.lend(name, dtype, shape, address) }.map_err(to_python)
    }

    /// Ends `lend`: the state has memory of its own again.
    fn take_back(&mut self, name: &str) -> PyResult<()> {
        self.0.take_back(name).map_err(to_python)
    }

    /// Writes all state to a folder, in one step.
    fn save(&self, py: Python<'_>, folder: PathBuf) -> PyResult<()> {
        py.detach(|| self.0.save(folder)).map_err(to_python)
    }

    /// Takes all state from a folder.
    fn load(&mut self, py: Python<'_>, folder: PathBuf) -> PyResult<()> {
        py.detach(|| self.0.load(folder)).map_err(to_python)
    }
}

fn filled(dtype: &str, sizes: Vec<u64>, value: f64) -> PyResult<Tensor> {
    let dtype = element_type(dtype)?;
    let mut tensor = Tensor::zeros(dtype, sizes);
    if value != 0.0 {
        let size = dtype.size_bytes() as usize;
        tensor.bytes_mut().chunks_exact_mut(size).for_each(|bytes| dtype.write_f64(value, bytes));
    }
    Ok(tensor)
}
