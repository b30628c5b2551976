//! A compiled model.

#![allow(unsafe_code)]

use crate::array::{Array, Location, borrow};
use crate::to_python;
use pando_base::{Error, Result};
use pando_cli::args::ModelArgs;
use pando_cli::model::{GraphModel, load, load_bytes};
use pando_cpu::{CompileOptions, Input, MatmulPrecision, StepTime};
use pando_graph::{Dim, TensorType};
use pyo3::prelude::*;
use pyo3::types::PyAny;
use std::path::PathBuf;

/// Compiled for this computer. Calls at the same time are safe.
#[pyclass(frozen)]
pub struct Model {
    compiled: pando_cpu::Model,
    inputs: Vec<Port>,
    /// With their positions among the engine's results.
    outputs: Vec<(Port, usize)>,
    threads: usize,
}

type Measured = (&'static str, String, f64, u64, u64);

fn measured(step: StepTime) -> Measured {
    (step.kind, step.name.to_string(), step.seconds, step.flops, step.bytes)
}

/// Name, element type, and sizes or their names.
type Port = (String, TensorType);

#[pymethods]
impl Model {
    #[staticmethod]
    fn from_file(
        py: Python<'_>,
        path: PathBuf,
        dims: Vec<(String, u64)>,
        threads: Option<usize>,
        precision: &str,
    ) -> PyResult<Model> {
        py.detach(|| {
            let name = path.display().to_string();
            let model = match load(&ModelArgs { model: path, dims }, None)? {
                pando_cli::model::Model::Graph(model) => model,
                pando_cli::model::Model::Tile(_) => return Err(tile_program(&name)),
            };
            compile(&model, threads, precision).map_err(|error| error.with_file(&name))
        })
        .map_err(to_python)
    }

    #[staticmethod]
    fn from_bytes(
        py: Python<'_>,
        bytes: Vec<u8>,
        dims: Vec<(String, u64)>,
        threads: Option<usize>,
        precision: &str,
    ) -> PyResult<Model> {
        const NAME: &str = "model";
        py.detach(|| {
            let model = load_bytes(bytes, NAME, &dims)?;
            compile(&model, threads, precision).map_err(|error| error.with_file(NAME))
        })
        .map_err(to_python)
    }

    #[getter]
    fn threads(&self) -> usize {
        self.threads
    }

    #[getter]
    fn inputs<'py>(&self, py: Python<'py>) -> PyResult<Vec<Described<'py>>> {
        self.inputs.iter().map(|port| described(py, port)).collect()
    }

    #[getter]
    fn outputs<'py>(&self, py: Python<'py>) -> PyResult<Vec<Described<'py>>> {
        self.outputs.iter().map(|(port, _)| described(py, port)).collect()
    }

    /// The outputs in order. The arrays must stay where they are, unchanged, until the call returns; the
    /// interpreter runs other threads meanwhile.
    fn run(&self, py: Python<'_>, arrays: Vec<Location>) -> PyResult<Vec<Array>> {
        // SAFETY: the caller holds the arrays while it waits for this call.
        let inputs: Vec<Input> = arrays.iter().map(|at| unsafe { borrow(at) }).collect::<PyResult<_>>()?;
        let results = py.detach(|| self.compiled.run_borrowed(&inputs)).map_err(to_python)?;
        Ok(self.outputs.iter().map(|&(_, position)| Array::new(results[position].clone())).collect())
    }

    /// The steps of a run: kind, name, median seconds, floating-point operations, bytes. As [`Model::run`].
    fn profile(&self, py: Python<'_>, arrays: Vec<Location>, runs: usize) -> PyResult<Vec<Measured>> {
        // SAFETY: as in `run`.
        let inputs: Vec<Input> = arrays.iter().map(|at| unsafe { borrow(at) }).collect::<PyResult<_>>()?;
        py.detach(|| {
            self.compiled.run_borrowed(&inputs)?;
            let profile = || self.compiled.profile_borrowed(&inputs).map(|(_, steps)| steps);
            let runs = (0..runs).map(|_| profile()).collect::<Result<Vec<_>>>()?;
            Ok(pando_cpu::medians(&runs).into_iter().map(measured).collect())
        })
        .map_err(to_python)
    }
}

fn compile(model: &GraphModel, threads: Option<usize>, precision: &str) -> Result<Model> {
    let matmul_precision = match precision {
        "highest" => MatmulPrecision::Highest,
        "high" => MatmulPrecision::High,
        "medium" => MatmulPrecision::Medium,
        other => {
            return Err(Error::new(format!(
                "matmul_precision {other:?} is none of highest, high and medium"
            )));
        }
    };
    let mut options = CompileOptions { matmul_precision, ..CompileOptions::default() };
    options.threads = threads.unwrap_or(options.threads);
    let main = &model.module.funcs[model.module.main().expect("loading found it")];
    let inputs = model.inputs.iter().cloned().zip(main.param_types().into_iter().cloned()).collect();
    let results = main.result_types();
    let outputs =
        model.outputs.iter().map(|(name, at)| ((name.clone(), results[*at].clone()), *at)).collect();
    Ok(Model {
        compiled: pando_cpu::compile(&model.module, &options)?,
        inputs,
        outputs,
        threads: options.threads,
    })
}

fn tile_program(name: &str) -> Error {
    Error::in_file(name, "is a tile program; only models (.onnx, .graph) can be loaded")
}

/// Name, element type, and the dimensions: numbers or names.
type Described<'py> = (String, &'static str, Vec<Bound<'py, PyAny>>);

fn described<'py>(py: Python<'py>, (name, ty): &Port) -> PyResult<Described<'py>> {
    let dims = ty.dims.iter().map(|dim| match dim {
        Dim::Known(size) => Ok(size.into_pyobject(py)?.into_any()),
        Dim::Named(name) => Ok(name.as_ref().into_pyobject(py)?.into_any()),
    });
    Ok((name.clone(), ty.dtype.name(), dims.collect::<PyResult<_>>()?))
}
