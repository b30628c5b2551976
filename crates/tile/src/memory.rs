//! Bytes on every tile, by category and over time, without looking at tiles one by one: sums are
//! piecewise constant over tiles ([`TileSums`]).

use crate::liveness::{Liveness, points};
use crate::program::{ExchangeId, Program, Role, Step, Var, VarId};
use crate::tile_sums::TileSums;
use crate::traffic::{forms, port_use};
use pando_base::Ranges;
use pando_machine::Chip;
use rustc_hash::FxHashMap;

/// What always occupies a tile, besides the variables.
#[derive(Clone, Debug, Default)]
pub struct FixedMemory {
    /// Code of the kernels that run on the tile; vertices of one kernel share it.
    pub code: TileSums,
    /// Pointers and sizes of the tile's vertices.
    pub vertex_state: TileSums,
    /// Send and receive instructions of the exchanges that the tile takes part in.
    pub exchange_code: TileSums,
    /// Stacks of the workers and the supervisor.
    pub stacks: TileSums,
}

/// Bytes of one vertex's state: a code pointer and one pointer or size an operand. Source: poplar.md
/// section 1.7 (vertex fields are pointers of at most 32 bits).
pub fn vertex_state_bytes(operands: usize) -> u64 {
    4 + 4 * operands as u64
}

/// Stack bytes per worker and for the supervisor. Assumption, no source: a few frames of spills.
const WORKER_STACK_BYTES: u64 = 64;
const SUPERVISOR_STACK_BYTES: u64 = 256;

pub fn fixed_memory(program: &Program, chip: &Chip) -> FixedMemory {
    let mut memory = FixedMemory::default();
    let mut kernel_tiles: FxHashMap<(String, u64), Ranges> = FxHashMap::default();
    for group in program.compute_sets.values().flat_map(|set| &set.groups) {
        let whole =
            crate::grid::Class { ranges: group.grid.axes.iter().map(|axis| (0, axis.extent)).collect() };
        let per_tile: u64 = group
            .grid
            .axes
            .iter()
            .filter(|axis| axis.stride == 0)
            .map(|axis| u64::from(axis.extent))
            .product();
        let tiles = kernel_tiles.entry((group.kernel.code_name(), group.kernel.code_bytes())).or_default();
        for (first, count) in group.grid.tile_runs(&whole) {
            let state = per_tile.saturating_mul(vertex_state_bytes(group.operands.len()));
            memory.vertex_state.add(first, count, state as i64);
            tiles.insert(first.into(), u64::from(first) + u64::from(count));
        }
    }
    for ((_, bytes), tiles) in kernel_tiles {
        for &(begin, end) in tiles.intervals() {
            memory.code.add(begin as u32, (end - begin) as u32, bytes as i64);
        }
    }
    for form in forms(program) {
        add_exchange_code(program, form[0], form.len() as u64, chip, &mut memory.exchange_code);
    }
    let stacks = WORKER_STACK_BYTES * u64::from(chip.workers) + SUPERVISOR_STACK_BYTES;
    memory.stacks.add(0, program.tiles, stacks as i64);
    memory
}

/// Code of `count` exchanges that are like this one. It has one address on all tiles that take part, as
/// variables do, so it takes the room of the longest on each of them.
fn add_exchange_code(program: &Program, id: ExchangeId, count: u64, chip: &Chip, code: &mut TileSums) {
    let ports = port_use(program, &program.exchanges[id], chip.exchange.tiles_per_bus);
    let most = ports.iter().map(|port| port.messages).max().unwrap_or(0);
    let bytes = most.saturating_mul(chip.exchange.message_code_bytes).saturating_mul(count);
    let mut first = 0;
    for run in ports.chunk_by(|a, b| (a.messages > 0) == (b.messages > 0)) {
        if run[0].messages > 0 {
            code.add(first, run.len() as u32, bytes as i64);
        }
        first += run.len() as u32;
    }
}

impl FixedMemory {
    pub fn total(&self) -> TileSums {
        let mut total = self.code.clone();
        total.add_all(&self.vertex_state);
        total.add_all(&self.exchange_code);
        total.add_all(&self.stacks);
        total
    }
}

/// Bytes of a variable on each tile.
pub fn var_bytes(var: &Var) -> TileSums {
    let mut sums = TileSums::new();
    let region = (var.home.region.as_slice(), &*var.shape);
    for class in var.home.grid.classes([region].into_iter()) {
        let bytes = var.tile_bytes(&class.representative());
        for (first, count) in var.home.grid.tile_runs(&class) {
            sums.add(first, count, bytes as i64);
        }
    }
    sums
}

/// Bytes of all live variables (fixed memory not counted) over time.
pub struct MemoryOverTime {
    /// Per point: the highest sum over tiles and the tile that has it.
    pub peaks: Vec<(u64, u32)>,
    /// The point with the highest peak.
    pub worst_point: u32,
    /// Bytes per tile at that point.
    pub at_worst: TileSums,
    /// Always-live variables: constants.
    pub always_live: TileSums,
}

/// Sums over live variables plus `base` (which decides the worst tile together with them).
pub fn memory_over_time(program: &Program, live: &Liveness, base: &TileSums) -> MemoryOverTime {
    let mut born: Vec<Vec<VarId>> = vec![Vec::new(); live.points as usize + 1];
    let mut dead = born.clone();
    let mut always_live = TileSums::new();
    for (id, var) in program.vars.iter() {
        if matches!(var.role, Role::Constant(_)) {
            always_live.add_all(&var_bytes(var));
        } else if let Some((first, last)) = live.ranges[id] {
            born[first as usize].push(id);
            dead[last as usize].push(id);
        }
    }
    let mut now = base.clone();
    now.add_all(&always_live);
    let (mut peaks, mut worst) = (Vec::new(), None);
    for point in 0..live.points.max(1) as usize {
        born[point].iter().for_each(|&id| now.add_all(&var_bytes(&program.vars[id])));
        let (peak, tile) = now.max();
        peaks.push((peak.max(0) as u64, tile));
        if worst.as_ref().is_none_or(|&(best, _, _)| peak > best) {
            worst = Some((peak, point as u32, now.clone()));
        }
        dead[point].iter().for_each(|&id| now.add_all(&negated(&var_bytes(&program.vars[id]))));
    }
    let (_, worst_point, at_worst) = worst.expect("there is at least one point");
    MemoryOverTime { peaks, worst_point, at_worst, always_live }
}

fn negated(sums: &TileSums) -> TileSums {
    let mut out = TileSums::new();
    for (first, count, value) in sums.pieces() {
        out.add(first, count, -value);
    }
    out
}

/// The largest variables on a tile at a point, by bytes there, largest first; ties by id.
pub fn largest_vars(
    program: &Program,
    live: &Liveness,
    tile: u32,
    point: u32,
    most: usize,
) -> Vec<(VarId, u64)> {
    let alive = |id: VarId| live.ranges[id].is_some_and(|(first, last)| (first..=last).contains(&point));
    let mut vars: Vec<(VarId, u64)> = program
        .vars
        .iter()
        .filter(|&(id, _)| alive(id))
        .filter_map(|(id, var)| {
            let coordinates = var.home.grid.coordinates_of(tile)?;
            Some((id, var.tile_bytes(&coordinates)))
        })
        .collect();
    vars.sort_by_key(|&(id, bytes)| (std::cmp::Reverse(bytes), id));
    vars.truncate(most);
    vars
}

/// The step at a point.
pub fn step_at(program: &Program, point: u32) -> Option<&Step> {
    points(program).get(point as usize).map(|point| point.step)
}
