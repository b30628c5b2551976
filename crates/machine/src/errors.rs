//! Every message a user can get from this crate, one named function each: what is wrong, where, and
//! what to do.
//!
//! In: the parts of a sentence. Out: an [`Error`]. Deliberately not here: deciding that something is
//! wrong.

use std::fmt::Display;
use std::path::Path;

use pando_base::Error;

use crate::builtin;
use crate::closest::closest;
use crate::locate::{self, Position};

/// A field whose value makes no sense, before it is known where the field stands.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Problem {
    /// Path of the field, such as `chip.sram.bytes_per_tile`.
    pub field: String,
    pub message: String,
}

impl Problem {
    /// The same problem, its field being inside a table.
    pub(crate) fn under(mut self, table: &str) -> Problem {
        self.field = format!("{table}.{}", self.field);
        self
    }
}

pub(crate) fn unknown_system(name: &str) -> Error {
    let names = builtin::names();
    Error::new(format!(
        "there is no system `{}`{}; the built-in systems are {}; for a system of your own give the \
         path of its file, ending in .toml",
        shortened(name),
        suggestion(name, names),
        names.join(", ")
    ))
}

pub(crate) fn unknown_chip(file: &str, position: Option<Position>, name: &str) -> Error {
    let names = builtin::chip_names();
    let message = format!(
        "there is no chip `{}`{}; the built-in chips are {}; write one of them, the path of a chip \
         file ending in .toml, or a [chip] table",
        shortened(name),
        suggestion(name, names),
        names.join(", ")
    );
    placed(file, position, message)
}

pub(crate) fn chip_path_without_folder(file: &str, position: Option<Position>, path: &str) -> Error {
    let message = format!(
        "chip file `{path}` is looked for beside the system file, but this text is not in a \
         folder; write a [chip] table instead"
    );
    placed(file, position, message)
}

pub(crate) fn unreadable(path: &Path, error: &std::io::Error) -> Error {
    let message = format!("cannot read this file: {error}; check the path and that it is text");
    Error::in_file(path.display().to_string(), message)
}

pub(crate) fn unreadable_chip(
    file: &str,
    position: Option<Position>,
    path: &Path,
    error: &std::io::Error,
) -> Error {
    let message = format!(
        "cannot read chip file `{}`: {error}; the path is relative to this file's folder",
        path.display()
    );
    placed(file, position, message)
}

/// What the TOML reader found: syntax, a type, a field too many or too few.
pub(crate) fn not_understood(file: &str, text: &str, error: &toml::de::Error) -> Error {
    let position = error.span().map(|span| locate::position(text, span.start));
    placed(file, position, in_plain_words(&error.message().replace('\n', " ")))
}

/// The reader's message with the Rust type at its end named as users know it.
fn in_plain_words(message: &str) -> String {
    const TYPES: [(&str, &str); 4] = [
        ("u32", "a whole number from 0"),
        ("u64", "a whole number from 0"),
        ("f64", "a number"),
        ("a sequence", "a list"),
    ];
    let Some((start, expected)) = message.rsplit_once(", expected ") else {
        return message.to_string();
    };
    let known = TYPES.iter().find(|(rust, _)| *rust == expected).map(|(_, plain)| *plain);
    let plain = if expected.starts_with("struct ") { "a table" } else { known.unwrap_or(expected) };
    format!("{start}, expected {plain}")
}

/// A problem in a text, at its line if the text has the field.
pub(crate) fn field(file: &str, text: &str, problem: &Problem) -> Error {
    let position = locate::field(text, &problem.field);
    placed(file, position, sentence(problem))
}

/// A problem in a machine that has no text.
pub(crate) fn field_without_text(problem: &Problem) -> Error {
    Error::new(sentence(problem))
}

pub(crate) fn out_of_range(field: &str, value: u64, min: u64, max: u64) -> Problem {
    problem(field, format!("{value} is not possible; expected a whole number from {min} to {max}"))
}

