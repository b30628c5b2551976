//! Predictions for systems, as the JSON texts of the command line.

use crate::{Error, to_python};
use clap::Parser;
use pando_cli::args::{Args, Command};
use pando_cli::commands::profile::predict as predict_model;
use pyo3::prelude::*;

/// What `pando profile --json` prints for these arguments (without the command's name).
#[pyfunction]
pub fn predict(py: Python<'_>, args: Vec<String>) -> PyResult<String> {
    let words = ["pando", "profile"].map(String::from).into_iter().chain(args);
    let command = match Args::try_parse_from(words) {
        Ok(Args { command: Command::Profile(args) }) => args,
        Ok(_) => unreachable!("the words begin with profile"),
        Err(error) => return Err(Error::new_err(first_paragraph(&error.to_string()))),
    };
    py.detach(|| {
        let prediction = predict_model(&command)?;
        if let Some(path) = &command.report {
            prediction.write_report(path, &command)?;
        }
        Ok(prediction.json().to_string())
    })
    .map_err(to_python)
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
