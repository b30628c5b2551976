//! `pando._pando`, the native half of the Python package: models that run, graphs, predictions, the command line. What users
//! see is written in Python (`pando/`): arrays and names become plain pieces there. Nothing is computed here.

mod array;
mod compiled;
mod composites;
mod engine;
mod fixed;
mod graph;
mod model;
mod predict;
mod session;
mod training;

use pando_base::Error as PandoError;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

pyo3::create_exception!(
    _pando,
    Error,
    PyValueError,
    "What was asked cannot be done; the message says what to do."
);

fn to_python(error: PandoError) -> PyErr {
    Error::new_err(error.to_string())
}

/// Runs the command line and returns its exit status.
#[pyfunction]
fn command_line(py: Python<'_>, args: Vec<String>) -> u8 {
    py.detach(|| pando_cli::run(args.into_iter().map(Into::into)))
}

#[pymodule]
fn _pando(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("Error", module.py().get_type::<Error>())?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<model::Model>()?;
    module.add_class::<array::Array>()?;
    module.add_class::<graph::Graph>()?;
    module.add_class::<graph::Module>()?;
    module.add_class::<compiled::Compiled>()?;
    module.add_class::<session::Session>()?;
    module.add_class::<training::Optimizer>()?;
    module.add_class::<training::Accumulation>()?;
    module.add_function(wrap_pyfunction!(training::gradients, module)?)?;
    module.add_function(wrap_pyfunction!(training::clip_by_norm, module)?)?;
    module.add_function(wrap_pyfunction!(training::all_finite, module)?)?;
    module.add_function(wrap_pyfunction!(training::next_loss_scale, module)?)?;
    module.add_function(wrap_pyfunction!(command_line, module)?)?;
    module.add_function(wrap_pyfunction!(predict::predict, module)?)?;
    module.add_function(wrap_pyfunction!(predict::predict_module, module)?)?;
    module.add_function(wrap_pyfunction!(predict::read_report, module)?)?;
    module.add_function(wrap_pyfunction!(predict::systems, module)?)
}
