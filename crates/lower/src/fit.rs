//! Whether a placed program fits a tile's memory, and what to do if not. Not fitting is an answer.

use crate::place::Placed;
use pando_machine::Machine;
use pando_profile::{Fit, VarUse};
use pando_tile::memory::{largest_vars, memory_over_time, step_at};
use pando_tile::{Program, Step, VarId};

/// How many variables the report names.
const NAMED: usize = 10;

/// Who made a program decides what its author can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    Model,
    HandWritten,
}

pub fn fit(program: &Program, machine: &Machine, placed: &Placed, origin: Origin) -> Fit {
    let available = machine.chip.sram.bytes_per_tile;
    let (used, tile, point) = worst(program, placed);
    let largest = largest_vars(program, &placed.live, tile, point, NAMED);
    let over = used.saturating_sub(available);
    Fit {
        fits: over == 0,
        tile,
        used_bytes: used,
        available_bytes: available,
        over_bytes: over,
        operation: step_at(program, point).map_or_else(String::new, |step| step_name(program, step)),
        largest: largest
            .iter()
            .map(|&(var, bytes)| VarUse { name: program.vars[var].name.clone(), bytes })
            .collect(),
        remedy: match origin {
            _ if over == 0 => String::new(),
            Origin::Model => remedy(program, placed, tile, &largest, available),
            Origin::HandWritten => hand_written_remedy(program, &largest),
        },
    }
}

/// The highest used address, on which tile and at which point. The address counts, not the sum: gaps
/// that placement leaves are memory that the program needs.
fn worst(program: &Program, placed: &Placed) -> (u64, u32, u32) {
    let last = program
        .vars
        .ids()
        .filter(|&id| placed.live.ranges[id].is_some())
        .max_by_key(|&id| (end_of(program, placed, id), std::cmp::Reverse(id)));
    let over_time = memory_over_time(program, &placed.live, &placed.fixed.total());
    match last {
        Some(id) if end_of(program, placed, id) > placed.base_bytes => {
            let (tile, point) = fullest_holder(program, placed, id, &over_time);
            (end_of(program, placed, id), tile, point)
        }
        _ => (placed.base_bytes, placed.fixed.total().max().1, 0),
    }
}

fn end_of(program: &Program, placed: &Placed, id: VarId) -> u64 {
    placed.placement.offset_bytes[id] + program.vars[id].max_tile_bytes()
}

/// The first tile with the largest block of the variable, and the point of its life with most memory in
/// use.
fn fullest_holder(
    program: &Program,
    placed: &Placed,
    id: VarId,
    over_time: &pando_tile::memory::MemoryOverTime,
) -> (u32, u32) {
    let (_, tile) = program.vars[id].fullest_tile();
    let (first, last) = placed.live.ranges[id].expect("only live variables are asked about");
    let point =
        (first..=last).max_by_key(|&point| (over_time.peaks[point as usize].0, std::cmp::Reverse(point)));
    (tile, point.unwrap_or(first))
}

fn step_name(program: &Program, step: &Step) -> String {
    match step {
        Step::Compute(id) => program.compute_sets[*id].name.clone(),
        Step::Exchange(id) => format!("exchange before {}", program.exchanges[*id].name),
        Step::HostIn(var) => format!("host input %{}", program.vars[*var].name),
        Step::HostOut(var) => format!("host output %{}", program.vars[*var].name),
        Step::Repeat { .. } | Step::Stream { .. } | Step::While { .. } => "loop".into(),
        Step::If { .. } => "branch".into(),
    }
}

/// One remedy, by what takes most of the tile.
fn remedy(program: &Program, placed: &Placed, tile: u32, largest: &[(VarId, u64)], available: u64) -> String {
    let bytes_of = |constant: bool| -> u64 {
        let vars = program.vars.values().filter(|var| var.role.always_lives() == constant);
        vars.filter_map(|var| Some(var.tile_bytes(&var.home.grid.coordinates_of(tile)?))).sum()
    };
    let (weights, code) = (bytes_of(true), placed.base_bytes);
    let temporaries: u64 = largest
        .iter()
        .filter(|&&(var, _)| !program.vars[var].role.always_lives())
        .map(|&(_, bytes)| bytes)
        .sum();
    if code > weights.max(temporaries) {
        return "code, most of it for exchanges, overfills the tile: divide the model with --stages 2, one chip a stage".into();
    }
    if weights > temporaries {
        return weights_remedy(program, available);
    }
    let copies = largest.first().is_some_and(|&(var, _)| program.vars[var].name.contains(".at"));
    if copies {
        return "copies of operands dominate: lower --available-memory-proportion so that operations are split further"
            .into();
    }
    "activations dominate: lower --micro-batch".into()
}

fn hand_written_remedy(program: &Program, largest: &[(VarId, u64)]) -> String {
    match largest.first() {
        Some(&(var, _)) => {
            format!("spread %{} over more tiles, or let it live shorter", program.vars[var].name)
        }
        None => "code overfills the tile: use fewer messages and kernels".into(),
    }
}

/// Weights that overfill a chip: half precision if that halves them to fit, otherwise more chips.
fn weights_remedy(program: &Program, available: u64) -> String {
    let bytes = |only_f32: bool| -> u64 {
        let weights = program.vars.values().filter(|var| var.role.always_lives());
        let wanted = weights.filter(|var| !only_f32 || var.dtype == pando_base::DType::F32);
        wanted.map(|var| var.shape.num_elements() * var.dtype.size_bytes()).sum()
    };
    let (whole, halvable) = (bytes(false), bytes(true));
    // Half of the chip is left for everything else.
    let room = available.saturating_mul(program.tiles.into()) / 2;
    if halvable > 0 && whole - halvable / 2 <= room {
        return "weights alone overfill the tile: halve them with --precision f16".into();
    }
    let chips = (whole - halvable / 2).div_ceil(room.max(1)).max(2);
    format!(
        "weights alone overfill the tile: divide the model with --stages {chips}, one chip a stage, and --precision f16"
    )
}
