//! A box of a tensor's index space: one half-open interval per dimension.

use smallvec::SmallVec;
use std::fmt;

/// `[begin, end)` per dimension, outermost first.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Block(pub SmallVec<[(u64, u64); 4]>);

impl Block {
    pub fn new(bounds: &[(u64, u64)]) -> Self {
        Block(SmallVec::from_slice(bounds))
    }

    /// The whole of a shape.
    pub fn full(shape: &[u64]) -> Self {
        Block(shape.iter().map(|&dim| (0, dim)).collect())
    }

    pub fn rank(&self) -> usize {
        self.0.len()
    }

    pub fn lens(&self) -> SmallVec<[u64; 4]> {
        self.0.iter().map(|&(begin, end)| end - begin).collect()
    }

    /// Number of elements.
    pub fn volume(&self) -> u64 {
        self.0.iter().map(|&(begin, end)| end - begin).product()
    }

    pub fn is_empty(&self) -> bool {
        self.0.iter().any(|&(begin, end)| begin >= end)
    }

    /// The common part; empty dimensions come out as `begin..begin`.
    pub fn intersect(&self, other: &Block) -> Block {
        let bounds = self.0.iter().zip(&other.0);
        Block(
            bounds
                .map(|(&(b0, e0), &(b1, e1))| {
                    let begin = b0.max(b1);
                    (begin, e0.min(e1).max(begin))
                })
                .collect(),
        )
    }

    pub fn contains(&self, other: &Block) -> bool {
        other.is_empty() || self.0.iter().zip(&other.0).all(|(&(b0, e0), &(b1, e1))| b0 <= b1 && e1 <= e0)
    }

    pub fn overlaps(&self, other: &Block) -> bool {
        !self.intersect(other).is_empty()
    }
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bounds: Vec<String> = self.0.iter().map(|(begin, end)| format!("{begin}..{end}")).collect();
        write!(f, "[{}]", bounds.join(", "))
    }
}