pub(crate) fn rate_out_of_range(field: &str, value: f64, max: f64) -> Problem {
    problem(field, format!("{value} is not possible; expected a number above 0, at most {max:e}"))
}

pub(crate) fn latency_out_of_range(field: &str, value: f64, max: f64) -> Problem {
    problem(field, format!("{value} is not possible; expected seconds from 0 to {max}"))
}

pub(crate) fn share_out_of_range(field: &str, value: f64) -> Problem {
    problem(field, format!("{value} is not possible; expected a share above 0, at most 1"))
}

pub(crate) fn empty_text(field: &str) -> Problem {
    problem(field, "the text is empty; expected a name")
}

pub(crate) fn unknown_format(field: &str, value: &str, formats: &[&str]) -> Problem {
    let message = format!(
        "there is no number format `{}` in the matrix unit; expected one of {}",
        shortened(value),
        formats.join(", ")
    );
    problem(field, message)
}

pub(crate) fn no_matrix_rate() -> Problem {
    problem("matrix", "the list is empty; expected at least one [[matrix]] table")
}

pub(crate) fn matrix_rate_twice(field: &str, input: &str, partials: &str) -> Problem {
    problem(field, format!("the rate for input {input}, partials {partials} is given twice; keep one"))
}

pub(crate) fn regions_do_not_add_up(executable: u64, interleaved: u64, whole: u64) -> Problem {
    let message = format!(
        "{whole} is not the sum of the two regions; expected executable_bytes + interleaved_bytes \
         = {executable} + {interleaved} = {}",
        executable.saturating_add(interleaved)
    );
    problem("bytes_per_tile", message)
}

pub(crate) fn no_links(chips: u32) -> Problem {
    problem("chips", format!("{chips} chips have no way to each other; add a [links] table"))
}

pub(crate) fn chips_do_not_match(chips: u32, domains: u32, domain_chips: u32) -> Problem {
    let message = format!(
        "{chips} is not the number of chips in the domains; expected gateway.domains x \
         links.domain_chips = {domains} x {domain_chips} = {}",
        u64::from(domains) * u64::from(domain_chips)
    );
    problem("chips", message)
}

pub(crate) fn wrong_domain_for_topology(domain_chips: u32, topology: &str, expected: &str) -> Problem {
    problem("domain_chips", format!("{domain_chips} chips form no {topology}; expected {expected}"))
}

pub(crate) fn no_parallel_links(field: &str, topology: &str) -> Problem {
    problem(field, format!("0 links leave the {topology} unconnected; expected at least 1"))
}

pub(crate) fn too_many_links(needed: u64, links_per_chip: u32) -> Problem {
    let message = format!(
        "{links_per_chip} links are too few for this topology; rung_links and rail_links need \
         {needed} on each chip"
    );
    problem("links_per_chip", message)
}

pub(crate) fn more_than_there_are(field: &str, value: u32, whole: &str, chips: u32) -> Problem {
    problem(field, format!("{value} is more than the {chips} of {whole}; expected 1 to {chips}"))
}

fn problem(field: &str, message: impl Into<String>) -> Problem {
    Problem { field: field.to_string(), message: message.into() }
}

fn sentence(problem: &Problem) -> String {
    format!("{}: {}", problem.field, problem.message)
}

fn placed(file: &str, position: Option<Position>, message: impl Display) -> Error {
    match position {
        Some(Position { line, col }) => Error::at(file, line, col, message.to_string()),
        None => Error::in_file(file, message.to_string()),
    }
}

fn suggestion(name: &str, names: &[&str]) -> String {
    closest(name, names).map_or_else(String::new, |near| format!(", did you mean `{near}`?"))
}

/// A user's word as it can stand in a sentence: one line, not endless.
fn shortened(word: &str) -> String {
    const CHARS_MAX: usize = 60;
    let mut shown: String = word.chars().take(CHARS_MAX).collect();
    if shown.len() < word.len() {
        shown.push('…');
    }
    shown.escape_debug().to_string()
}
