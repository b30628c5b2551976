//! The profile as plain data. Every field says its unit; FORMAT.md lists them for other tools.
//!
//! Unless said otherwise numbers are of one replica (one chip) and one run of the program's body.
//! Bytes, cycles and operations are whole numbers that saturate at `u64::MAX` and never wrap.

mod fit;
mod host;
mod memory;
mod stage;
mod step;

pub use fit::{Fit, VarUse};
pub use host::HostIo;
pub use memory::{Memory, MemoryByCategory, Region, TileRun, VarLife, VarRole};
pub use stage::Stage;
pub use step::{Cycles, Operation, Step, StepKind};

use serde::{Deserialize, Serialize};

/// Raised when a reader of the old version would misunderstand the new one. New fields with a default
/// do not raise it.
pub const FORMAT_VERSION: u32 = 1;

/// Assumption: years after which a system is written off, as is common for servers.
pub const SERVICE_YEARS: f64 = 3.0;

/// What a program costs on a system.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// [`FORMAT_VERSION`] of the writer.
    pub format_version: u32,
    /// The program's name.
    pub program: String,
    pub system: SystemInfo,
    /// Chips that run the program side by side, each on its own data.
    pub replicas: u64,
    /// Items (samples, tokens, …) that one replica handles in one run of the body, all its iterations together.
    pub items_per_run: u64,
    /// In the order of the program, loop bodies once.
    pub steps: Vec<Step>,
    /// The steps summed by operation, in order of first appearance.
    pub operations: Vec<Operation>,
    /// The stages of a pipeline, in order; empty where one chip does all. Then `totals.cycles` is the sum of the
    /// stages, and runs follow one another at the pace of the slowest.
    #[serde(default)]
    pub stages: Vec<Stage>,
    pub totals: Totals,
    #[serde(default)]
    pub host_io: HostIo,
    pub memory: Memory,
    /// Every variable that is ever used, in the program's order.
    pub variables: Vec<VarLife>,
    pub fit: Fit,
    pub trust: Trust,
}

/// The system that the program was timed on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SystemInfo {
    /// The name by which the system is asked for.
    pub name: String,
    /// The system in a few words.
    pub title: String,
    /// Chips in the whole system.
    pub chips: u64,
    /// Tiles of one chip.
    pub tiles_per_chip: u32,
    /// Worker threads per tile.
    pub workers: u32,
    /// Tile clock in cycles per second.
    pub clock_hz: f64,
    /// Bytes of memory per tile.
    pub tile_bytes: u64,
}

/// Sums over all steps with their repetitions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// Tile clock cycles of one run.
    pub cycles: u64,
    /// The same in seconds.
    pub seconds: f64,
    /// The cycles by kind.
    pub parts: Cycles,
    /// Floating-point operations; a multiply–add counts as two.
    pub flops: u64,
    /// Input format of the matrix unit whose peak `utilisation` refers to: `f8`, `f16` or `f32`.
    pub peak_type: String,
    /// `flops` over what one chip's matrix units could do in `seconds`; 0 to 1.
    pub utilisation: f64,
    /// Bytes that tiles sent, each message once.
    pub sent_bytes: u64,
    /// Bytes that tiles received, each receiver counted.
    pub received_bytes: u64,
    /// Bytes copied within tiles by exchanges.
    pub local_bytes: u64,
    /// Bytes from the host.
    pub host_in_bytes: u64,
    /// Bytes to the host.
    pub host_out_bytes: u64,
    /// Joules per item at the system's power under load; none if no source gives it.
    pub energy_j_per_item: Option<f64>,
    /// US dollars per million items: the replicas' share of the system's list price over [`SERVICE_YEARS`] of
    /// uninterrupted runs. Power and hosts are not in it. None if no source gives the price.
    #[serde(default)]
    pub price_usd_per_million: Option<f64>,
}

/// How far to believe the numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Trust {
    /// The kind of program and machine for which predictions were compared with measurements.
    pub range: String,
    /// Median of |predicted − measured| / measured over those comparisons; none if there are none.
    pub error: Option<f64>,
}

impl Profile {
    /// Items per second of all replicas together.
    pub fn throughput_per_s(&self) -> f64 {
        let period_s = self.period_s() + self.seconds(self.host_io.call_cycles);
        if period_s <= 0.0 { 0.0 } else { self.replicas as f64 * self.items_per_run as f64 / period_s }
    }

    /// Seconds from the start of a run to that of the next one, without what a call costs. Where a pipeline is given a
    /// number of iterations a call, it is filled and emptied in each.
    pub fn period_s(&self) -> f64 {
        match self.stages.iter().map(|stage| stage.cycles).max() {
            Some(slowest) if self.host_io.iterations == 0 => self.seconds(slowest),
            _ => self.totals.seconds,
        }
    }

    /// Seconds from the start of an iteration's first transfer to the end of its last one; of a call of one iteration
    /// with what the call costs.
    pub fn latency_s(&self) -> f64 {
        match self.host_io.iterations {
            0 => self.totals.seconds,
            1 => self.seconds(self.host_io.latency_cycles.saturating_add(self.host_io.call_cycles)),
            _ => self.seconds(self.host_io.latency_cycles),
        }
    }

    /// Seconds that a number of cycles takes.
    pub fn seconds(&self, cycles: u64) -> f64 {
        if self.system.clock_hz <= 0.0 { 0.0 } else { cycles as f64 / self.system.clock_hz }
    }
}
