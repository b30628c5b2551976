//! Tests of the binary and of what the repository says about itself.

mod commands;
mod common;
mod documents;
mod errors;
mod layering;
mod run;
