//! The pace at which the host feeds the chip.

use crate::timing::Timeline;
use pando_profile::{HostIo, StepKind};
use pando_tile::stream::transferred;
use pando_tile::{Program, Step};

/// Without a loop that the host feeds a run is one iteration.
pub fn host_io(program: &Program, timeline: &Timeline) -> HostIo {
    let io = HostIo { io_tiles: io_tiles(program), prefetch: program.prefetch, ..HostIo::default() };
    if let Some(pace) = timeline.pace {
        return HostIo {
            period_cycles: pace.period,
            latency_cycles: pace.latency,
            host_cycles: pace.host,
            chip_cycles: pace.chip,
            ..io
        };
    }
    let host = timeline.steps.iter().filter(|step| matches!(step.kind, StepKind::HostIn | StepKind::HostOut));
    let host_cycles = host.fold(0u64, |sum, step| sum.saturating_add(step.total_cycles()));
    let cycles = timeline.cycles();
    let chip_cycles = cycles.saturating_sub(host_cycles);
    HostIo { period_cycles: cycles, latency_cycles: cycles, host_cycles, chip_cycles, ..io }
}

/// Tiles between which and the host a stream moves data: from the first to the last of them.
fn io_tiles(program: &Program) -> u32 {
    let streams = program.body.iter().filter(|step| matches!(step, Step::Stream { .. }));
    let grids = streams.flat_map(transferred).map(|var| &program.vars[var].home.grid);
    let ends = grids.map(|grid| (u64::from(grid.base), grid.end_tile()));
    let (first, end) = ends.fold((u64::MAX, 0), |all, one| (all.0.min(one.0), all.1.max(one.1)));
    end.saturating_sub(first) as u32
}
