//! Sentences about data files that are wrong, and requests that match nothing.

use pando_base::Error;

pub fn bad_file(file: &str, message: &str) -> Error {
    Error::in_file(file, format!("cannot be read: {message}"))
}

pub fn bad_series(file: &str, id: &str, message: &str) -> Error {
    Error::in_file(file, format!("series '{id}': {message}"))
}

pub fn no_rows(pattern: &str) -> Error {
    Error::new(format!("no row has '{pattern}' in its name or kind; `pando validate` lists them all"))
}
