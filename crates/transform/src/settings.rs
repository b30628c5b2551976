//! Numbers and flags by name, as callers hold them that know names only as text, such as Python.

use crate::errors;
use pando_base::Result;

/// Settings that have been given, and the names that have been asked for.
pub(crate) struct Settings<'a> {
    given: &'a [(&'a str, f64)],
    known: Vec<&'static str>,
}

impl<'a> Settings<'a> {
    pub fn new(given: &'a [(&'a str, f64)]) -> Self {
        Settings { given, known: Vec::new() }
    }

    /// The last one of that name counts.
    pub fn optional(&mut self, name: &'static str, default: Option<f64>) -> Option<f64> {
        self.known.push(name);
        self.given.iter().rev().find(|(given, _)| *given == name).map_or(default, |&(_, value)| Some(value))
    }

    pub fn number(&mut self, name: &'static str, default: f64) -> f64 {
        self.optional(name, None).unwrap_or(default)
    }

    /// Anything but 0 is yes.
    pub fn flag(&mut self, name: &'static str, default: bool) -> bool {
        self.optional(name, None).map_or(default, |value| value != 0.0)
    }

    /// An error if something was given that nobody has asked for.
    pub fn check(&self, of: &str) -> Result<()> {
        match self.given.iter().find(|(given, _)| !self.known.contains(given)) {
            Some((given, _)) => Err(errors::unknown_setting(of, given, &self.known)),
            None => Ok(()),
        }
    }
}
