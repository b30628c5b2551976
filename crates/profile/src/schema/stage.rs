//! A part of a pipeline.

use serde::{Deserialize, Serialize};

/// What one stage of a pipeline, a chip of its own, does in one iteration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stage {
    /// Index of its first step.
    pub first_step: u32,
    /// Number of its steps.
    pub steps: u32,
    /// Tile clock cycles that its chip is busy, sending and receiving included.
    pub cycles: u64,
    /// Of these, between chips.
    pub link_cycles: u64,
    pub flops: u64,
    /// Bytes on its fullest tile.
    pub max_used: u64,
    /// Of these, always live.
    pub always_live: u64,
    pub fits: bool,
}
