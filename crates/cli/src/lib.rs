//! The command line as a library: parses arguments, calls the libraries, prints. The binary `pando` and the Python
//! package share it. No models or machines are understood here.

pub mod args;
pub mod commands;
mod for_inputs;
mod inputs;
pub mod model;
mod npy;
mod output;
mod progress;

use args::{Args, Command, SystemCommand, ZooCommand};
use pando_base::Result;
use std::ffi::OsString;

/// Runs a command; `args` begin with the program's name. The exit status: 0 success, 1 the user's problem,
/// 2 wrong usage.
pub fn run(args: impl IntoIterator<Item = OsString>) -> u8 {
    let args = match Args::read(args) {
        Ok(args) => args,
        Err(error) => {
            // A closed pipe is no reason to complain.
            let _ = error.print();
            return error.exit_code() as u8;
        }
    };
    match dispatch(args.command) {
        Ok(good) => u8::from(!good),
        Err(error) => {
            output::error(&error);
            1
        }
    }
}

/// Whether the answer is a good one: `profile` of a model that does not fit prints and returns false.
fn dispatch(command: Command) -> Result<bool> {
    match command {
        Command::Run(args) => commands::run::run(&args).map(|()| true),
        Command::Profile(args) => commands::profile::profile(&args),
        Command::Compile(args) => commands::compile::compile(&args).map(|()| true),
        Command::Validate(args) => commands::validate::validate(&args).map(|()| true),
        Command::System(SystemCommand::List { json }) => commands::system::list(json).map(|()| true),
        Command::System(SystemCommand::Show { name, json }) => {
            commands::system::show(&name, json).map(|()| true)
        }
        Command::System(SystemCommand::Check { file, json }) => {
            commands::system::check(&file, json).map(|()| true)
        }
        Command::Zoo(ZooCommand::List { json }) => commands::zoo::list(json).map(|()| true),
        Command::Zoo(ZooCommand::Export { name, file }) => commands::zoo::export(&name, &file).map(|()| true),
    }
}
