//! Runs tile programs on a machine: how long they take ([`time`]), what they compute ([`run`]), and
//! everything about a run as a [`pando_profile::Profile`] ([`profile`]).
//!
//! In: a valid tile program and a machine, for values also the inputs. Out: cycles, bytes, tensors.
//! Timing never touches values and looks at groups, not tiles; replicas are counted, so 64,000 of them
//! cost as much to time as one. Deliberately not here: graphs and how programs come to be, cycle formulas
//! of kernels and exchanges (they stand beside their definitions in `pando_tile`), and placement.

mod errors;
mod report;
mod timing;
mod values;

pub use report::{profile, profile_stage};
pub use timing::{Hop, Linked, Pace, Timeline, call_cycles, hop, host_cycles, time};
pub use values::{Output, Outputs, RunOptions, run, run_items};
