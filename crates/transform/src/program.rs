//! A program over named state: plain data that the runtime compiles and runs.

use pando_graph::Module;

/// A module whose `main` takes the state it reads, then its inputs, and gives the state it writes, then its outputs.
/// State that is written has the type that it has everywhere.
#[derive(Clone, Debug, Default)]
pub struct Program {
    pub module: Module,
    /// Names of state, one per leading parameter of `main`.
    pub reads: Vec<String>,
    /// Names of state, one per leading result of `main`.
    pub writes: Vec<String>,
    /// Names of the other parameters.
    pub inputs: Vec<String>,
    /// Names of the other results.
    pub outputs: Vec<String>,
}
