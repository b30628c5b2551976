//! Everything about a run as a profile: the timeline, memory over time, the life of every variable, totals.
//!
//! In: a valid program, a machine, addresses if there are any, and whether it fits. Out: plain data.
//! Deliberately not here: comparing with measurements; the caller may replace `trust`.

mod host;
mod memory;
mod totals;
mod vars;

pub use vars::total_bytes;

use crate::timing::{Linked, time_with};
use memory::MemoryView;
use pando_machine::Machine;
use pando_profile::{FORMAT_VERSION, Fit, Profile, SystemInfo, Trust, reduce};
use pando_tile::liveness::liveness;
use pando_tile::traffic::Traffic;
use pando_tile::{Placement, Program};

/// The profile of a valid program. `items_per_run` is what one replica handles in one run of the body.
/// The same input gives the same profile, bit for bit.
pub fn profile(
    program: &Program,
    machine: &Machine,
    placement: Option<&Placement>,
    fit: Fit,
    items_per_run: u64,
) -> Profile {
    profile_stage(program, machine, placement, fit, items_per_run, &Linked::default())
}

/// The same for a stage of a pipeline, some of whose inputs and outputs are other chips'.
pub fn profile_stage(
    program: &Program,
    machine: &Machine,
    placement: Option<&Placement>,
    fit: Fit,
    items_per_run: u64,
    linked: &Linked,
) -> Profile {
    let live = liveness(program);
    let traffic = Traffic::new(program, &machine.chip);
    let mut timeline = time_with(program, machine, &traffic, linked);
    let view = MemoryView::new(program, &live, &machine.chip, &traffic, placement);
    view.fill_steps(&mut timeline);
    Profile {
        format_version: FORMAT_VERSION,
        program: program.name.clone(),
        system: system(machine),
        replicas: program.replicas,
        items_per_run,
        stages: Vec::new(),
        operations: reduce::operations(&timeline.steps),
        totals: totals::totals(program, machine, &timeline.steps, items_per_run),
        host_io: host::host_io(program, &timeline),
        memory: view.memory(&timeline),
        variables: vars::variables(program, &live, &timeline, placement),
        steps: timeline.steps,
        fit,
        trust: Trust {
            range: "kernels alone are, within 10 % (matrix unit, f32 addition)".into(),
            error: None,
        },
    }
}

fn system(machine: &Machine) -> SystemInfo {
    SystemInfo {
        name: machine.name.clone(),
        title: machine.title.clone(),
        chips: machine.chips.into(),
        tiles_per_chip: machine.chip.tiles,
        workers: machine.chip.workers,
        clock_hz: machine.chip.clock_hz,
        tile_bytes: machine.chip.sram.bytes_per_tile,
    }
}
