//! Predictions for systems, as the JSON texts of the command line, and report files.

use crate::fixed::fixed;
use crate::graph::Module;
use crate::{Error as PythonError, to_python};
use clap::Parser;
use pando_base::{Error, Result};
use pando_cli::args::{Args, Command, ProfileArgs};
use pando_cli::commands::profile::{Prediction, predict as predict_model, predict_program};
use pando_graph::Module as Graph;
use pyo3::prelude::*;
use std::path::PathBuf;

/// What `pando profile --json` prints for these arguments (without the command's name).
#[pyfunction]
pub fn predict(py: Python<'_>, args: Vec<String>) -> PyResult<String> {
    let args = parsed(args)?;
    py.detach(|| told(predict_model(&args)?, &args)).map_err(to_python)
}

/// The same for a program in memory: parameters at `constants` become constants on the chip, and of `state`, pairs of a
/// parameter and the result that replaces it, nothing goes to the host. The model that the arguments name is its name.
#[pyfunction]
pub fn predict_module(
    py: Python<'_>,
    module: &Module,
    constants: Vec<usize>,
    state: Vec<(usize, usize)>,
    args: Vec<String>,
) -> PyResult<String> {
    let args = parsed(args)?;
    let predict = || -> Result<String> {
        let (module, state) = resident((*module.0).clone(), &constants, &state)?;
        told(predict_program(module, state, &args)?, &args)
    };
    py.detach(predict).map_err(to_python)
}

/// The module with constants in place of parameters, and inputs before state: the size of a batch is that of the first
/// input.
fn resident(
    module: Graph,
    constants: &[usize],
    state: &[(usize, usize)],
) -> Result<(Graph, Vec<(usize, usize)>)> {
    let mut module = fixed(module, constants)?;
    let main = module.main().ok_or_else(|| Error::new("the module has no function @main"))?;
    // Where each parameter is now that the constants are gone.
    let moved =
        |position: usize| position - constants.iter().filter(|&&constant| constant < position).count();
    let kept: Vec<usize> = state.iter().map(|&(param, _)| moved(param)).collect();
    let params = 0..module.funcs[main].params.len();
    let order: Vec<usize> =
        params.filter(|position| !kept.contains(position)).chain(kept.iter().copied()).collect();
    module.funcs[main] = module.funcs[main].with_params(&order)?;
    let first = order.len() - kept.len();
    let pairs = state.iter().enumerate().map(|(index, &(_, result))| (first + index, result)).collect();
    Ok((module, pairs))
}

fn parsed(args: Vec<String>) -> PyResult<ProfileArgs> {
    let words = ["pando", "profile"].map(String::from).into_iter().chain(args);
    match Args::try_parse_from(words) {
        Ok(Args { command: Command::Profile(args) }) => Ok(args),
        Ok(_) => unreachable!("the words begin with profile"),
        Err(error) => Err(PythonError::new_err(first_paragraph(&error.to_string()))),
    }
}

/// The JSON, and the report where the arguments ask for one.
fn told(prediction: Prediction, args: &ProfileArgs) -> Result<String> {
    if let Some(path) = &args.report {
        prediction.write_report(path, args)?;
    }
    Ok(prediction.json().to_string())
}

/// A report file's profile as JSON (`crates/profile/FORMAT.md`).
#[pyfunction]
pub fn read_report(py: Python<'_>, path: PathBuf) -> PyResult<String> {
    let profile = py.detach(|| pando_profile::read(&path)).map_err(to_python)?;
    Ok(serde_json::to_string(&profile).expect("a profile is plain data"))
}

/// Of a usage message: what is wrong, without the summary of all options.
fn first_paragraph(message: &str) -> String {
    let text = message.split("\n\n").next().unwrap_or(message);
    text.strip_prefix("error: ").unwrap_or(text).to_string()
}

/// Name, title and number of chips of every built-in system.
#[pyfunction]
pub fn systems() -> PyResult<Vec<(String, String, u32)>> {
    let names = pando_machine::names();
    let machines = names.iter().map(|name| pando_machine::load(name).map_err(to_python));
    machines.map(|machine| machine.map(|m| (m.name, m.title, m.chips))).collect()
}
