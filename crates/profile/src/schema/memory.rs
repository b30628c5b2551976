//! Bytes per tile, by category and by variable.

use serde::{Deserialize, Serialize};

/// Memory of the chip's tiles at the step at which the fullest tile is fullest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    /// Bytes that a tile has.
    pub tile_bytes: u64,
    /// Bytes used on the fullest tile, without gaps.
    pub max_used: u64,
    /// The fullest tile; the first of several.
    pub max_tile: u32,
    /// Index of the step at which it is fullest.
    pub max_step: u32,
    /// Mean over the program's tiles of bytes used at that step.
    pub mean_used: f64,
    /// Bytes of always-live variables on the fullest tile.
    pub always_live: u64,
    /// Bytes of kernel code on the fullest tile.
    pub code: u64,
    /// Bytes on the fullest tile by category; they add up to `max_used`.
    pub fullest: MemoryByCategory,
    /// Bytes summed over the program's tiles by category.
    pub total: MemoryByCategory,
    /// Bytes used per tile as runs of consecutive tiles with equal bytes; tiles in no run use none.
    pub tiles: Vec<TileRun>,
    /// Bytes between variables' addresses on the fullest tile that no live variable occupies; none if
    /// variables have no addresses.
    pub gap_bytes: Option<u64>,
    /// Bytes used on the tile with most, gaps included, at any time; none if variables have no addresses.
    #[serde(default)]
    pub max_used_with_gaps: Option<u64>,
    /// The regions of the fullest tile's memory; empty if variables have no addresses.
    #[serde(default)]
    pub regions: Vec<Region>,
}

/// What bytes are used for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemoryByCategory {
    /// Variables that always live: constants, weights.
    pub always_live: u64,
    /// Variables that live from their first write to their last read.
    pub temporary: u64,
    /// Code of kernels.
    pub code: u64,
    /// Pointers and sizes of vertices.
    pub vertex_state: u64,
    /// Send and receive instructions.
    pub exchange_code: u64,
    /// Headers and code of packets to and from the host.
    pub host_code: u64,
    /// Stacks of workers and supervisor.
    pub stacks: u64,
}

/// A region of a tile's memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Region {
    /// `executable`, which holds code, vertex state, stacks and variables, or `interleaved`, which holds variables.
    pub name: String,
    pub bytes: u64,
    /// Bytes used at any time, gaps included.
    pub used: u64,
}

/// Consecutive tiles with equal bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TileRun {
    pub first_tile: u32,
    /// Number of tiles.
    pub count: u32,
    /// Bytes on each of them.
    pub bytes: u64,
    /// Bytes between the addresses that the tile uses at any time; 0 if variables have no addresses.
    #[serde(default)]
    pub bytes_with_gaps: u64,
}

/// What a variable is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VarRole {
    #[default]
    Temp,
    Input,
    Output,
    Constant,
    /// Kept from run to run.
    State,
}

/// When a variable lives, and where.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VarLife {
    pub name: String,
    /// Element type as the text formats spell it.
    pub dtype: String,
    /// Sizes of the whole tensor, outermost first.
    pub shape: Vec<u64>,
    /// Bytes on the tile that holds most of it.
    pub tile_bytes_max: u64,
    /// Bytes on all tiles, copies counted.
    pub total_bytes: u64,
    /// Tiles that hold a part of it.
    pub tiles: u64,
    /// Index of the first step at which it lives.
    pub first_step: u32,
    /// Index of the last step at which it lives.
    pub last_step: u32,
    pub role: VarRole,
    /// Byte address, the same on all tiles; none if it has not been placed.
    pub address: Option<u64>,
}

impl MemoryByCategory {
    pub fn total(&self) -> u64 {
        self.named().iter().fold(0, |sum, &(_, bytes)| sum.saturating_add(bytes))
    }

    /// The categories with their names, variables first.
    pub fn named(&self) -> [(&'static str, u64); 7] {
        [
            ("always live", self.always_live),
            ("temporaries", self.temporary),
            ("code", self.code),
            ("vertex state", self.vertex_state),
            ("exchange code", self.exchange_code),
            ("host packets", self.host_code),
            ("stacks", self.stacks),
        ]
    }
}
