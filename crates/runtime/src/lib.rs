//! Sessions: programs compiled for this computer that share named state. A program reads state and inputs, and gives
//! new state and outputs (`pando_transform::Program`); a session runs it, keeps the state, and saves and loads it.
//!
//! Knows the engine (`engine.rs` is the only place that does) and files; knows nothing of what programs mean.

mod checkpoint;
mod engine;
pub mod errors;
mod session;
mod state;

pub use pando_cpu::{CompileOptions, Input, MatmulPrecision};
pub use pando_transform::Program;
pub use session::Session;
