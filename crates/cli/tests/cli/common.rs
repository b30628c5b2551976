//! Running the binary as a user does.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

pub struct Run {
    pub stdout: String,
    pub stderr: String,
    pub status: i32,
}

/// Runs `pando` in the repository's root.
pub fn pando(arguments: &[&str]) -> Run {
    pando_with(arguments, |_| {})
}

pub fn pando_with(arguments: &[&str], adjust: impl FnOnce(&mut Command)) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pando"));
    command.args(arguments).current_dir(root());
    adjust(&mut command);
    let Output { status, stdout, stderr } = command.output().expect("pando starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    let run = Run { stdout: text(stdout), stderr: text(stderr), status: status.code().expect("not killed") };
    assert!(!run.stderr.contains("panicked"), "{arguments:?}: {}", run.stderr);
    run
}

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A directory of this test's own, empty.
pub fn scratch(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).expect("writable");
    path
}

pub fn json(run: &Run) -> serde_json::Value {
    assert_eq!(run.stdout.lines().count(), 1, "one JSON object and nothing else: {}", run.stdout);
    serde_json::from_str(&run.stdout).expect("JSON")
}
