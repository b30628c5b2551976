//! One chip: tiles, memory, issue and matrix rates, exchange, synchronisation. Plain data as it
//! stands in a chip file, plus what follows from it by multiplication alone.
//!
//! In: nothing. Out: the structs. Deliberately not here: formulas of kernels, and any choice between
//! two ways of using the chip.

use serde::{Deserialize, Serialize};

/// One IPU. All tiles are alike.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chip {
    pub name: String,
    /// Tiles in use (spare ones are not counted).
    pub tiles: u32,
    /// Worker threads per tile; each issues once in `workers` cycles.
    pub workers: u32,
    /// Tile clock, cycles per second.
    pub clock_hz: f64,
    pub sram: Sram,
    pub issue: Issue,
    /// What the matrix unit can do, one row per pair of formats.
    pub matrix: Vec<MatrixRate>,
    pub exchange: Exchange,
    pub sync: Sync,
    /// Watts of one chip under load, if a source gives it.
    pub power_w: Option<f64>,
}

/// The memory of one tile, in bytes: two regions that add up to the whole.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sram {
    pub bytes_per_tile: u64,
    /// Region 0: not interleaved, and the only region code may sit in.
    pub executable_bytes: u64,
    /// Region 1: interleaved, so that two neighbouring 64-bit words can be read in one cycle.
    pub interleaved_bytes: u64,
    /// Granule of access conflicts: two accesses to one element take two cycles.
    pub element_bytes: u64,
}

/// What one tile can load, store and start per cycle.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Issue {
    /// Bytes per cycle of ordinary loads.
    pub load_bytes_per_cycle: u64,
    /// Bytes per cycle of loads from interleaved memory.
    pub interleaved_load_bytes_per_cycle: u64,
    /// Bytes per cycle stored, in the same cycle as a load.
    pub store_bytes_per_cycle: u64,
    /// Bytes per cycle of a plain copy within a tile.
    pub memcpy_bytes_per_cycle: u64,
    /// Width of the data path: 8 bytes are f32 x 2 or f16 x 4.
    pub vector_bytes: u64,
    /// Cycles a supervisor loses on a branch, a run, a sync, or use of a register just loaded.
    pub supervisor_stall_cycles: u64,
    /// Cycles by which a measured vertex exceeds its published formula. 0 means that costs follow
    /// the published formulas alone.
    pub vertex_dispatch_cycles: u64,
}

/// The matrix unit for one pair of formats. In every `cycles_per_row` cycles a tile multiplies one
/// row of `weights_per_unit` inputs with `conv_units` columns of weights.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MatrixRate {
    /// Format of inputs and weights: `f8`, `f16` or `f32`.
    pub input: String,
    /// Format of the partial sums: `f16` or `f32`.
    pub partials: String,
    /// Outputs computed side by side.
    pub conv_units: u64,
    /// Inputs that one output takes per step.
    pub weights_per_unit: u64,
    /// Bytes per cycle at which weights enter the unit.
    pub coeff_load_bytes_per_cycle: u64,
    /// Cycles per row of inputs.
    pub cycles_per_row: u64,
}

/// Exchange between the tiles of one chip.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exchange {
    /// Bytes per cycle and tile, each of sending and receiving.
    pub bytes_per_cycle: u64,
    /// Neighbouring tiles that share a bus; if all of them receive the same data, each word arrives
    /// `tiles_per_bus` times as fast.
    pub tiles_per_bus: u32,
    /// Whether one send can reach many tiles.
    pub multicast: bool,
    /// Cycles per exchange whatever its size: the start after the sync and the transit.
    pub setup_cycles: u64,
    /// Bytes of exchange code per message, on each tile that sends or receives it.
    pub message_code_bytes: u64,
    /// Most bytes of a packet between a tile and the host.
    pub host_packet_bytes: u64,
    /// Bytes of header and code per packet on its tile.
    pub host_packet_code_bytes: u64,
}

/// Barriers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sync {
    /// Cycles of a barrier over the tiles of one chip, not counting the wait for the slowest.
    pub internal_cycles: u64,
    /// Seconds of a barrier that the host or the gateway takes part in.
    pub external_s: f64,
    /// Seconds per hop of a barrier among chips; see [`crate::Machine::chips_sync_s`].
    pub hop_s: f64,
}

impl MatrixRate {
    /// Multiply-accumulates per cycle and tile.
    pub fn macs_per_cycle(&self) -> f64 {
        (self.conv_units as f64) * (self.weights_per_unit as f64) / (self.cycles_per_row as f64)
    }
}

impl Chip {
    /// The fastest matrix rate for an input format, `None` if the unit does not take it.
    pub fn fastest_rate(&self, input: &str) -> Option<&MatrixRate> {
        let rates = self.matrix.iter().filter(|rate| rate.input == input);
        rates.max_by(|a, b| a.macs_per_cycle().total_cmp(&b.macs_per_cycle()))
    }

    /// Peak of the matrix units in floating-point operations per second (a multiply-accumulate
    /// counts as two); 0 for a format they do not take.
    pub fn peak_flops(&self, input: &str) -> f64 {
        let macs = self.fastest_rate(input).map_or(0.0, MatrixRate::macs_per_cycle);
        2.0 * macs * f64::from(self.tiles) * self.clock_hz
    }

    /// Bytes of memory on the chip.
    pub fn sram_bytes(&self) -> u64 {
        u64::from(self.tiles).saturating_mul(self.sram.bytes_per_tile)
    }

    /// Bytes per second all tiles together can read and write: one interleaved load and one store
    /// per cycle.
    pub fn sram_bytes_per_s(&self) -> f64 {
        let issue = &self.issue;
        let load = issue.load_bytes_per_cycle.max(issue.interleaved_load_bytes_per_cycle);
        (load as f64 + issue.store_bytes_per_cycle as f64) * f64::from(self.tiles) * self.clock_hz
    }

    /// Bytes per second all tiles together can receive, without multicast.
    pub fn exchange_bytes_per_s(&self) -> f64 {
        self.exchange.bytes_per_cycle as f64 * f64::from(self.tiles) * self.clock_hz
    }

    /// Seconds that a number of cycles takes.
    pub fn seconds(&self, cycles: f64) -> f64 {
        cycles / self.clock_hz
    }
}

impl Sram {
    /// First address of the interleaved region.
    pub fn interleaved_begin(&self) -> u64 {
        self.executable_bytes
    }

    /// The addresses `[begin, end)` of the memory element that an address is in. Two neighbouring elements of the
    /// interleaved region take turns word by word, so there the pair is one.
    pub fn element(&self, address: u64) -> (u64, u64) {
        let (base, size) = match address < self.executable_bytes {
            true => (0, self.element_bytes),
            false => (self.executable_bytes, 2 * self.element_bytes),
        };
        let begin = base + (address - base) / size.max(1) * size.max(1);
        (begin, begin + size.max(1))
    }
}
