//! From a graph to numbers on this computer, fast: `graph → plan → run`.
//!
//! [`compile`] takes a module; [`Model::run`] takes tensors. A plan is made per set of input shapes and kept:
//! everything is flat (`flat.rs`), layout ops are views (`view.rs`), elementwise chains are one pass
//! (`step/program.rs`), products have epilogues, attention is one step (`step/attention.rs`), memory is one arena
//! (`plan/memory.rs`), constants are folded, packed once and held once (`constants.rs`). Kernels (`kernel/`)
//! exist for each level of instructions ([`Isa`]).
//!
//! Results are those of the graph's evaluator but for rounding: f32 arithmetic in f32. They do not depend
//! on the number of threads and are the same bits from run to run.

mod constants;
mod errors;
mod exec;
mod flat;
mod isa;
mod kernel;
mod model;
mod options;
mod plan;
mod pool;
mod recognise;
mod step;
mod view;

pub use isa::Isa;
pub use model::{Model, StepTime, compile, compile_owned};
pub use options::{CompileOptions, MatmulPrecision};
