//! One file per command.

pub mod compile;
pub mod cpu_profile;
mod pipeline;
pub mod profile;
pub mod run;
pub mod system;
mod train;
mod tries;
pub mod validate;
pub mod zoo;
