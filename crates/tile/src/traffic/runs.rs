//! The tiles of a variable as runs of neighbours.

use crate::program::Var;
use crate::span::Span;
use smallvec::SmallVec;

/// Neighbouring tiles along which at most one dimension of a variable's block changes.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub first: u32,
    pub len: u32,
    /// Per dimension of the variable, the position of the first tile's block among those that the dimension
    /// is split into.
    pub positions: SmallVec<[u32; 4]>,
    /// The dimension whose position grows by one from tile to tile.
    pub varying: Option<usize>,
}

impl Run {
    pub fn end(&self) -> u32 {
        self.first + self.len
    }

    pub fn contains(&self, tile: u32) -> bool {
        (self.first..self.end()).contains(&tile)
    }

    /// Positions of the block of one of the run's tiles.
    pub fn at(&self, tile: u32) -> SmallVec<[u32; 4]> {
        let mut positions = self.positions.clone();
        if let Some(dim) = self.varying {
            positions[dim] += tile - self.first;
        }
        positions
    }

    /// A product over dimensions of what depends on the position in each, as a function of the tile's place in the
    /// run.
    pub fn product<'a>(&'a self, factor: impl Fn(usize, usize) -> u64 + 'a) -> impl Fn(usize) -> u64 + 'a {
        let position = |dim: usize| self.positions[dim] as usize;
        let fixed = (0..self.positions.len()).filter(|&dim| self.varying != Some(dim));
        let fixed: u64 = fixed.map(|dim| factor(dim, position(dim))).product();
        move |step| match self.varying {
            Some(dim) => fixed * factor(dim, position(dim) + step),
            None => fixed,
        }
    }
}

/// The runs of a variable's tiles in rising order, those of copy 0 only unless `copies_too`.
pub(super) fn runs(var: &Var, copies_too: bool) -> Vec<Run> {
    let mut grid = var.home.grid.clone();
    if !copies_too {
        var.home.copy_axes().into_iter().for_each(|axis| grid.axes[axis].extent = 1);
    }
    // Homes are injective: the axis of the smallest stride varies fastest.
    let mut order: SmallVec<[usize; 4]> =
        (0..grid.axes.len()).filter(|&axis| grid.axes[axis].extent > 1).collect();
    order.sort_by_key(|&axis| grid.axes[axis].stride);
    let inner = order.first().copied().filter(|&axis| grid.axes[axis].stride == 1);
    let dim_of = |axis: usize| var.home.region.iter().position(|span| span.axis() == Some(axis));
    let len = inner.map_or(1, |axis| grid.axes[axis].extent);
    let mut outer = grid.clone();
    if let Some(axis) = inner {
        outer.axes[axis].extent = 1;
    }
    let mut runs = Vec::with_capacity(outer.len() as usize);
    outer.for_each_tile(|first, coordinates| {
        let position = |span: &Span| span.axis().map_or(0, |axis| coordinates[axis]);
        let positions = var.home.region.iter().map(position).collect();
        runs.push(Run { first, len, positions, varying: inner.and_then(dim_of) });
    });
    runs.sort_unstable_by_key(|run| run.first);
    runs
}
