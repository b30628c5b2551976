//! Branch and bound over the splits of a matrix product.
//!
//! Axis by axis, the most promising number of parts first. A branch is cut where even full-rate work on the
//! smallest blocks that the rest of the tiles allow takes longer than the best split so far. The result is that of
//! trying every split; the work follows the product's sizes, hardly the number of tiles.

use super::matmul::{BATCH, COLUMNS, Cost, INNER, Problem, ROWS};
use super::{matrix_rate, receive_cycles, superstep_cycles};
use crate::layouts::part_counts;
use smallvec::SmallVec;
use std::cmp::Reverse;

/// The order in which axes are decided, measured to cut most: whether the rows are split decides whether the right
/// side must move, the inner parts how many partial sums there are to add.
const ORDER: [usize; 4] = [ROWS, INNER, COLUMNS, BATCH];

/// Bytes beyond the memory bound, and cycles.
type Least = (u64, u64);

pub(super) struct Search<'a> {
    problem: &'a Problem<'a>,
    /// Sizes of the whole product by axis, and of the split dimensions among them.
    whole: [u64; 4],
    sizes: [u64; 4],
    grains: [u64; 4],
    counts: [Vec<u64>; 4],
    macs_per_cycle: u64,
    /// Bytes of partial sums for each part of the inner dimension, spread evenly over the chip.
    result_bytes_per_tile: u64,
    best: Option<Found>,
}

/// Parts and largest block of every axis; one part where nothing is decided yet.
#[derive(Clone, Copy)]
struct Node {
    parts: [u64; 4],
    block: [u64; 4],
}

pub(super) struct Found {
    /// Temporary bytes beyond the bound.
    over_bytes: u64,
    pub parts: [u64; 4],
    pub cost: Cost,
}

impl Found {
    /// What makes one split better than another; among equals the one with most parts, whatever the order of the
    /// search.
    fn key(&self) -> (u64, u64, [Reverse<u64>; 4]) {
        (
            self.over_bytes,
            self.cost.cycles(),
            [COLUMNS, ROWS, INNER, BATCH].map(|axis| Reverse(self.parts[axis])),
        )
    }
}

impl<'a> Search<'a> {
    pub fn new(problem: &'a Problem<'a>, sizes: [u64; 4], grains: [u64; 4]) -> Self {
        let chip = &problem.machine.chip;
        let rate = matrix_rate(chip, problem.input).map_or(1, |rate| rate.macs_per_cycle() as u64);
        let counts = |axis: usize| part_counts(u64::div_ceil(sizes[axis], grains[axis]), chip.tiles.into());
        let whole = problem.whole();
        let results = [BATCH, ROWS, COLUMNS].iter().fold(1u64, |sum, &axis| sum.saturating_mul(whole[axis]));
        Search {
            problem,
            whole,
            result_bytes_per_tile: results / u64::from(chip.tiles) * problem.partials.size_bytes(),
            sizes,
            grains,
            counts: std::array::from_fn(counts),
            macs_per_cycle: rate.max(1),
            best: None,
        }
    }

    pub fn best(mut self) -> Found {
        let undecided: SmallVec<[usize; 4]> =
            ORDER.into_iter().filter(|&axis| self.counts[axis].len() > 1).collect();
        let root = Node { parts: [1; 4], block: self.whole };
        self.descend(&undecided, root, self.problem.machine.chip.tiles.into());
        self.best.expect("one part each is always a candidate")
    }

    /// Decides the axes in `undecided`, with `tiles` tiles for each combination of the decided ones.
    fn descend(&mut self, undecided: &[usize], node: Node, tiles: u64) {
        let Some((&axis, rest)) = undecided.split_first() else { return self.consider(node) };
        let within = self.counts[axis].partition_point(|&count| count <= tiles);
        let mut branches: SmallVec<[(Least, u64); 64]> = self.counts[axis][..within]
            .iter()
            .map(|&count| (self.least(rest, self.with(node, axis, count), tiles / count), count))
            .collect();
        branches.sort_unstable();
        for (least, count) in branches {
            let best = self.best.as_ref().map(|best| (best.over_bytes, best.cost.cycles()));
            if best.is_some_and(|best| least > best) {
                break;
            }
            self.descend(rest, self.with(node, axis, count), tiles / count);
        }
    }

    fn with(&self, mut node: Node, axis: usize, count: u64) -> Node {
        node.parts[axis] = count;
        node.block[axis] = self.block(axis, count);
        node
    }

    fn consider(&mut self, Node { parts, block }: Node) {
        let cost = self.problem.cost(&parts, block);
        let over_bytes = cost.temporary_bytes.saturating_sub(self.problem.memory_bytes);
        let found = Found { over_bytes, parts, cost };
        if self.best.as_ref().is_none_or(|best| found.key() < best.key()) {
            self.best = Some(found);
        }
    }

    /// The largest block of an axis in so many parts.
    fn block(&self, axis: usize, parts: u64) -> u64 {
        let (size, grain) = (self.sizes[axis], self.grains[axis]);
        let split = (size.div_ceil(grain).div_ceil(parts) * grain).min(size);
        split.saturating_mul(self.whole[axis] / size)
    }

    /// A lower bound of all splits with these parts: operands arrive and are multiplied at full rate, blocks are as
    /// small as the tiles allow, partial sums arrive but cost nothing to add.
    fn least(&self, undecided: &[usize], mut node: Node, tiles: u64) -> Least {
        // The largest block of an undecided axis is at least its share of all tiles that are left, and so is the
        // largest block of several together.
        let mut whole = node.block;
        for &axis in undecided {
            node.block[axis] = self.block(axis, tiles.min(self.sizes[axis]));
            whole[axis] = self.whole[axis];
        }
        let volume = |axes: &[usize]| {
            let product =
                |sizes: &[u64; 4]| axes.iter().fold(1u64, |sum, &axis| sum.saturating_mul(sizes[axis]));
            if undecided.is_empty() {
                product(&node.block)
            } else {
                product(&node.block).max(product(&whole) / tiles)
            }
        };
        let (problem, machine) = (self.problem, self.problem.machine);
        let (element_bytes, partial_bytes) = (problem.input.size_bytes(), problem.partials.size_bytes());
        // Whatever is undecided spares what it can: a bus of two, a right side that stays.
        let paired = undecided.contains(&COLUMNS) || node.parts[COLUMNS].is_multiple_of(2);
        let rhs_stays = problem.rhs_is_free && (undecided.contains(&ROWS) || node.parts[ROWS] == 1);
        let lhs_bytes = volume(&[INNER, BATCH, ROWS]).saturating_mul(element_bytes);
        let rhs_bytes =
            if rhs_stays { 0 } else { volume(&[INNER, BATCH, COLUMNS]).saturating_mul(element_bytes) };
        let out_bytes = volume(&[BATCH, ROWS, COLUMNS]).saturating_mul(partial_bytes);
        let mut cycles = receive_cycles(machine, lhs_bytes, paired)
            + receive_cycles(machine, rhs_bytes, false)
            + volume(&[INNER, BATCH, ROWS, COLUMNS]) / self.macs_per_cycle
            + superstep_cycles(machine);
        if node.parts[INNER] > 1 {
            let share_bytes = self.result_bytes_per_tile.saturating_mul(node.parts[INNER]);
            cycles += superstep_cycles(machine) + receive_cycles(machine, share_bytes, false);
        }
        let bytes = lhs_bytes.saturating_add(rhs_bytes).saturating_add(out_bytes);
        (bytes.saturating_sub(problem.memory_bytes), cycles)
    }
}
