//! `pando`: the command line. Parses arguments, calls the libraries, prints. No models or machines are
//! understood here. Exit status: 0 success, 1 the user's problem, 2 wrong usage.

mod args;
mod commands;
mod model;
mod npy;
mod output;
mod progress;

use args::{Args, Command, SystemCommand, ZooCommand};
use clap::Parser;
use pando_base::Result;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = Args::parse();
    match dispatch(args.command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            output::error(&error);
            ExitCode::FAILURE
        }
    }
}

/// Whether the answer is a good one: `profile` of a model that does not fit prints and returns false.
fn dispatch(command: Command) -> Result<bool> {
    match command {
        Command::Run(args) => commands::run::run(&args).map(|()| true),
        Command::Profile(args) => commands::profile::profile(&args),
        Command::Compile(args) => commands::compile::compile(&args).map(|()| true),
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
