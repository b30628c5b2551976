//! Whether a placed program fits a tile's memory, and what to do if not. Not fitting is an answer.

use crate::place::Placed;
use pando_machine::{Machine, Sram};
use pando_profile::{Fit, VarUse};
use pando_tile::memory::{Extent, MemoryOverTime, extents, largest_vars, memory_over_time, step_at};
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
    let Worst { tile, point, used, over, region, available } = worst(program, placed, &machine.chip.sram);
    let largest = largest_vars(program, &placed.live, tile, point, NAMED);
    Fit {
        fits: over == 0,
        tile,
        used_bytes: used,
        available_bytes: available,
        over_bytes: over,
        region: region.into(),
        operation: step_at(program, point).map_or_else(String::new, |step| step_name(program, step)),
        largest: largest
            .iter()
            .map(|&(var, bytes)| VarUse { name: program.vars[var].name.clone(), bytes })
            .collect(),
        remedy: match origin {
            _ if over == 0 => String::new(),
            Origin::Model => remedy(program, placed, tile, &largest, machine),
            Origin::HandWritten => hand_written_remedy(program, &largest),
        },
    }
}

/// The tile that lacks most, or else the one on which most is live at once.
struct Worst {
    tile: u32,
    /// When most is live there. If it lacks memory: in the life of the variable whose address decides.
    point: u32,
    used: u64,
    over: u64,
    /// The region that is too small, and its size.
    region: &'static str,
    available: u64,
}

/// Addresses count, not sums: gaps that placement leaves are memory that the program needs.
fn worst(program: &Program, placed: &Placed, sram: &Sram) -> Worst {
    let fixed = placed.fixed.total();
    let extents = extents(program, &placed.live, &placed.placement, &fixed, sram);
    let over_time = memory_over_time(program, &placed.live, &fixed);
    let (_, fullest) = over_time.at_worst.max();
    let lacks = |extent: &Extent| extent.over(sram).0.saturating_add(extent.over(sram).1);
    let is_fullest =
        |extent: &Extent| (extent.first_tile..extent.first_tile + extent.count).contains(&fullest);
    let key = |extent: &Extent| (lacks(extent), is_fullest(extent), std::cmp::Reverse(extent.first_tile));
    let Some(extent) = extents.iter().max_by_key(|extent| key(extent)) else {
        return Worst { tile: 0, point: 0, used: 0, over: 0, region: "", available: sram.bytes_per_tile };
    };
    let ((executable, interleaved), over) = (extent.regions(sram), extent.over(sram));
    let (region, used, available) = match over {
        (0, 0) => ("", executable + interleaved, sram.bytes_per_tile),
        (more, less) if more >= less => ("executable", executable, sram.executable_bytes),
        _ => ("interleaved", interleaved, sram.interleaved_bytes),
    };
    let (tile, point) = match over {
        (0, 0) => (fullest, over_time.worst_point),
        _ => (extent.first_tile, deciding_point(program, placed, extent, &over_time)),
    };
    Worst { tile, point, used, over: over.0.max(over.1), region, available }
}

/// The point with most memory in use of the life of the variable at the highest address on the tile, or at the lowest in
/// the executable region if code is in its way.
fn deciding_point(program: &Program, placed: &Placed, extent: &Extent, over_time: &MemoryOverTime) -> u32 {
    let address = |id: VarId| placed.placement.offset_bytes[id];
    let bytes = |id: VarId| {
        let var = &program.vars[id];
        var.home.grid.coordinates_of(extent.first_tile).map_or(0, |at| var.tile_bytes(&at))
    };
    let here = program.vars.ids().filter(|&id| placed.live.ranges[id].is_some() && bytes(id) > 0);
    let decides = |&id: &VarId| match extent.fixed > extent.low {
        true => address(id) == extent.low,
        false => address(id).saturating_add(bytes(id)) == extent.top,
    };
    let life = here.into_iter().find(decides).and_then(|id| placed.live.ranges[id]);
    let (first, last) = life.unwrap_or((over_time.worst_point, over_time.worst_point));
    let peak = |point: &u32| (over_time.peaks[*point as usize].0, std::cmp::Reverse(*point));
    (first..=last).max_by_key(peak).unwrap_or(first)
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
fn remedy(
    program: &Program,
    placed: &Placed,
    tile: u32,
    largest: &[(VarId, u64)],
    machine: &Machine,
) -> String {
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
        return weights_remedy(program, machine);
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
fn weights_remedy(program: &Program, machine: &Machine) -> String {
    let bytes = |only_f32: bool| -> u64 {
        let weights = program.vars.values().filter(|var| var.role.always_lives());
        let wanted = weights.filter(|var| !only_f32 || var.dtype == pando_base::DType::F32);
        wanted.map(|var| var.shape.num_elements() * var.dtype.size_bytes()).sum()
    };
    let (whole, halvable) = (bytes(false), bytes(true));
    // Half of the chip is left for everything else.
    let room = machine.chip.sram.bytes_per_tile.saturating_mul(program.tiles.into()) / 2;
    if halvable > 0 && whole - halvable / 2 <= room {
        return "weights alone overfill the tile: halve them with --precision f16".into();
    }
    let chips = (whole - halvable / 2).div_ceil(room.max(1)).max(2);
    if chips > u64::from(machine.chips) {
        return format!(
            "weights alone overfill the tile: divide the model over {chips} chips with --stages {chips}; {} has {}",
            machine.name, machine.chips
        );
    }
    format!(
        "weights alone overfill the tile: divide the model with --stages {chips}, one chip a stage, and --precision f16"
    )
}
