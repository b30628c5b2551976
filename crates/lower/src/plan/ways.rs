//! Ways to divide several dimensions together into so many parts: the dimensions that play one role in a product, such
//! as the batch and the heads of attention. Each may be cut, so that blocks get small without cutting through a head.

use super::search::Choice;
use crate::layouts::part_counts;
use smallvec::SmallVec;
use std::cmp::Reverse;

/// A dimension that may be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dim {
    /// Which one it is: a position among the pairs of its role, or a dimension of an operand.
    pub index: usize,
    pub size: u64,
    /// Units in which it is cut.
    pub grain: u64,
}

/// Parts of each dimension, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Way {
    pub parts: SmallVec<[u64; 4]>,
    pub choice: Choice,
}

impl Way {
    /// So many parts of each dimension.
    pub fn new(dims: &[Dim], parts: SmallVec<[u64; 4]>) -> Self {
        let share = |(dim, &parts): (&Dim, &u64)| dim.share(parts);
        let block = dims.iter().zip(&parts).map(share).fold(1u64, |block, share| block.saturating_mul(share));
        Way { choice: Choice { parts: parts.iter().product(), block }, parts }
    }
}

impl Dim {
    /// The largest of so many parts.
    fn share(&self, parts: u64) -> u64 {
        (self.size.div_ceil(self.grain).div_ceil(parts) * self.grain).min(self.size)
    }
}

/// Dimensions and sizes with units such that blocks hold whole units of `grain` elements, counted from the last
/// dimension on.
pub(super) fn in_grains(
    dims: impl DoubleEndedIterator<Item = (usize, u64)>,
    grain: u64,
) -> SmallVec<[Dim; 4]> {
    let mut left = grain.max(1);
    let mut out: SmallVec<[Dim; 4]> = dims
        .rev()
        .map(|(index, size)| {
            let dim = Dim { index, size, grain: left.min(size).max(1) };
            left = left.div_ceil(size.max(1));
            dim
        })
        .collect();
    out.reverse();
    out
}

/// The ways worth trying, by rising numbers of parts and falling largest blocks. Among equals outer dimensions are cut
/// first: what lies together then stays together.
pub(super) fn ways(dims: &[Dim], most: u64) -> Vec<Way> {
    let whole = Way { parts: SmallVec::new(), choice: Choice { parts: 1, block: 1 } };
    dims.iter().fold(vec![whole], |front, dim| {
        let counts = part_counts(dim.size.div_ceil(dim.grain), most);
        let mut all: Vec<Way> = Vec::new();
        for way in &front {
            for &count in counts.iter().take_while(|&&count| count * way.choice.parts <= most) {
                let block = way.choice.block.saturating_mul(dim.share(count));
                let choice = Choice { parts: way.choice.parts * count, block };
                let parts = way.parts.iter().copied().chain([count]).collect();
                all.push(Way { parts, choice });
            }
        }
        let rank = |way: &Way| (way.choice.parts, way.choice.block, Reverse(way.parts.clone()));
        all.sort_by_key(rank);
        let mut least = u64::MAX;
        all.retain(|way| {
            let smaller = way.choice.block < least;
            least = least.min(way.choice.block);
            smaller
        });
        all
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_count_from_the_last_dimension() {
        let dims = in_grains([(0, 100), (3, 4)].into_iter(), 16);
        assert_eq!(dims.iter().map(|dim| dim.grain).collect::<Vec<_>>(), [4, 4]);
        let dims = in_grains([(0, 12), (1, 64)].into_iter(), 16);
        assert_eq!(dims.iter().map(|dim| dim.grain).collect::<Vec<_>>(), [1, 16]);
    }

    #[test]
    fn one_dimension_has_its_counts() {
        let dims = in_grains([(0, 100)].into_iter(), 1);
        let found: Vec<u64> = ways(&dims, 1472).iter().map(|way| way.choice.parts).collect();
        assert_eq!(found, part_counts(100, 1472));
    }

    #[test]
    fn heads_stay_together() {
        // 16 items of 12 heads.
        let dims = in_grains([(0, 16), (1, 12)].into_iter(), 1);
        let found = ways(&dims, 1472);
        let of = |parts| found.iter().find(|way| way.choice.parts == parts).map(|way| way.parts.to_vec());
        assert_eq!(of(192), Some(vec![16, 12]));
        assert_eq!(of(32), Some(vec![16, 2]));
        assert!(found.windows(2).all(|pair| {
            pair[0].choice.parts < pair[1].choice.parts && pair[0].choice.block > pair[1].choice.block
        }));
        assert_eq!(ways(&[], 4).len(), 1);
    }
}
