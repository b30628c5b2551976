//! How the fullest tile's memory changes from step to step.

use crate::schema::Profile;

/// The fullest tile while one step runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryPoint {
    /// Index of the step.
    pub step: u32,
    /// Cycles per run of all steps that stand before it, repetitions counted.
    pub start_cycle: u64,
    /// Bytes on the fullest tile.
    pub bytes: u64,
    pub tile: u32,
}

/// One point per step.
pub fn memory_over_time(profile: &Profile) -> Vec<MemoryPoint> {
    let mut start_cycle = 0u64;
    let point = |(index, step): (usize, &crate::schema::Step)| {
        let point = MemoryPoint {
            step: index as u32,
            start_cycle,
            bytes: step.live_bytes_peak,
            tile: step.live_peak_tile,
        };
        start_cycle = start_cycle.saturating_add(step.total_cycles());
        point
    };
    profile.steps.iter().enumerate().map(point).collect()
}
