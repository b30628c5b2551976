//! A module compiled for this computer: tensors by position in and out, nothing copied.

#![allow(unsafe_code)]

use crate::array::{Array, Location, borrow};
use crate::model::{Measured, measured, precision_of};
use crate::to_python;
use pando_cpu::{CompileOptions, Input};
use pyo3::prelude::*;
use std::sync::Arc;

/// Calls at the same time are safe.
#[pyclass(frozen)]
pub struct Compiled(pando_cpu::Model);

impl Compiled {
    pub fn new(
        py: Python<'_>,
        module: Arc<pando_graph::Module>,
        threads: Option<usize>,
        precision: &str,
    ) -> PyResult<Compiled> {
        let mut options = CompileOptions {
            matmul_precision: precision_of(precision).map_err(to_python)?,
            ..CompileOptions::default()
        };
        options.threads = threads.unwrap_or(options.threads);
        py.detach(|| pando_cpu::compile(&module, &options)).map(Compiled).map_err(to_python)
    }
}

#[pymethods]
impl Compiled {
    /// The results in order. The arrays must stay where they are, unchanged, until the call returns; the interpreter
    /// runs other threads meanwhile.
    fn run(&self, py: Python<'_>, arrays: Vec<Location>) -> PyResult<Vec<Array>> {
        // SAFETY: the caller holds the arrays while it waits for this call.
        let inputs: Vec<Input> = arrays.iter().map(|at| unsafe { borrow(at) }).collect::<PyResult<_>>()?;
        let results = py.detach(|| self.0.run_borrowed(&inputs)).map_err(to_python)?;
        Ok(results.into_iter().map(Array::new).collect())
    }

    /// The steps of a run: kind, name, median seconds, floating-point operations, bytes. As [`Compiled::run`].
    fn profile(&self, py: Python<'_>, arrays: Vec<Location>, runs: usize) -> PyResult<Vec<Measured>> {
        // SAFETY: as in `run`.
        let inputs: Vec<Input> = arrays.iter().map(|at| unsafe { borrow(at) }).collect::<PyResult<_>>()?;
        let profile = || self.0.profile_borrowed(&inputs).map(|(_, steps)| steps);
        let runs: Vec<_> =
            py.detach(|| (0..runs).map(|_| profile()).collect::<Result<_, _>>()).map_err(to_python)?;
        Ok(pando_cpu::medians(&runs).into_iter().map(measured).collect())
    }
}
