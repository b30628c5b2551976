//! `pando`: the command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(pando_cli::run(std::env::args_os()))
}
