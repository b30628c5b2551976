//! Grids of tiles and the classes of coordinates that all look alike.

use crate::block::Block;
use crate::span::{Part, Span};
use pando_base::Shape;
use smallvec::SmallVec;
use std::fmt;

/// One axis of a grid: `extent` coordinates, `stride` tiles apart. Stride 0 keeps all coordinates on one
/// tile (several vertices there).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Axis {
    pub extent: u32,
    pub stride: u32,
}

/// Coordinates `c` lie on tile `base + Σ c·stride`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Grid {
    pub base: u32,
    pub axes: SmallVec<[Axis; 4]>,
}

pub type Coordinates = SmallVec<[u32; 4]>;

/// A box of coordinates at which every region under study has the same size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class {
    /// Coordinates `[begin, end)` per axis.
    pub ranges: SmallVec<[(u32, u32); 4]>,
}

impl Class {
    /// The first coordinates of the class.
    pub fn representative(&self) -> Coordinates {
        self.ranges.iter().map(|&(begin, _)| begin).collect()
    }

    /// Number of coordinates.
    pub fn len(&self) -> u64 {
        self.ranges.iter().map(|&(begin, end)| u64::from(end - begin)).product()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Grid {
    /// A single coordinate on one tile.
    pub fn single(tile: u32) -> Self {
        Grid { base: tile, axes: SmallVec::new() }
    }

    /// Axes of the given extents, the last varying fastest over consecutive tiles.
    pub fn packed(base: u32, extents: &[u32]) -> Self {
        let mut stride = 1;
        let mut axes: SmallVec<[Axis; 4]> = SmallVec::new();
        for &extent in extents.iter().rev() {
            axes.push(Axis { extent, stride });
            stride *= extent;
        }
        axes.reverse();
        Grid { base, axes }
    }

    /// Number of coordinates.
    pub fn len(&self) -> u64 {
        self.axes.iter().map(|axis| u64::from(axis.extent)).product()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn tile(&self, coordinates: &[u32]) -> u32 {
        self.base + self.axes.iter().zip(coordinates).map(|(axis, &c)| axis.stride * c).sum::<u32>()
    }

    /// One past the highest tile.
    pub fn end_tile(&self) -> u64 {
        let reach = |axis: &Axis| u64::from(axis.extent.saturating_sub(1)) * u64::from(axis.stride);
        u64::from(self.base) + self.axes.iter().map(reach).sum::<u64>() + 1
    }

    /// All coordinates, the last axis fastest. For explicit forms and what cannot be said of classes.
    pub fn coordinates(&self) -> impl Iterator<Item = Coordinates> + use<> {
        let extents: Coordinates = self.axes.iter().map(|axis| axis.extent).collect();
        let first: Coordinates = SmallVec::from_elem(0, extents.len());
        let mut next = (!self.is_empty()).then_some(first);
        std::iter::from_fn(move || {
            let current = next.take()?;
            let mut following = current.clone();
            for axis in (0..extents.len()).rev() {
                following[axis] += 1;
                if following[axis] < extents[axis] {
                    next = Some(following);
                    break;
                }
                following[axis] = 0;
            }
            Some(current)
        })
    }

    /// Calls with every tile and its coordinates, in the order of [`Grid::coordinates`], without making a
    /// list for each.
    pub fn for_each_tile(&self, mut visit: impl FnMut(u32, &[u32])) {
        let mut coordinates: Coordinates = SmallVec::from_elem(0, self.axes.len());
        let mut tile = self.base;
        for _ in 0..self.len() {
            visit(tile, &coordinates);
            for (coordinate, axis) in coordinates.iter_mut().zip(&self.axes).rev() {
                *coordinate += 1;
                tile += axis.stride;
                if *coordinate < axis.extent {
                    break;
                }
                tile -= axis.extent * axis.stride;
                *coordinate = 0;
            }
        }
    }

    /// Whether distinct coordinates lie on distinct tiles. Sorting the axes by stride, each must step
    /// over everything the smaller ones reach; sufficient, and what all balanced layouts satisfy.
    pub fn is_injective(&self) -> bool {
        let mut axes: SmallVec<[Axis; 4]> =
            self.axes.iter().copied().filter(|axis| axis.extent > 1).collect();
        axes.sort_by_key(|axis| axis.stride);
        let mut reach = 0u64;
        axes.iter().all(|axis| {
            let steps_over = u64::from(axis.stride) > reach;
            reach += u64::from(axis.stride) * u64::from(axis.extent - 1);
            steps_over
        })
    }

    /// The coordinates on a tile, for an injective grid.
    pub fn coordinates_of(&self, tile: u32) -> Option<Coordinates> {
        let mut order: SmallVec<[usize; 4]> = (0..self.axes.len()).collect();
        order.sort_by_key(|&axis| std::cmp::Reverse(self.axes[axis].stride));
        let mut rest = tile.checked_sub(self.base)?;
        let mut coordinates: Coordinates = SmallVec::from_elem(0, self.axes.len());
        for axis in order {
            let Axis { extent, stride } = self.axes[axis];
            if extent > 1 {
                coordinates[axis] = (rest / stride).min(extent - 1);
                rest -= coordinates[axis] * stride;
            }
        }
        (rest == 0).then_some(coordinates)
    }

    /// Axes that none of the spans depends on: over them a region is repeated.
    pub fn free_axes(&self, region: &[Span]) -> SmallVec<[usize; 4]> {
        (0..self.axes.len()).filter(|&axis| region.iter().all(|span| span.axis() != Some(axis))).collect()
    }

    /// The block that a region covers at the coordinates.
    pub fn block(&self, region: &[Span], shape: &[u64], coordinates: &[u32]) -> Block {
        Block(region.iter().zip(shape).map(|(span, &dim)| span.bounds(self, coordinates, dim)).collect())
    }

    /// Splits the coordinates into classes in which every region's lengths are constant. The number of
    /// classes depends on how uneven the splits are, not on the number of tiles.
    pub fn classes<'a>(&self, regions: impl Iterator<Item = (&'a [Span], &'a [u64])>) -> Vec<Class> {
        let mut cuts: SmallVec<[Vec<u32>; 4]> = SmallVec::from_elem(Vec::new(), self.axes.len());
        for (region, shape) in regions {
            for (span, &dim) in region.iter().zip(shape) {
                if let Span::Part(part) = span {
                    let axis = part.axis as usize;
                    length_changes(part, self.axes[axis].extent, dim, &mut cuts[axis]);
                }
            }
        }
        let ranges: Vec<Vec<(u32, u32)>> =
            self.axes.iter().zip(&mut cuts).map(|(axis, cuts)| runs(axis.extent, cuts)).collect();
        let mut classes = vec![Class { ranges: SmallVec::new() }];
        for axis_runs in &ranges {
            classes = classes
                .iter()
                .flat_map(|class| {
                    axis_runs.iter().map(move |&run| {
                        let mut ranges = class.ranges.clone();
                        ranges.push(run);
                        Class { ranges }
                    })
                })
                .collect();
        }
        classes
    }

    /// The tiles of a class as `(first tile, count)` runs of consecutive tiles.
    pub fn tile_runs(&self, class: &Class) -> Vec<(u32, u32)> {
        let mut axes: SmallVec<[(u32, u32); 4]> = SmallVec::new();
        let mut first = self.base;
        for (axis, &(begin, end)) in self.axes.iter().zip(&class.ranges) {
            first += axis.stride * begin;
            if end - begin > 1 && axis.stride > 0 {
                axes.push((axis.stride, end - begin));
            }
        }
        axes.sort_by_key(|&(stride, _)| std::cmp::Reverse(stride));
        let mut length = 1;
        while axes.last().is_some_and(|&(stride, _)| stride == length) {
            length *= axes.pop().map_or(1, |(_, extent)| extent);
        }
        let outer: Shape = axes.iter().map(|&(_, extent)| u64::from(extent)).collect();
        let offset =
            |index: &[u64]| index.iter().zip(&axes).map(|(&i, &(stride, _))| i as u32 * stride).sum::<u32>();
        outer.indices().map(|index| (first + offset(&index), length)).collect()
    }
}

/// Coordinates at which the length of the part differs from the one before.
fn length_changes(part: &Part, extent: u32, dim: u64, cuts: &mut Vec<u32>) {
    let bounds = |c: u32| part.bounds(c.into(), extent.into(), dim);
    let length = |c: u32| {
        let (begin, end) = bounds(c);
        end - begin
    };
    // Unclipped lengths change where the balanced split's remainder ends and at the last coordinate (a
    // ragged grain). Clipping touches a prefix and a suffix, which monotony lets us find by bisection.
    let units = part.total.div_ceil(part.grain);
    let last = extent - 1;
    let prefix = partition_point(extent, |c| clipped_below(part, c.into(), extent.into()));
    let suffix = partition_point(extent, |c| !clipped_above(part, c.into(), extent.into(), dim));
    let candidates = (1..prefix + 1).chain(suffix..extent).chain([(units % u64::from(extent)) as u32, last]);
    for c in candidates {
        if (1..extent).contains(&c) && length(c) != length(c - 1) {
            cuts.push(c);
        }
    }
}

fn clipped_below(part: &Part, coordinate: u64, extent: u64) -> bool {
    let (begin, _) = part.share(coordinate, extent);
    i128::from(part.mul) * i128::from(begin) + i128::from(part.lo) < 0
}

fn clipped_above(part: &Part, coordinate: u64, extent: u64, dim: u64) -> bool {
    let (_, end) = part.share(coordinate, extent);
    i128::from(part.mul) * (i128::from(end) - 1) + i128::from(part.hi) > i128::from(dim)
}

/// Number of leading coordinates for which the (monotone) predicate holds.
fn partition_point(extent: u32, predicate: impl Fn(u32) -> bool) -> u32 {
    let (mut low, mut high) = (0, extent);
    while low < high {
        let middle = low + (high - low) / 2;
        if predicate(middle) { low = middle + 1 } else { high = middle }
    }
    low
}

/// `[0, extent)` split at the cuts.
fn runs(extent: u32, cuts: &mut Vec<u32>) -> Vec<(u32, u32)> {
    cuts.push(0);
    cuts.push(extent);
    cuts.sort_unstable();
    cuts.dedup();
    cuts.windows(2).map(|pair| (pair[0], pair[1])).collect()
}

impl fmt::Display for Grid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "on {}", self.base)?;
        for axis in &self.axes {
            write!(f, " {}*{}", axis.extent, axis.stride)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_grids_are_row_major() {
        let grid = Grid::packed(3, &[2, 4]);
        assert_eq!(grid.to_string(), "on 3 2*4 4*1");
        assert_eq!((grid.tile(&[1, 2]), grid.end_tile(), grid.len()), (9, 11, 8));
        assert!(grid.is_injective());
        let doubled = Grid { base: 0, axes: SmallVec::from_slice(&[Axis { extent: 2, stride: 0 }]) };
        assert!(!doubled.is_injective());
    }

    /// Against the definition: within a class lengths are constant, and the classes partition the grid.
    #[test]
    fn classes_have_constant_lengths() {
        for (total, grain, mul, lo, hi, dim) in [
            (10u64, 1, 1, 0, 1, 10),
            (10, 4, 1, 0, 1, 10),
            (9, 1, 2, -3, 4, 18),
            (7, 1, 1, -5, 6, 7),
            (64, 1, 1, -1, 2, 64),
        ] {
            for extent in 1..=total.div_ceil(grain) as u32 {
                let grid = Grid::packed(0, &[extent, 3]);
                let part = Part { axis: 0, total, grain, mul, lo, hi };
                let region = [Span::Part(part), Span::Fixed { begin: 0, end: 5 }];
                let classes = grid.classes([(region.as_slice(), [dim, 5].as_slice())].into_iter());
                assert_eq!(classes.iter().map(Class::len).sum::<u64>(), grid.len());
                let mut tiles: Vec<u32> = Vec::new();
                for class in &classes {
                    let (begin, end) = class.ranges[0];
                    let length = |c| part.bounds(u64::from(c), extent.into(), dim);
                    let expected = length(begin).1 - length(begin).0;
                    assert!((begin..end).all(|c| length(c).1 - length(c).0 == expected));
                    tiles.extend(grid.tile_runs(class).iter().flat_map(|&(first, n)| first..first + n));
                }
                tiles.sort_unstable();
                assert_eq!(tiles, (0..extent * 3).collect::<Vec<_>>());
            }
        }
    }
}
