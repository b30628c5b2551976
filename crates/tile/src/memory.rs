//! Bytes on every tile, by category and over time, without looking at tiles one by one: sums are
//! piecewise constant over tiles ([`TileSums`]).

use crate::liveness::{Liveness, points};
use crate::program::{Exchange, Group, Layout, Placement, Program, Step, Var, VarId};
use crate::tile_sums::TileSums;
use crate::traffic::{ExchangeCost, Traffic};
use pando_base::{Ranges, SideTable};
use pando_machine::{Chip, Sram};
use rustc_hash::{FxHashMap, FxHashSet};
use std::fmt::Write;

/// What always occupies a tile, besides the variables.
#[derive(Clone, Debug, Default)]
pub struct FixedMemory {
    /// Code of the kernels that run on the tile; vertices of one kernel share it.
    pub code: TileSums,
    /// Pointers and sizes of the tile's vertices.
    pub vertex_state: TileSums,
    /// Send and receive instructions of the exchanges that the tile takes part in.
    pub exchange_code: TileSums,
    /// Headers and code of the packets that the tile exchanges with the host.
    pub host_code: TileSums,
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

/// Code and vertices say addresses, so steps that are alike in everything and whose variables lie at the same
/// addresses are one: repeated layers share them, as the vendor's compiler lets them by outlining (poplar.md section
/// 2.6). Without a placement nothing is shared.
pub fn fixed_memory(
    program: &Program,
    chip: &Chip,
    traffic: &Traffic,
    placement: Option<&Placement>,
) -> FixedMemory {
    let mut memory = FixedMemory::default();
    let mut kernel_tiles: FxHashMap<(String, u64), Ranges> = FxHashMap::default();
    let mut known: FxHashSet<String> = FxHashSet::default();
    for group in program.compute_sets.values().flat_map(|set| &set.groups) {
        let whole =
            crate::grid::Class { ranges: group.grid.axes.iter().map(|axis| (0, axis.extent)).collect() };
        let staying = group.grid.axes.iter().filter(|axis| axis.stride == 0);
        let per_tile: u64 = staying.map(|axis| u64::from(axis.extent)).product();
        let is_new = placement.is_none_or(|placement| known.insert(vertices_key(program, group, placement)));
        let tiles = kernel_tiles.entry((group.kernel.code_name(), group.kernel.code_bytes())).or_default();
        for (first, count) in group.grid.tile_runs(&whole) {
            let state = per_tile.saturating_mul(vertex_state_bytes(group.operands.len()));
            memory.vertex_state.add(first, count, if is_new { state as i64 } else { 0 });
            tiles.insert(first.into(), u64::from(first) + u64::from(count));
        }
    }
    for ((_, bytes), tiles) in kernel_tiles {
        for &(begin, end) in tiles.intervals() {
            memory.code.add(begin as u32, (end - begin) as u32, bytes as i64);
        }
    }
    for (cost, ids) in traffic.forms() {
        let codes = match placement {
            Some(placement) => ids
                .iter()
                .map(|&id| exchange_addresses(&program.exchanges[id], placement))
                .collect::<FxHashSet<_>>()
                .len(),
            None => ids.len(),
        };
        add_exchange_code(cost, codes as u64, chip, &mut memory.exchange_code);
    }
    add_host_code(program, chip, &mut memory.host_code);
    let stacks = WORKER_STACK_BYTES * u64::from(chip.workers) + SUPERVISOR_STACK_BYTES;
    memory.stacks.add(0, program.tiles, stacks as i64);
    memory
}

/// What a group's vertices hold: the same text, the same vertices.
fn vertices_key(program: &Program, group: &Group, placement: &Placement) -> String {
    let mut key = format!("{:?} {:?}", group.grid, group.kernel);
    for operand in &group.operands {
        let var = &program.vars[operand.var];
        let address = placement.offset_bytes[operand.var];
        let _ = write!(key, " {address} {:?} {} {:?} {:?}", var.home, var.dtype, var.shape, operand.region);
    }
    key
}

fn exchange_addresses(exchange: &Exchange, placement: &Placement) -> Vec<u64> {
    let vars = exchange.copies.iter().flat_map(|copy| std::iter::once(&copy.src).chain(&copy.dsts));
    vars.map(|&var| placement.offset_bytes[var]).collect()
}

/// Code of `count` exchanges of one form: each tile has instructions for its own messages, at an address of its own.
fn add_exchange_code(cost: &ExchangeCost, count: u64, chip: &Chip, code: &mut TileSums) {
    let message_bytes = chip.exchange.message_code_bytes.saturating_mul(count);
    for &(first, tiles, messages) in &cost.message_runs {
        code.add(first, tiles, messages.saturating_mul(message_bytes) as i64);
    }
}

/// Each variable's transfer is cut into packets on every tile, once however often it happens.
fn add_host_code(program: &Program, chip: &Chip, code: &mut TileSums) {
    let (packet, each) = (chip.exchange.host_packet_bytes.max(1), chip.exchange.host_packet_code_bytes);
    for point in points(program) {
        let (Step::HostIn(id) | Step::HostOut(id)) = *point.step else { continue };
        for (first, count, bytes) in var_bytes(&program.vars[id]).pieces() {
            code.add(first, count, (bytes as u64).div_ceil(packet).saturating_mul(each) as i64);
        }
    }
}

impl FixedMemory {
    pub fn total(&self) -> TileSums {
        let mut total = self.code.clone();
        total.add_all(&self.vertex_state);
        total.add_all(&self.exchange_code);
        total.add_all(&self.host_code);
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
    /// Always-live variables: constants and state.
    pub always_live: TileSums,
}

/// Sums over live variables plus `base` (which decides the worst tile together with them).
pub fn memory_over_time(program: &Program, live: &Liveness, base: &TileSums) -> MemoryOverTime {
    let mut born: Vec<Vec<VarId>> = vec![Vec::new(); live.points as usize + 1];
    let mut dead = born.clone();
    let mut constants = Vec::new();
    for (id, var) in program.vars.iter() {
        if var.role.always_lives() {
            constants.push(id);
        } else if let Some((first, last)) = live.ranges[id] {
            born[first as usize].push(id);
            dead[last as usize].push(id);
        }
    }
    let footprints = Footprints::new(program, base);
    let mut always = vec![0; footprints.bounds.len()];
    constants.iter().for_each(|&id| footprints.add(id, 1, &mut always));
    let mut now = footprints.row(base);
    now.iter_mut().zip(&always).for_each(|(now, always)| *now += always);
    let (mut peaks, mut worst) = (Vec::new(), None);
    for point in 0..live.points.max(1) as usize {
        born[point].iter().for_each(|&id| footprints.add(id, 1, &mut now));
        let (peak, tile) = footprints.max(&now);
        peaks.push((peak.max(0) as u64, tile));
        if worst.as_ref().is_none_or(|&(best, _, _)| peak > best) {
            worst = Some((peak, point as u32, now.clone()));
        }
        dead[point].iter().for_each(|&id| footprints.add(id, -1, &mut now));
    }
    let (_, worst_point, at_worst) = worst.expect("there is at least one point");
    let (at_worst, always_live) = (footprints.sums(&at_worst), footprints.sums(&always));
    MemoryOverTime { peaks, worst_point, at_worst, always_live }
}

/// Which addresses tiles use: code and what else is fixed from the bottom of the executable region up, variables there
/// from the region's top down, and from the bottom of the interleaved region up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    pub first_tile: u32,
    pub count: u32,
    /// Bytes of fixed memory.
    pub fixed: u64,
    /// Lowest address of a variable in the executable region; the region's end without any.
    pub low: u64,
    /// End of the highest address.
    pub top: u64,
}

impl Extent {
    /// Bytes used in either region, gaps between variables included.
    pub fn regions(&self, sram: &Sram) -> (u64, u64) {
        let begin = sram.interleaved_begin();
        (self.fixed.saturating_add(begin - self.low), self.top - begin)
    }

