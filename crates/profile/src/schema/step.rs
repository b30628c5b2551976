//! What one step costs, and steps summed by operation.

use serde::{Deserialize, Serialize};

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepKind {
    /// Vertices on tiles.
    Compute,
    /// Data between tiles of the chip.
    Exchange,
    /// Data between chips.
    Links,
    /// Adjacent reads from the host, as one transfer.
    HostIn,
    /// Adjacent writes to the host, as one transfer.
    HostOut,
}

/// Tile clock cycles by what they are spent on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cycles {
    /// Vertices.
    pub compute: u64,
    /// Data on the way between tiles.
    pub exchange: u64,
    /// Barriers before exchanges.
    pub sync: u64,
    /// Copies within tiles that an exchange asks for.
    pub local_copy: u64,
    /// Data on the way between chips.
    pub links: u64,
    /// Waiting for the host and its data.
    pub host: u64,
}

/// One step. Numbers are of one execution; `times` says how often it runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Name of the compute set or exchange, or which variables move.
    pub name: String,
    pub kind: StepKind,
    /// Executions per run: the product of the counts of the loops around it.
    pub times: u64,
    /// Cycles of one execution: the sum of `parts`.
    pub cycles: u64,
    pub parts: Cycles,
    /// The tile that takes longest; 0 for host steps.
    pub busiest_tile: u32,
    /// Tiles with a vertex, or whose port is in use.
    pub tiles_used: u32,
    /// Mean over the tiles used of their own cycles (without sync, set-up and waiting). Divided by the
    /// busiest tile's it is the step's balance.
    pub mean_tile_cycles: f64,
    /// Own cycles of the busiest tile.
    pub max_tile_cycles: u64,
    /// Vertices on all tiles.
    pub vertices: u64,
    /// Floating-point operations; a multiply–add counts as two.
    pub flops: u64,
    /// Bytes sent by tiles, each message once.
    pub sent_bytes: u64,
    /// Bytes received by tiles, each receiver counted.
    pub received_bytes: u64,
    /// Bytes copied within tiles.
    pub local_bytes: u64,
    /// Messages, counted at each sender and each receiver.
    pub messages: u64,
    /// Bytes to or from the host.
    pub host_bytes: u64,
    /// Cycles of the transfer that pass beside other steps and are in none of the cycles above.
    #[serde(default)]
    pub hidden_cycles: u64,
    /// Bytes on the fullest tile while the step runs, code and stacks included.
    pub live_bytes_peak: u64,
    /// That tile.
    pub live_peak_tile: u32,
    /// Bytes of variables that do not always live on `memory.max_tile`, the fullest of the whole run, while the step runs.
    #[serde(default)]
    pub temporary_bytes: u64,
}

/// Steps of one operation with their repetitions. A step belongs to the operation that stands before the
/// first `:` of its name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Operation {
    pub name: String,
    /// Index of its first step.
    pub first_step: u32,
    /// Number of its steps.
    pub steps: u32,
    /// Cycles per run, repetitions counted.
    pub cycles: u64,
    /// The cycles by kind.
    pub parts: Cycles,
    /// Floating-point operations per run.
    pub flops: u64,
    /// Bytes sent between tiles per run.
    pub sent_bytes: u64,
    /// Most tiles that one of its steps uses.
    pub tiles_used: u32,
}

impl Cycles {
    pub fn total(&self) -> u64 {
        self.named().iter().fold(0, |sum, &(_, cycles)| sum.saturating_add(cycles))
    }

    /// The parts with their names, in the order in which people read them.
    pub fn named(&self) -> [(&'static str, u64); 6] {
        [
            ("compute", self.compute),
            ("exchange", self.exchange),
            ("sync", self.sync),
            ("local copy", self.local_copy),
            ("links", self.links),
            ("host", self.host),
        ]
    }

    /// Adds `times` executions.
    pub fn add(&mut self, other: &Cycles, times: u64) {
        let add = |sum: &mut u64, cycles: u64| *sum = sum.saturating_add(cycles.saturating_mul(times));
        add(&mut self.compute, other.compute);
        add(&mut self.exchange, other.exchange);
        add(&mut self.sync, other.sync);
        add(&mut self.local_copy, other.local_copy);
        add(&mut self.links, other.links);
        add(&mut self.host, other.host);
    }
}

impl Step {
    /// A step that does nothing yet.
    pub fn new(name: impl Into<String>, kind: StepKind, times: u64) -> Self {
        Step {
            name: name.into(),
            kind,
            times,
            cycles: 0,
            parts: Cycles::default(),
            busiest_tile: 0,
            tiles_used: 0,
            mean_tile_cycles: 0.0,
            max_tile_cycles: 0,
            vertices: 0,
            flops: 0,
            sent_bytes: 0,
            received_bytes: 0,
            local_bytes: 0,
            messages: 0,
            host_bytes: 0,
            hidden_cycles: 0,
            live_bytes_peak: 0,
            live_peak_tile: 0,
            temporary_bytes: 0,
        }
    }

    /// Cycles per run.
    pub fn total_cycles(&self) -> u64 {
        self.cycles.saturating_mul(self.times)
    }

    /// Mean over busiest tile, 0 to 1; none where no tile works.
    pub fn balance(&self) -> Option<f64> {
        (self.max_tile_cycles > 0).then(|| self.mean_tile_cycles / self.max_tile_cycles as f64)
    }
}
