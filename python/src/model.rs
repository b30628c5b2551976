//! A compiled model, as Python sees it.

#![allow(unsafe_code)]

use crate::array::{Array, Location, borrow};
use crate::engine::{Engine, Port};
use crate::to_python;
use pando_base::{Error, Result};
use pando_cpu::{CompileOptions, Input, Isa, MatmulPrecision, StepTime, TileUnit};
use pando_graph::Dim;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyAny;
use std::path::PathBuf;

/// Compiled for this computer. Calls at the same time are safe.
#[pyclass(frozen)]
pub struct Model {
    engine: Engine,
    threads: usize,
    /// In fact.
    matmul_precision: MatmulPrecision,
    isa: Isa,
    tile_unit: TileUnit,
}

/// The level of instructions, and whether the unit for tiles may be used.
type Instructions = (Option<String>, bool);

pub type Measured = (&'static str, String, f64, u64, u64);

pub fn measured(step: StepTime) -> Measured {
    (step.kind, step.name.to_string(), step.seconds, step.flops, step.bytes)
}

#[pymethods]
impl Model {
    #[staticmethod]
    fn from_file(
        py: Python<'_>,
        path: PathBuf,
        dims: Vec<(String, u64)>,
        threads: Option<usize>,
        precision: &str,
        instructions: Instructions,
    ) -> PyResult<Model> {
        let name = path.display().to_string();
        py.detach(|| {
            let load = |options| Engine::from_file(&path, dims, options);
            Model::new(threads, precision, instructions, load).map_err(|error| error.with_file(&name))
        })
        .map_err(to_python)
    }

    /// The bytes stay Python's own. A model that may be translated again keeps them.
    #[staticmethod]
    fn from_bytes(
        py: Python<'_>,
        bytes: PyBackedBytes,
        dims: Vec<(String, u64)>,
        threads: Option<usize>,
        precision: &str,
        instructions: Instructions,
    ) -> PyResult<Model> {
        const NAME: &str = "model";
        py.detach(|| {
            let load = |options| Engine::from_bytes(bytes, NAME, &dims, options);
            Model::new(threads, precision, instructions, load).map_err(|error| error.with_file(NAME))
        })
        .map_err(to_python)
    }

    #[getter]
    fn threads(&self) -> usize {
        self.threads
    }

    #[getter]
    fn matmul_precision(&self) -> &'static str {
        self.matmul_precision.name()
    }

    #[getter]
    fn isa(&self) -> &'static str {
        self.isa.name()
    }

    #[getter]
    fn tile_unit(&self) -> &'static str {
        self.tile_unit.name()
    }

    #[getter]
    fn inputs<'py>(&self, py: Python<'py>) -> PyResult<Vec<Described<'py>>> {
        self.engine.inputs.iter().map(|port| described(py, port)).collect()
    }

    #[getter]
    fn outputs<'py>(&self, py: Python<'py>) -> PyResult<Vec<Described<'py>>> {
        self.engine.outputs.iter().map(|port| described(py, port)).collect()
    }

    /// The outputs in order, with their names. The arrays must stay where they are, unchanged, until the call
    /// returns; the interpreter runs other threads meanwhile.
    fn run(&self, py: Python<'_>, arrays: Vec<Location>) -> PyResult<Vec<(String, Array)>> {
        // SAFETY: the caller holds the arrays while it waits for this call.
        let inputs: Vec<Input> = arrays.iter().map(|at| unsafe { borrow(at) }).collect::<PyResult<_>>()?;
        let outputs = py.detach(|| self.engine.run(&inputs)).map_err(to_python)?;
        Ok(outputs.into_iter().map(|(name, tensor)| (name, Array::new(tensor))).collect())
    }

    /// The steps of a run: kind, name, median seconds, floating-point operations, bytes. As [`Model::run`].
    fn profile(&self, py: Python<'_>, arrays: Vec<Location>, runs: usize) -> PyResult<Vec<Measured>> {
        // SAFETY: as in `run`.
        let inputs: Vec<Input> = arrays.iter().map(|at| unsafe { borrow(at) }).collect::<PyResult<_>>()?;
        let runs = py.detach(|| self.engine.profile(&inputs, runs)).map_err(to_python)?;
        Ok(pando_cpu::medians(&runs).into_iter().map(measured).collect())
    }
}

impl Model {
    fn new(
        threads: Option<usize>,
        precision: &str,
        (isa, with_unit): Instructions,
        load: impl FnOnce(CompileOptions) -> Result<Engine>,
    ) -> Result<Model> {
        let mut options =
            CompileOptions { matmul_precision: precision_of(precision)?, ..CompileOptions::default() }
                .with_instructions(isa.as_deref(), with_unit)?;
        options.threads = threads.unwrap_or(options.threads);
        let CompileOptions { threads, isa, tile_unit, .. } = options;
        let matmul_precision = options.matmul_precision.used(isa, tile_unit);
        Ok(Model { engine: load(options)?, threads, matmul_precision, isa, tile_unit })
    }
}

pub fn precision_of(name: &str) -> Result<MatmulPrecision> {
    MatmulPrecision::ALL
        .into_iter()
        .find(|precision| precision.name() == name)
        .ok_or_else(|| Error::new(format!("matmul_precision {name:?} is none of highest, high and medium")))
}

/// Name, element type, and the dimensions: numbers or names.
type Described<'py> = (String, &'static str, Option<Vec<Bound<'py, PyAny>>>);

fn described<'py>(py: Python<'py>, (name, dtype, dims): &Port) -> PyResult<Described<'py>> {
    let dim = |dim: &Dim| match dim {
        Dim::Known(size) => Ok(size.into_pyobject(py)?.into_any()),
        Dim::Named(name) => Ok(name.as_ref().into_pyobject(py)?.into_any()),
    };
    let dims = dims.as_ref().map(|dims| dims.iter().map(dim).collect::<PyResult<_>>());
    Ok((name.clone(), dtype.name(), dims.transpose()?))
}