    /// Bytes by which the regions are too small.
    pub fn over(&self, sram: &Sram) -> (u64, u64) {
        let (executable, interleaved) = self.regions(sram);
        (executable.saturating_sub(sram.executable_bytes), interleaved.saturating_sub(sram.interleaved_bytes))
    }
}

/// The extents of all tiles that use memory.
pub fn extents(
    program: &Program,
    live: &Liveness,
    placement: &Placement,
    fixed: &TileSums,
    sram: &Sram,
) -> Vec<Extent> {
    let footprints = Footprints::new(program, fixed);
    let begin = sram.interleaved_begin();
    let fixed = footprints.row(fixed);
    let (mut low, mut top) = (vec![begin; fixed.len()], vec![begin; fixed.len()]);
    for id in program.vars.ids().filter(|&id| live.ranges[id].is_some()) {
        let address = placement.offset_bytes[id];
        let (first, row) = &footprints.rows[footprints.row_of[id] as usize];
        for (piece, &bytes) in row.iter().enumerate().filter(|&(_, &bytes)| bytes > 0) {
            let piece = first + piece;
            if address < begin {
                low[piece] = low[piece].min(address);
            } else {
                top[piece] = top[piece].max(address.saturating_add(bytes as u64));
            }
        }
    }
    let bounds = footprints.bounds.windows(2).enumerate();
    bounds
        .map(|(piece, bounds)| Extent {
            first_tile: bounds[0],
            count: bounds[1] - bounds[0],
            fixed: fixed[piece].max(0) as u64,
            low: low[piece],
            top: top[piece],
        })
        .collect()
}

/// Bytes of a tile's variables that do not always live, at each point.
pub fn temporaries_over_time(program: &Program, live: &Liveness, tile: u32) -> Vec<u64> {
    let mut changes = vec![0i64; live.points as usize + 1];
    for (id, var) in program.vars.iter().filter(|(_, var)| !var.role.always_lives()) {
        let Some((first, last)) = live.ranges[id] else { continue };
        let Some(coordinates) = var.home.grid.coordinates_of(tile) else { continue };
        let bytes = var.tile_bytes(&coordinates) as i64;
        changes[first as usize] += bytes;
        changes[last as usize + 1] -= bytes;
    }
    let sums = changes.iter().scan(0i64, |sum, change| {
        *sum += change;
        Some((*sum).max(0) as u64)
    });
    sums.take(live.points as usize).collect()
}

/// Where variables lie, on a common refinement of their pieces: sums over many points in time are then sums of
/// short rows. Variables of one layout, shape and type share a row.
struct Footprints {
    /// First tile of each piece.
    bounds: Vec<u32>,
    /// Bytes per tile of each piece, from the first to the last that is not 0.
    rows: Vec<(usize, Vec<i64>)>,
    row_of: SideTable<VarId, u32>,
}

impl Footprints {
    fn new(program: &Program, base: &TileSums) -> Self {
        let mut known: FxHashMap<(&Layout, &[u64], u64), u32> = FxHashMap::default();
        let (mut sums, mut row_of) = (Vec::new(), SideTable::default());
        for (id, var) in program.vars.iter() {
            let key = (&var.home, &*var.shape, var.dtype.size_bytes());
            row_of[id] = *known.entry(key).or_insert_with(|| {
                sums.push(var_bytes(var));
                sums.len() as u32 - 1
            });
        }
        let pieces = sums.iter().chain([base]).flat_map(TileSums::pieces);
        let mut bounds: Vec<u32> = pieces.flat_map(|(first, count, _)| [first, first + count]).collect();
        bounds.push(0);
        bounds.sort_unstable();
        bounds.dedup();
        let mut footprints = Footprints { bounds, rows: Vec::new(), row_of };
        footprints.rows = sums.iter().map(|sums| trimmed(footprints.row(sums))).collect();
        footprints
    }

