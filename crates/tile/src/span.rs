//! One dimension of a region as a closed form of a grid coordinate.
//!
//! A balanced split of `total` indices, taken in units of `grain`, over an axis of `extent` coordinates
//! gives the first `units % extent` coordinates one unit more than the rest. A [`Part`] may then be
//! widened to a window: the inputs that a range of convolution outputs needs. Everything is affine in the
//! coordinate over a few runs of coordinates, which is what makes analyses of groups exact and cheap.

use crate::grid::Grid;
use std::fmt;

/// Half-open range of indices of one dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Span {
    /// The same at every coordinate.
    Fixed { begin: u64, end: u64 },
    /// Depends on the coordinate along one axis.
    Part(Part),
}

/// The image of a balanced part `[b, e)` of `total`: `[mul·b + lo, mul·(e−1) + hi)`, clipped to the
/// dimension. The part itself is `mul = 1, lo = 0, hi = 1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Part {
    /// Index of the grid axis.
    pub axis: u8,
    /// What the axis splits, in indices.
    pub total: u64,
    /// Parts begin at multiples of this.
    pub grain: u64,
    pub mul: u64,
    pub lo: i64,
    pub hi: i64,
}

impl Part {
    /// An even split of `total` without a window.
    pub fn even(axis: usize, total: u64, grain: u64) -> Self {
        Part { axis: axis as u8, total, grain, mul: 1, lo: 0, hi: 1 }
    }

    /// Whether parts are the split itself, so that they are disjoint and cover the dimension.
    pub fn is_partition(&self) -> bool {
        (self.mul, self.lo, self.hi) == (1, 0, 1)
    }

    /// The share of a coordinate before windowing.
    pub fn share(&self, coordinate: u64, extent: u64) -> (u64, u64) {
        let units = self.total.div_ceil(self.grain);
        let (quotient, remainder) = (units / extent, units % extent);
        let at = |c: u64| ((c * quotient + c.min(remainder)) * self.grain).min(self.total);
        (at(coordinate), at(coordinate + 1))
    }

    /// The indices of a coordinate, clipped to `[0, dim)`.
    pub fn bounds(&self, coordinate: u64, extent: u64, dim: u64) -> (u64, u64) {
        let (begin, end) = self.share(coordinate, extent);
        let clip = |value: i128| value.clamp(0, i128::from(dim)) as u64;
        let low = clip(i128::from(self.mul) * i128::from(begin) + i128::from(self.lo));
        let high = clip(i128::from(self.mul) * (i128::from(end) - 1) + i128::from(self.hi));
        (low, high.max(low))
    }

    /// The coordinates whose shares hold `index` of an unwindowed split: the inverse of
    /// [`Part::share`].
    pub fn coordinate_of(&self, index: u64, extent: u64) -> u64 {
        let units = self.total.div_ceil(self.grain);
        let (quotient, remainder) = (units / extent, units % extent);
        let unit = index / self.grain;
        let large = remainder * (quotient + 1);
        if unit < large { unit / (quotient + 1) } else { remainder + (unit - large) / quotient.max(1) }
    }
}

impl Span {
    /// The whole dimension.
    pub fn full(dim: u64) -> Self {
        Span::Fixed { begin: 0, end: dim }
    }

    pub fn axis(&self) -> Option<usize> {
        match self {
            Span::Fixed { .. } => None,
            Span::Part(part) => Some(part.axis as usize),
        }
    }

    /// The indices at a grid coordinate, for a dimension of size `dim`.
    pub fn bounds(&self, grid: &Grid, coordinates: &[u32], dim: u64) -> (u64, u64) {
        match self {
            Span::Fixed { begin, end } => (*begin, *end),
            Span::Part(part) => {
                let axis = part.axis as usize;
                part.bounds(coordinates[axis].into(), grid.axes[axis].extent.into(), dim)
            }
        }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Span::Fixed { begin, end } => write!(f, "{begin}..{end}"),
            Span::Part(part) => {
                write!(f, "a{}:{}", part.axis, part.total)?;
                if part.grain != 1 {
                    write!(f, "/{}", part.grain)?;
                }
                if !part.is_partition() {
                    write!(f, "*{}({},{})", part.mul, part.lo, part.hi)?;
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_balanced_and_cover() {
        for total in 1..40u64 {
            for grain in 1..5 {
                for extent in 1..=total.div_ceil(grain) {
                    let part = Part::even(0, total, grain);
                    let shares: Vec<_> = (0..extent).map(|c| part.share(c, extent)).collect();
                    assert_eq!((shares[0].0, shares[extent as usize - 1].1), (0, total));
                    assert!(shares.windows(2).all(|pair| pair[0].1 == pair[1].0));
                    assert!(shares.iter().all(|(begin, end)| begin < end && begin % grain == 0));
                    for index in 0..total {
                        let (begin, end) = shares[part.coordinate_of(index, extent) as usize];
                        assert!((begin..end).contains(&index), "{part:?} {index}");
                    }
                }
            }
        }
    }

    #[test]
    fn windows_are_clipped() {
        // A 3-wide kernel with padding 1 over 8 inputs, stride 2: outputs 0..4 in two parts.
        let part = Part { mul: 2, lo: -1, hi: 2, ..Part::even(0, 4, 1) };
        assert_eq!(part.bounds(0, 2, 8), (0, 4));
        assert_eq!(part.bounds(1, 2, 8), (3, 8));
    }
}
