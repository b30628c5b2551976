//! Memory of tiles over time, by category.

use crate::timing::Timeline;
use pando_machine::Chip;
use pando_profile::{Memory, MemoryByCategory, TileRun};
use pando_tile::liveness::Liveness;
use pando_tile::memory::{FixedMemory, MemoryOverTime, fixed_memory, memory_over_time};
use pando_tile::traffic::Traffic;
use pando_tile::{Placement, Program, TileSums, VarId};

/// What occupies the tiles of a program, when.
pub struct MemoryView<'a> {
    program: &'a Program,
    live: &'a Liveness,
    tile_bytes: u64,
    fixed: FixedMemory,
    over_time: MemoryOverTime,
}

impl<'a> MemoryView<'a> {
    pub fn new(
        program: &'a Program,
        live: &'a Liveness,
        chip: &Chip,
        traffic: &Traffic,
        placement: Option<&Placement>,
    ) -> Self {
        let fixed = fixed_memory(program, chip, traffic, placement);
        let over_time = memory_over_time(program, live, &fixed.total());
        MemoryView { program, live, tile_bytes: chip.sram.bytes_per_tile, fixed, over_time }
    }

    /// Bytes and tile of the fullest tile at the worst point, and that point.
    fn worst(&self) -> (u64, u32, u32) {
        let (bytes, tile) = self.over_time.at_worst.max();
        (unsigned(bytes), tile, self.over_time.worst_point)
    }

    /// Sets the memory fields of the steps: the highest peak of a step's points.
    pub fn fill_steps(&self, timeline: &mut Timeline) {
        for (&step, &(bytes, tile)) in timeline.step_of_point.iter().zip(&self.over_time.peaks) {
            let step = &mut timeline.steps[step as usize];
            if bytes > step.live_bytes_peak {
                (step.live_bytes_peak, step.live_peak_tile) = (bytes, tile);
            }
        }
    }

    pub fn memory(&self, timeline: &Timeline, placement: Option<&Placement>) -> Memory {
        let (max_used, max_tile, point) = self.worst();
        let fullest = self.by_category(|sums| sums.at(max_tile).into());
        let total = self.by_category(total);
        Memory {
            tile_bytes: self.tile_bytes,
            max_used,
            max_tile,
            max_step: timeline.step_of_point.get(point as usize).copied().unwrap_or(0),
            mean_used: total.total() as f64 / f64::from(self.program.tiles),
            always_live: fullest.always_live,
            code: fullest.code,
            fullest,
            total,
            tiles: self.over_time.at_worst.pieces().into_iter().map(tile_run).collect(),
            gap_bytes: placement.map(|placement| self.gap_bytes(placement, max_tile, fullest)),
        }
    }

    /// Categories at the worst point, each reduced to one number.
    fn by_category(&self, number: impl Fn(&TileSums) -> i128) -> MemoryByCategory {
        let value = |sums: &TileSums| number(sums).clamp(0, u64::MAX.into()) as u64;
        let mut out = MemoryByCategory {
            always_live: value(&self.over_time.always_live),
            temporary: 0,
            code: value(&self.fixed.code),
            vertex_state: value(&self.fixed.vertex_state),
            exchange_code: value(&self.fixed.exchange_code),
            stacks: value(&self.fixed.stacks),
        };
        // Everything at the worst point that is none of the above.
        out.temporary = value(&self.over_time.at_worst).saturating_sub(out.total());
        out
    }

    /// Addresses of the tile's variables, first to last, less the bytes that live at the worst point.
    fn gap_bytes(&self, placement: &Placement, tile: u32, fullest: MemoryByCategory) -> u64 {
        let used = |id: &VarId| self.live.ranges[*id].is_some();
        let begin =
            self.program.vars.ids().filter(used).map(|id| placement.offset_bytes[id]).min().unwrap_or(0);
        let end_on_tile = |id: VarId| {
            let var = &self.program.vars[id];
            let coordinates = var.home.grid.coordinates_of(tile)?;
            Some(placement.offset_bytes[id].saturating_add(var.tile_bytes(&coordinates)))
        };
        let end = self.program.vars.ids().filter(used).filter_map(end_on_tile).max().unwrap_or(begin);
        (end - begin).saturating_sub(fullest.always_live.saturating_add(fullest.temporary))
    }
}

/// Sum over tiles; wide, since a hostile program's variables may exceed 64 bits together.
fn total(sums: &TileSums) -> i128 {
    sums.pieces().iter().map(|&(_, count, value)| i128::from(count) * i128::from(value)).sum()
}

fn tile_run((first_tile, count, bytes): (u32, u32, i64)) -> TileRun {
    TileRun { first_tile, count, bytes: unsigned(bytes) }
}

fn unsigned(bytes: i64) -> u64 {
    u64::try_from(bytes).unwrap_or(0)
}