    /// Sums whose pieces are unions of these.
    fn row(&self, sums: &TileSums) -> Vec<i64> {
        let mut row = vec![0; self.bounds.len()];
        let mut at = 0;
        for (first, count, value) in sums.pieces() {
            at += self.bounds[at..].partition_point(|&bound| bound < first);
            let end = at + self.bounds[at..].partition_point(|&bound| bound < first + count);
            row[at..end].fill(value);
        }
        row
    }

    fn add(&self, id: VarId, times: i64, to: &mut [i64]) {
        let (first, row) = &self.rows[self.row_of[id] as usize];
        to[*first..].iter_mut().zip(row).for_each(|(sum, bytes)| *sum += times * bytes);
    }

    /// The highest value and the first tile that has it; tile 0 where none is positive.
    fn max(&self, row: &[i64]) -> (i64, u32) {
        let highest = row.iter().copied().fold(0, i64::max);
        let at = row.iter().position(|&bytes| bytes == highest).filter(|_| highest > 0);
        (highest, at.map_or(0, |at| self.bounds[at]))
    }

    fn sums(&self, row: &[i64]) -> TileSums {
        let mut sums = TileSums::new();
        for (at, &bytes) in row.iter().enumerate().take(self.bounds.len() - 1) {
            sums.add(self.bounds[at], self.bounds[at + 1] - self.bounds[at], bytes);
        }
        sums
    }
}

fn trimmed(mut row: Vec<i64>) -> (usize, Vec<i64>) {
    row.truncate(row.iter().rposition(|&bytes| bytes != 0).map_or(0, |last| last + 1));
    let first = row.iter().position(|&bytes| bytes != 0).unwrap_or(0);
    (first, row.split_off(first))
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
