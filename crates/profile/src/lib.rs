//! The schema of a run: what a program costs on a machine, step by step, as plain data; the compressed
//! file it is kept in; reductions over it; and a one-screen table for people.
//!
//! In: a [`Profile`] that someone (the simulator) has filled. Out: files, sums, text. Deliberately not
//! here: how any of the numbers come about, and anything about graphs, tile programs or machines.
//! FORMAT.md describes the file for other tools.

mod errors;
mod file;
pub mod reduce;
pub mod render;
pub mod schema;

pub use file::{MAX_JSON_BYTES, read, write, write_bytes};
pub use render::{Style, table};
pub use schema::{
    Cycles, FORMAT_VERSION, Fit, HostIo, Memory, MemoryByCategory, Operation, Profile, Region, SERVICE_YEARS,
    Stage, Step, StepKind, SystemInfo, TileRun, Totals, Trust, VarLife, VarRole, VarUse,
};
