//! Sets of integers as sorted, disjoint, non-touching half-open intervals.

use std::fmt;

/// A set of `u64`. Invariant: intervals are non-empty, sorted, and separated by gaps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ranges(Vec<(u64, u64)>);

impl Ranges {
    pub fn new() -> Self {
        Ranges::default()
    }

    /// `[begin, end)`; empty if `end <= begin`.
    pub fn of(begin: u64, end: u64) -> Self {
        let mut ranges = Ranges::new();
        ranges.insert(begin, end);
        ranges
    }

    /// Adds `[begin, end)`. O(intervals it merges + those behind it).
    pub fn insert(&mut self, mut begin: u64, mut end: u64) {
        if begin >= end {
            return;
        }
        let first = self.0.partition_point(|&(_, e)| e < begin);
        let last = self.0.partition_point(|&(b, _)| b <= end);
        if first < last {
            begin = begin.min(self.0[first].0);
            end = end.max(self.0[last - 1].1);
        }
        self.0.splice(first..last, [(begin, end)]);
    }

    pub fn union(&self, other: &Ranges) -> Ranges {
        let mut out = self.clone();
        for &(begin, end) in &other.0 {
            out.insert(begin, end);
        }
        out
    }

    pub fn intersection(&self, other: &Ranges) -> Ranges {
        let (mut i, mut j, mut out) = (0, 0, Vec::new());
        while let (Some(&(b0, e0)), Some(&(b1, e1))) = (self.0.get(i), other.0.get(j)) {
            let (begin, end) = (b0.max(b1), e0.min(e1));
            if begin < end {
                out.push((begin, end));
            }
            if e0 < e1 { i += 1 } else { j += 1 }
        }
        Ranges(out)
    }

    pub fn difference(&self, other: &Ranges) -> Ranges {
        let mut out = Vec::new();
        for &(mut begin, end) in &self.0 {
            let first = other.0.partition_point(|&(_, e)| e <= begin);
            for &(b, e) in other.0[first..].iter().take_while(|&&(b, _)| b < end) {
                if begin < b {
                    out.push((begin, b));
                }
                begin = begin.max(e);
            }
            if begin < end {
                out.push((begin, end));
            }
        }
        Ranges(out)
    }

    pub fn contains(&self, value: u64) -> bool {
        let at = self.0.partition_point(|&(_, e)| e <= value);
        self.0.get(at).is_some_and(|&(b, _)| b <= value)
    }

    pub fn overlaps(&self, other: &Ranges) -> bool {
        !self.intersection(other).is_empty()
    }

    /// Number of integers in the set.
    pub fn len(&self) -> u64 {
        self.0.iter().map(|&(b, e)| e - b).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn intervals(&self) -> &[(u64, u64)] {
        &self.0
    }
}

impl fmt::Display for Ranges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = self.0.iter().map(|(b, e)| format!("{b}..{e}")).collect();
        write!(f, "{{{}}}", parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_bits(bits: u16) -> Ranges {
        let mut ranges = Ranges::new();
        for bit in (0..16).filter(|bit| bits & (1 << bit) != 0) {
            ranges.insert(bit, bit + 1);
        }
        ranges
    }

    #[test]
    fn touching_intervals_merge() {
        let mut ranges = Ranges::of(0, 2);
        ranges.insert(4, 6);
        assert_eq!(ranges.to_string(), "{0..2, 4..6}");
        ranges.insert(2, 4);
        assert_eq!(ranges.intervals(), [(0, 6)]);
        ranges.insert(9, 9);
        assert_eq!(ranges.len(), 6);
    }

    /// Against bit sets: every pair of a sample of 16-bit sets.
    #[test]
    fn agrees_with_bit_sets() {
        let samples: Vec<u16> = (0..200u32).map(|i| (i.wrapping_mul(2654435761) >> 13) as u16).collect();
        for &a in &samples {
            for &b in &samples {
                let (ra, rb) = (from_bits(a), from_bits(b));
                assert_eq!(ra.union(&rb), from_bits(a | b));
                assert_eq!(ra.intersection(&rb), from_bits(a & b));
                assert_eq!(ra.difference(&rb), from_bits(a & !b));
                assert_eq!(ra.overlaps(&rb), a & b != 0);
                assert_eq!(ra.len(), u64::from(a.count_ones()));
                assert!((0..16).all(|bit| ra.contains(bit) == (a & (1 << bit) != 0)));
            }
        }
    }
}
