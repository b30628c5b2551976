//! Memory of tiles over time, by category.

use crate::timing::Timeline;
use pando_machine::{Chip, Sram};
use pando_profile::{Memory, MemoryByCategory, Region, TileRun};
use pando_tile::liveness::Liveness;
use pando_tile::memory::{
    Extent, FixedMemory, MemoryOverTime, extents, fixed_memory, memory_over_time, temporaries_over_time,
};
use pando_tile::traffic::Traffic;
use pando_tile::{Placement, Program, TileSums};

/// What occupies the tiles of a program, when.
pub struct MemoryView<'a> {
    program: &'a Program,
    live: &'a Liveness,
    fixed: FixedMemory,
    over_time: MemoryOverTime,
    /// Which addresses tiles use; empty without a placement.
    extents: Vec<Extent>,
    sram: Sram,
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
        let extents = placement
            .map(|placement| extents(program, live, placement, &fixed.total(), &chip.sram))
            .unwrap_or_default();
        MemoryView { program, live, fixed, over_time, extents, sram: chip.sram.clone() }
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
        let temporary = temporaries_over_time(self.program, self.live, self.worst().1);
        for (&step, bytes) in timeline.step_of_point.iter().zip(temporary) {
            let step = &mut timeline.steps[step as usize];
            step.temporary_bytes = step.temporary_bytes.max(bytes);
        }
    }

    pub fn memory(&self, timeline: &Timeline) -> Memory {
        let (max_used, max_tile, point) = self.worst();
        let fullest = self.by_category(|sums| sums.at(max_tile).into());
        let total = self.by_category(total);
        Memory {
            tile_bytes: self.sram.bytes_per_tile,
            max_used,
            max_tile,
            max_step: timeline.step_of_point.get(point as usize).copied().unwrap_or(0),
            mean_used: total.total() as f64 / f64::from(self.program.tiles),
            always_live: fullest.always_live,
            code: fullest.code,
            fullest,
            total,
            tiles: self.tile_runs(),
            gap_bytes: self.extent(max_tile).map(|extent| self.used(extent).saturating_sub(max_used)),
            max_used_with_gaps: self.extents.iter().map(|extent| self.used(extent)).max(),
            regions: self.extent(max_tile).map(|extent| self.regions(extent)).unwrap_or_default(),
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
            host_code: value(&self.fixed.host_code),
            stacks: value(&self.fixed.stacks),
        };
        // Everything at the worst point that is none of the above.
        out.temporary = value(&self.over_time.at_worst).saturating_sub(out.total());
        out
    }

    /// Bytes at the worst point, and between addresses, on the common pieces of both.
    fn tile_runs(&self) -> Vec<TileRun> {
        let pieces = self.over_time.at_worst.pieces();
        let ends = |first: u32, count: u32| [first, first + count];
        let live = pieces.iter().flat_map(|&(first, count, _)| ends(first, count));
        let used = self.extents.iter().flat_map(|extent| ends(extent.first_tile, extent.count));
        let mut bounds: Vec<u32> = live.chain(used).collect();
        bounds.sort_unstable();
        bounds.dedup();
        let (mut live, mut used) = (pieces.iter().peekable(), self.extents.iter().peekable());
        let mut runs: Vec<TileRun> = Vec::new();
        for (&first, &end) in bounds.iter().zip(bounds.iter().skip(1)) {
            while live.next_if(|piece| piece.0 + piece.1 <= first).is_some() {}
            while used.next_if(|extent| extent.first_tile + extent.count <= first).is_some() {}
            let bytes = live.peek().filter(|piece| piece.0 <= first).map_or(0, |piece| unsigned(piece.2));
            let with_gaps = used.peek().filter(|extent| extent.first_tile <= first);
            let bytes_with_gaps = with_gaps.map_or(0, |extent| self.used(extent));
            match runs.last_mut() {
                Some(last)
                    if (last.bytes, last.bytes_with_gaps) == (bytes, bytes_with_gaps)
                        && last.first_tile + last.count == first =>
                {
                    last.count += end - first;
                }
                _ => runs.push(TileRun { first_tile: first, count: end - first, bytes, bytes_with_gaps }),
            }
        }
        runs.retain(|run| run.bytes > 0);
        runs
    }

    fn extent(&self, tile: u32) -> Option<&Extent> {
        self.extents
            .iter()
            .find(|extent| (extent.first_tile..extent.first_tile + extent.count).contains(&tile))
    }

    /// Bytes in both regions, gaps included.
    fn used(&self, extent: &Extent) -> u64 {
        let (executable, interleaved) = extent.regions(&self.sram);
        executable.saturating_add(interleaved)
    }

    fn regions(&self, extent: &Extent) -> Vec<Region> {
        let (executable, interleaved) = extent.regions(&self.sram);
        let region = |name: &str, bytes, used| Region { name: name.into(), bytes, used };
        vec![
            region("executable", self.sram.executable_bytes, executable),
            region("interleaved", self.sram.interleaved_bytes, interleaved),
        ]
    }
}

/// Sum over tiles; wide, since a hostile program's variables may exceed 64 bits together.
fn total(sums: &TileSums) -> i128 {
    sums.pieces().iter().map(|&(_, count, value)| i128::from(count) * i128::from(value)).sum()
}

fn unsigned(bytes: i64) -> u64 {
    u64::try_from(bytes).unwrap_or(0)
}
