//! How the host feeds the chip.

use serde::{Deserialize, Serialize};

/// A call of a program, and the pace of the iterations in it. An iteration is one pass of the model: one batch in, its
/// results out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostIo {
    /// Iterations of a call. 0 where nobody said: then calls follow one another without a pause, and what a call itself
    /// costs is not counted.
    pub iterations: u64,
    /// Tiles that do nothing but the host's transfers, which then run beside the work.
    pub io_tiles: u32,
    /// Items that the host has ready before they are asked for.
    pub prefetch: u32,
    /// Cycles until the host has started a call, once per call.
    pub call_cycles: u64,
    /// Cycles from the start of an iteration to that of the next.
    pub period_cycles: u64,
    /// Cycles from the start of an iteration's first transfer to the end of its last one.
    pub latency_cycles: u64,
    /// Cycles that an iteration's transfers take, hidden or not.
    pub host_cycles: u64,
    /// Cycles of everything else in an iteration.
    pub chip_cycles: u64,
}
