//! Time of a compute set.
//!
//! On each tile the set's vertices are dealt in order (groups in order, coordinates in order) to the tile's
//! W workers, round robin. A worker issues once in W cycles (hardware.md section 2), so the workers take
//! W × the most issue slots that one of them has. Supervisor vertices use all workers themselves and run one
//! after another, before or after those. A tile takes the sum of both, the set as long as its slowest tile.
//!
//! Tiles are not looked at one by one: a group gives a few *shares*, sets of tiles that all run the same
//! vertices. Those of one group are disjoint; where groups meet, a sweep over the shares' runs of tiles finds the
//! pieces on which the same shares meet.

use pando_machine::Chip;
use pando_profile::{Cycles, Step, StepKind};
use pando_tile::validate::{group_classes, operand_lens, operand_types};
use pando_tile::{Axis, Class, ComputeSet, Grid, Group, Program, VertexCost};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::collections::BTreeSet;

pub fn time_compute(program: &Program, set: &ComputeSet, chip: &Chip) -> Step {
    let (mut shares, mut vertices, mut flops) = (Vec::new(), 0u64, 0u64);
    for group in &set.groups {
        let costs = class_costs(program, group, chip);
        vertices = vertices.saturating_add(group.grid.len());
        for cost in &costs {
            flops = flops.saturating_add(cost.flops.saturating_mul(cost.class.len()));
        }
        add_shares(group, &costs, &mut shares);
    }
    let disjoint = set.groups.len() == 1 && moving_grid(&set.groups[0].grid).is_injective();
    let pieces = if disjoint { pieces_of(&shares, chip.workers) } else { sweep(&shares, chip.workers) };
    let tiles: u64 = pieces.iter().map(|piece| u64::from(piece.count)).sum();
    let sum: u128 = pieces.iter().map(|piece| u128::from(piece.cycles) * u128::from(piece.count)).sum();
    let slowest = pieces
        .iter()
        .fold((0, 0), |best, piece| if piece.cycles > best.1 { (piece.first, piece.cycles) } else { best });
    Step {
        cycles: slowest.1,
        parts: Cycles { compute: slowest.1, ..Cycles::default() },
        busiest_tile: slowest.0,
        tiles_used: tiles as u32,
        mean_tile_cycles: if tiles == 0 { 0.0 } else { sum as f64 / tiles as f64 },
        max_tile_cycles: slowest.1,
        vertices,
        flops,
        ..Step::new(set.name.clone(), StepKind::Compute, 1)
    }
}

/// A class of a group's coordinates with what each of its vertices costs.
struct ClassCost {
    class: Class,
    cost: VertexCost,
    flops: u64,
}

fn class_costs(program: &Program, group: &Group, chip: &Chip) -> Vec<ClassCost> {
    let cost = |class: Class| {
        let lens = operand_lens(program, group, &class.representative());
        let types = operand_types(program, group, &lens);
        ClassCost { cost: group.kernel.cycles(&types, chip), flops: group.kernel.flops(&types), class }
    };
    group_classes(program, group).into_iter().map(cost).collect()
}

/// Tiles that run the same vertices of one group, in order, as `(cost, how many in a row)`.
struct Share {
    grid: Grid,
    class: Class,
    vertices: Vec<(VertexCost, u64)>,
}

/// The shares of a group. Axes of stride 0 stay on the tile; if the others lead to distinct tiles, each box
/// of classes along them is one share. Otherwise every coordinate is one.
fn add_shares(group: &Group, costs: &[ClassCost], shares: &mut Vec<Share>) {
    let stays: SmallVec<[bool; 4]> = group.grid.axes.iter().map(|axis| axis.stride == 0).collect();
    let moving = moving_grid(&group.grid);
    if !moving.is_injective() {
        for coordinates in group.grid.coordinates() {
            let vertices = vec![(class_of(costs, &coordinates).cost, 1)];
            let class = Class { ranges: SmallVec::new() };
            shares.push(Share { grid: Grid::single(group.grid.tile(&coordinates)), class, vertices });
        }
        return;
    }
    for box_costs in moving_boxes(costs, &stays) {
        let ranges = box_costs[0].class.ranges.iter().zip(&stays).filter(|(_, stays)| !**stays);
        let class = Class { ranges: ranges.map(|(&range, _)| range).collect() };
        let vertices = vertices_on_tile(&group.grid.axes, &box_costs, &stays);
        shares.push(Share { grid: moving.clone(), class, vertices });
    }
}

/// The grid without its axes that stay on the tile.
fn moving_grid(grid: &Grid) -> Grid {
    Grid { base: grid.base, axes: grid.axes.iter().copied().filter(|axis| axis.stride != 0).collect() }
}

/// Classes with equal ranges along the moving axes, together.
fn moving_boxes<'a>(costs: &'a [ClassCost], stays: &[bool]) -> Vec<Vec<&'a ClassCost>> {
    let mut index: FxHashMap<Vec<(u32, u32)>, usize> = FxHashMap::default();
    let mut boxes: Vec<Vec<&ClassCost>> = Vec::new();
    for cost in costs {
        let moving = cost.class.ranges.iter().zip(stays).filter(|(_, stays)| !**stays);
        let position = *index.entry(moving.map(|(&range, _)| range).collect()).or_insert_with(|| {
            boxes.push(Vec::new());
            boxes.len() - 1
        });
        boxes[position].push(cost);
    }
    boxes
}

