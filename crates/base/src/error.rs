//! The error type of the user's problems: one sentence that says what, where and what to do.
//! Our own bugs are assertions and never take this form; "does not fit" is data, not an error.

use std::fmt;

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A user's problem. Displays as `file:line:col: message`, leaving out what is not known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error(Box<Inner>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Inner {
    file: Option<String>,
    /// 1-based line and column.
    position: Option<(u32, u32)>,
    message: String,
}

impl Error {
    pub fn new(message: impl Into<String>) -> Self {
        Error(Box::new(Inner { file: None, position: None, message: message.into() }))
    }

    pub fn in_file(file: impl Into<String>, message: impl Into<String>) -> Self {
        Error(Box::new(Inner { file: Some(file.into()), position: None, message: message.into() }))
    }

    /// `line` and `col` count from 1.
    pub fn at(file: impl Into<String>, line: u32, col: u32, message: impl Into<String>) -> Self {
        let position = Some((line, col));
        Error(Box::new(Inner { file: Some(file.into()), position, message: message.into() }))
    }

    /// A position in a text whose file name the caller will add with [`Error::with_file`].
    pub fn at_position(line: u32, col: u32, message: impl Into<String>) -> Self {
        let position = Some((line, col));
        Error(Box::new(Inner { file: None, position, message: message.into() }))
    }

    /// Names the file unless one is named already.
    pub fn with_file(mut self, file: &str) -> Self {
        self.0.file.get_or_insert_with(|| file.to_string());
        self
    }

    /// Puts the place inside the program (a function, an operation) before the message.
    pub fn context(mut self, what: impl fmt::Display) -> Self {
        self.0.message = format!("{what}: {}", self.0.message);
        self
    }

    pub fn message(&self) -> &str {
        &self.0.message
    }

    pub fn file(&self) -> Option<&str> {
        self.0.file.as_deref()
    }

    pub fn position(&self) -> Option<(u32, u32)> {
        self.0.position
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.0.file, self.0.position) {
            (Some(file), Some((line, col))) => write!(f, "{file}:{line}:{col}: ")?,
            (Some(file), None) => write!(f, "{file}: ")?,
            (None, Some((line, col))) => write!(f, "line {line}, column {col}: ")?,
            (None, None) => {}
        }
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_where_as_far_as_known() {
        assert_eq!(Error::new("no").to_string(), "no");
        assert_eq!(Error::in_file("a.graph", "no").to_string(), "a.graph: no");
        assert_eq!(Error::at("a.graph", 3, 7, "no").to_string(), "a.graph:3:7: no");
        let error = Error::at_position(3, 7, "no").context("func @main");
        assert_eq!(error.to_string(), "line 3, column 7: func @main: no");
        assert_eq!(error.with_file("a").to_string(), "a:3:7: func @main: no");
    }
}
