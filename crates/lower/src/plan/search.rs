//! Branch and bound over the splits of a product or convolution.
//!
//! Axis by axis, the most promising number of parts first. A branch is cut where even full-rate work on the
//! smallest blocks that the rest of the tiles allow takes longer than the best split so far. The result is that of
//! trying every split; the work follows the problem's sizes, hardly the number of tiles.

use super::Cost;
use smallvec::SmallVec;
use std::cmp::Reverse;

/// Bytes beyond the memory bound, and cycles.
pub(super) type Least = (u64, u64);

/// A problem that is split along `N` axes.
pub(super) trait Splits<const N: usize> {
    /// The order in which axes are decided, measured to cut most.
    const ORDER: [usize; N];
    /// Among equals the split with most parts of these axes, whatever the order of the search.
    const PREFERRED: [usize; N];

    fn tiles(&self) -> u64;
    fn memory_bytes(&self) -> u64;
    /// Sizes of the whole problem by axis.
    fn whole(&self) -> [u64; N];
    /// Numbers of parts worth trying, rising, with their largest blocks, falling.
    fn choices(&self, axis: usize) -> Vec<Choice>;
    /// The cost of a split whose busiest tile has blocks of these sizes; nothing if it cannot be split so.
    fn cost(&self, parts: &[u64; N], block: [u64; N]) -> Option<Cost>;
    /// A lower bound of all splits of a branch.
    fn least(&self, branch: &Branch<N>) -> Least;
}

/// A number of parts of an axis, and the size of the largest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    pub parts: u64,
    pub block: u64,
}

/// What is decided, and what the rest of the tiles allows.
pub(super) struct Branch<'a, const N: usize> {
    pub undecided: &'a [usize],
    pub parts: [u64; N],
    /// The largest blocks are no smaller than this.
    pub block: [u64; N],
    /// The same with whole undecided axes, which the tiles divide together.
    whole: [u64; N],
    tiles: u64,
}

impl<const N: usize> Branch<'_, N> {
    /// The least volume of the largest block over some axes.
    pub fn volume(&self, axes: &[usize]) -> u64 {
        let product = |sizes: &[u64; N]| axes.iter().fold(1u64, |sum, &axis| sum.saturating_mul(sizes[axis]));
        let least = product(&self.block);
        if self.undecided.is_empty() { least } else { least.max(product(&self.whole) / self.tiles) }
    }

    pub fn is_open(&self, axis: usize) -> bool {
        self.undecided.contains(&axis)
    }
}

pub(super) struct Search<'a, P, const N: usize> {
    problem: &'a P,
    whole: [u64; N],
    choices: [Vec<Choice>; N],
    best: Option<Found<N>>,
}

/// Parts and largest block of every axis; one part where nothing is decided yet.
#[derive(Clone, Copy)]
struct Node<const N: usize> {
    parts: [u64; N],
    block: [u64; N],
}

pub(super) struct Found<const N: usize> {
    /// Temporary bytes beyond the bound.
    pub over_bytes: u64,
    pub parts: [u64; N],
    pub cost: Cost,
}

impl<'a, P: Splits<N>, const N: usize> Search<'a, P, N> {
    pub fn new(problem: &'a P) -> Self {
        Search {
            problem,
            whole: problem.whole(),
            choices: std::array::from_fn(|axis| problem.choices(axis)),
            best: None,
        }
    }

    pub fn best(mut self) -> Found<N> {
        let undecided: SmallVec<[usize; 6]> =
            P::ORDER.into_iter().filter(|&axis| self.choices[axis].len() > 1).collect();
        let root = Node { parts: [1; N], block: self.whole };
        self.descend(&undecided, root, self.problem.tiles());
        self.best.expect("one part each is always a candidate")
    }

    /// Decides the axes in `undecided`, with `tiles` tiles for each combination of the decided ones.
    fn descend(&mut self, undecided: &[usize], node: Node<N>, tiles: u64) {
        let Some((&axis, rest)) = undecided.split_first() else { return self.consider(node) };
        let within = self.within(axis, tiles);
        let mut branches: SmallVec<[(Least, u64, usize); 64]> = (0..within)
            .map(|place| {
                let parts = self.choices[axis][place].parts;
                (self.least(rest, self.with(node, axis, place), tiles / parts), parts, place)
            })
            .collect();
        branches.sort_unstable();
        for (least, parts, place) in branches {
            let best = self.best.as_ref().map(|best| (best.over_bytes, best.cost.cycles()));
            if best.is_some_and(|best| least > best) {
                break;
            }
            self.descend(rest, self.with(node, axis, place), tiles / parts);
        }
    }

    /// How many of an axis' choices there are tiles for.
    fn within(&self, axis: usize, tiles: u64) -> usize {
        self.choices[axis].partition_point(|choice| choice.parts <= tiles)
    }

    fn with(&self, mut node: Node<N>, axis: usize, place: usize) -> Node<N> {
        let choice = self.choices[axis][place];
        (node.parts[axis], node.block[axis]) = (choice.parts, choice.block);
        node
    }

    fn consider(&mut self, Node { parts, block }: Node<N>) {
        let Some(cost) = self.problem.cost(&parts, block) else { return };
        let over_bytes = cost.temporary_bytes.saturating_sub(self.problem.memory_bytes());
        let found = Found { over_bytes, parts, cost };
        if self.best.as_ref().is_none_or(|best| key::<P, N>(&found) < key::<P, N>(best)) {
            self.best = Some(found);
        }
    }

    fn least(&self, undecided: &[usize], node: Node<N>, tiles: u64) -> Least {
        // The largest block of an undecided axis is at least its share of all tiles that are left, and so is the
        // largest block of several together.
        let (mut block, mut whole) = (node.block, node.block);
        for &axis in undecided {
            block[axis] = self.choices[axis][self.within(axis, tiles).max(1) - 1].block;
            whole[axis] = self.whole[axis];
        }
        self.problem.least(&Branch { undecided, parts: node.parts, block, whole, tiles })
    }
}

/// What makes one split better than another.
fn key<P: Splits<N>, const N: usize>(found: &Found<N>) -> (u64, u64, [Reverse<u64>; N]) {
    (found.over_bytes, found.cost.cycles(), P::PREFERRED.map(|axis| Reverse(found.parts[axis])))
}
