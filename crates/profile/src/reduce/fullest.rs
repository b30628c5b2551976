//! Which tiles are fullest, and what lives when.

use crate::schema::{Memory, TileRun, VarLife};
use std::cmp::Reverse;

/// The runs of tiles with most bytes, fullest first; ties by tile.
pub fn fullest_tiles(memory: &Memory, most: usize) -> Vec<TileRun> {
    let mut runs = memory.tiles.clone();
    runs.sort_by_key(|run| (Reverse(run.bytes), run.first_tile));
    runs.truncate(most);
    runs
}

/// The variables that live at a step, largest share of a tile first.
pub fn live_at(variables: &[VarLife], step: u32) -> Vec<&VarLife> {
    let mut live: Vec<&VarLife> =
        variables.iter().filter(|var| (var.first_step..=var.last_step).contains(&step)).collect();
    live.sort_by_key(|var| Reverse(var.tile_bytes_max));
    live
}