/// The vertices of one tile in the order of their coordinates.
fn vertices_on_tile(axes: &[Axis], box_costs: &[&ClassCost], stays: &[bool]) -> Vec<(VertexCost, u64)> {
    let first = box_costs[0].cost;
    if box_costs.iter().all(|cost| cost.cost == first) {
        return vec![(first, box_costs.iter().map(|cost| per_tile(&cost.class, stays)).sum())];
    }
    // Sizes differ along an axis that stays: the order matters, so the tile's vertices are listed.
    let extent = |(axis, stays): (&Axis, &bool)| if *stays { axis.extent } else { 1 };
    let staying = Grid::packed(0, &axes.iter().zip(stays).map(extent).collect::<Vec<u32>>());
    let mut vertices: Vec<(VertexCost, u64)> = Vec::new();
    for coordinates in staying.coordinates() {
        let here = |cost: &&&ClassCost| {
            let ranges = cost.class.ranges.iter().zip(stays).zip(&coordinates);
            ranges.clone().all(|((&(begin, end), stays), c)| !stays || (begin..end).contains(c))
        };
        let cost = box_costs.iter().find(here).expect("classes cover the grid").cost;
        match vertices.last_mut() {
            Some((last, count)) if *last == cost => *count += 1,
            _ => vertices.push((cost, 1)),
        }
    }
    vertices
}

fn per_tile(class: &Class, stays: &[bool]) -> u64 {
    let staying = class.ranges.iter().zip(stays).filter(|(_, stays)| **stays);
    staying.map(|(&(begin, end), _)| u64::from(end - begin)).product()
}

fn class_of<'a>(costs: &'a [ClassCost], coordinates: &[u32]) -> &'a ClassCost {
    let holds = |cost: &&ClassCost| {
        cost.class.ranges.iter().zip(coordinates).all(|(&(begin, end), c)| (begin..end).contains(c))
    };
    costs.iter().find(holds).expect("classes cover the grid")
}

/// Tiles that take equally long, and the first of them.
struct Piece {
    first: u32,
    count: u32,
    cycles: u64,
}

/// Shares that do not meet are pieces.
fn pieces_of(shares: &[Share], workers: u32) -> Vec<Piece> {
    let piece = |(index, share): (usize, &Share)| Piece {
        first: share.grid.tile(&share.class.representative()),
        count: share.class.len() as u32,
        cycles: tile_cycles(shares, &BTreeSet::from([index]), workers),
    };
    let mut pieces: Vec<Piece> = shares.iter().enumerate().map(piece).collect();
    pieces.sort_by_key(|piece| piece.first);
    pieces
}

/// Goes over the tiles at which the set of shares changes. The same set of shares takes equally long
/// everywhere, so it is dealt once.
fn sweep(shares: &[Share], workers: u32) -> Vec<Piece> {
    let mut changes: Vec<(u32, bool, usize)> = Vec::new();
    for (index, share) in shares.iter().enumerate() {
        for (first, count) in share.grid.tile_runs(&share.class) {
            changes.extend([(first, true, index), (first + count, false, index)]);
        }
    }
    // At one tile ends come before beginnings, so that a share's neighbouring runs join.
    changes.sort_unstable();
    let mut known: FxHashMap<Vec<usize>, u64> = FxHashMap::default();
    let mut active: BTreeSet<usize> = BTreeSet::new();
    let mut pieces = Vec::new();
    for (at, &(tile, begins, index)) in changes.iter().enumerate() {
        if begins {
            active.insert(index);
        } else {
            active.remove(&index);
        }
        let next = changes.get(at + 1).map_or(tile, |change| change.0);
        if next > tile && !active.is_empty() {
            let key: Vec<usize> = active.iter().copied().collect();
            let cycles = *known.entry(key).or_insert_with(|| tile_cycles(shares, &active, workers));
            pieces.push(Piece { first: tile, count: next - tile, cycles });
        }
    }
    pieces
}

/// Cycles of a tile that runs the shares in order.
fn tile_cycles(shares: &[Share], active: &BTreeSet<usize>, workers: u32) -> u64 {
    let workers = workers.max(1) as usize;
    let mut slots: SmallVec<[u64; 8]> = SmallVec::from_elem(0, workers);
    let (mut next, mut supervisor) = (0, 0u64);
    for &(cost, count) in active.iter().flat_map(|&index| &shares[index].vertices) {
        match cost {
            VertexCost::Supervisor(cycles) => {
                supervisor = supervisor.saturating_add(cycles.saturating_mul(count))
            }
            VertexCost::Worker(each) => {
                let (rounds, rest) = (count / workers as u64, (count % workers as u64) as usize);
                for (worker, slots) in slots.iter_mut().enumerate() {
                    let extra = (worker + workers - next) % workers < rest;
                    *slots = slots.saturating_add(each.saturating_mul(rounds + u64::from(extra)));
                }
                next = (next + rest) % workers;
            }
        }
    }
    let most = slots.iter().copied().max().unwrap_or(0);
    supervisor.saturating_add(most.saturating_mul(workers as u64))
}
