//! Whether a program fits: an answer with its reasons, never an error.

use serde::{Deserialize, Serialize};

/// Whether a program fits a tile's memory, and if not, why and what to change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fit {
    pub fits: bool,
    /// The fullest tile.
    pub tile: u32,
    /// Bytes needed there, with the gaps between variables.
    pub used_bytes: u64,
    /// Bytes that a tile has for them.
    pub available_bytes: u64,
    /// The region of a tile's memory that is too small, `executable` or `interleaved`; then both numbers above are of it.
    /// Empty if the program fits.
    #[serde(default)]
    pub region: String,
    /// `used_bytes` beyond `available_bytes`; 0 if it fits.
    pub over_bytes: u64,
    /// The operation during which that tile is fullest.
    pub operation: String,
    /// The largest variables on that tile then, largest first; ten at most.
    pub largest: Vec<VarUse>,
    /// One sentence: what to change. Empty if it fits.
    pub remedy: String,
}

/// A variable's share of a tile.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VarUse {
    pub name: String,
    /// Bytes on that tile.
    pub bytes: u64,
}
