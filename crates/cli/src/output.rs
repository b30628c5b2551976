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

/// A remark on stderr, for a person who looks at it.
pub fn note(text: &str) {
    if std::io::stderr().is_terminal() {
        let _ = writeln!(std::io::stderr(), "{text}");
    }
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
    // Some editors put a byte order mark first.
    let text = bytes.strip_prefix(b"\xef\xbb\xbf").map(<[u8]>::to_vec).unwrap_or(bytes);
    String::from_utf8(text).map_err(|error| {
        Error::in_file(
            &name,
            format!("is not a text file: byte {} is not UTF-8", error.utf8_error().valid_up_to()),
        )
    })
}
