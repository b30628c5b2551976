//! Every message this crate shows a user.

use pando_base::Error;
use std::fmt::Display;
use std::path::Path;

fn quoted<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<String> = names.into_iter().map(|name| format!("'{name}'")).collect();
    if names.is_empty() { "none".into() } else { names.join(", ") }
}

pub fn duplicate(what: &str, name: &str) -> Error {
    Error::new(format!("the {what} '{name}' is there twice; a name stands for one"))
}

pub fn bad_state_name(name: &str) -> Error {
    Error::new(format!("state cannot be called '{name}'; give it another name"))
}

pub fn unknown_program<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Error {
    Error::new(format!("there is no program '{name}'; there are: {}", quoted(known)))
}

pub fn unknown_state(name: &str) -> Error {
    Error::new(format!("there is no state '{name}'; `state_names` lists what there is"))
}

pub fn wrong_count(program: &str, what: &str, names: usize, values: usize) -> Error {
    Error::new(format!("program '{program}' names {names} {what}, its main has {values}"))
}

pub fn no_main(program: &str) -> Error {
    Error::new(format!("the module of program '{program}' has no function @main"))
}

pub fn wrong_state_type(state: &str, expected: impl Display, found: impl Display) -> Error {
    Error::new(format!("state '{state}' is {expected}, not {found}"))
}

pub fn wrong_input_count(program: &str, names: &[String], found: usize) -> Error {
    let names = quoted(names.iter().map(String::as_str));
    Error::new(format!("program '{program}' takes the inputs {names}, found {found}"))
}

pub fn wrong_input(program: &str, input: &str, expected: impl Display, found: impl Display) -> Error {
    Error::new(format!("program '{program}': the input '{input}' is {found}, expected {expected}"))
}

pub fn wrong_micro_batch_count(expected: u64, found: usize) -> Error {
    Error::new(format!("a training step takes {expected} micro-batch(es), found {found}"))
}

pub fn no_training<'a>(known: impl IntoIterator<Item = &'a str>) -> Error {
    Error::new(format!(
        "training needs a program 'step', or 'accumulate' and 'update'; there are: {}",
        quoted(known)
    ))
}

fn in_checkpoint(path: &Path, message: impl Into<String>) -> Error {
    Error::in_file(path.display().to_string(), message)
}

pub fn not_written(path: &Path, reason: impl Display) -> Error {
    in_checkpoint(
        path,
        format!("the checkpoint could not be written ({reason}); an earlier one is as it was"),
    )
}

pub fn no_checkpoint(path: &Path, reason: impl Display) -> Error {
    in_checkpoint(path, format!("no checkpoint can be read here ({reason}); name the folder of a checkpoint"))
}

pub fn no_manifest(path: &Path, reason: impl Display) -> Error {
    in_checkpoint(path, format!("this is no manifest of a checkpoint ({reason})"))
}

pub fn newer_checkpoint(path: &Path, found: u64, known: u64) -> Error {
    let advice = "use the version of pando that wrote it";
    in_checkpoint(path, format!("the checkpoint has format {found}, this version reads {known}; {advice}"))
}

pub fn damaged(path: &Path, reason: impl Display) -> Error {
    in_checkpoint(path, format!("the checkpoint is damaged ({reason}); use another one"))
}

pub fn missing_in_checkpoint<'a>(path: &Path, names: impl IntoIterator<Item = &'a str>) -> Error {
    let advice = "load a checkpoint of the same training job";
    in_checkpoint(path, format!("the checkpoint lacks the state {}; {advice}", quoted(names)))
}

pub fn unknown_in_checkpoint<'a>(path: &Path, names: impl IntoIterator<Item = &'a str>) -> Error {
    let advice = "`load_part` takes what this session has and leaves the rest";
    in_checkpoint(path, format!("the checkpoint has state unknown here, {}; {advice}", quoted(names)))
}

pub fn wrong_type_in_checkpoint(
    path: &Path,
    name: &str,
    expected: impl Display,
    found: impl Display,
) -> Error {
    let message = format!("the state '{name}' is {found} in the checkpoint and {expected} in this session");
    in_checkpoint(path, message)
}
