//! Standard output and error. A reader that goes away (`| head`) ends the output, not the program.

use pando_base::{Error, Result};
use std::io::{ErrorKind, IsTerminal, Write};
use std::path::Path;

/// Prints text as it is.
pub fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Error::new(format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Prints a JSON object on a line of its own.
pub fn print_json(value: &serde_json::Value) -> Result<()> {
    print(&format!("{value}\n"))
}

/// Prints an error to stderr; nothing can be done if that fails.
pub fn error(error: &Error) {
    let _ = writeln!(std::io::stderr(), "pando: {error}");
}

/// A remark on stderr.
pub fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Whether standard output is a terminal that wants colours.
pub fn colors() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none()
}

/// Reads a text file of a user.
pub fn read_text(path: &Path) -> Result<String> {
    let name = path.display().to_string();
    let bytes =
        std::fs::read(path).map_err(|error| Error::in_file(&name, format!("cannot be read: {error}")))?;
    String::from_utf8(bytes).map_err(|error| {
        Error::in_file(
            &name,
            format!("is not a text file: byte {} is not UTF-8", error.utf8_error().valid_up_to()),
        )
    })
}

/// Writes a file whole or not at all.
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<()> {
    let temporary = path.with_extension(format!("tmp{}", std::process::id()));
    let result = std::fs::write(&temporary, bytes).and_then(|()| std::fs::rename(&temporary, path));
    result.map_err(|error| {
        let _ = std::fs::remove_file(&temporary);
        Error::in_file(path.display().to_string(), format!("cannot be written: {error}"))
    })
}
