//! Sizes of a dense tensor, with arithmetic that cannot overflow silently.

use smallvec::SmallVec;
use std::fmt;
use std::ops::{Deref, DerefMut};

/// The sizes of a tensor's dimensions, outermost first. A scalar has none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Shape(SmallVec<[u64; 6]>);

impl Shape {
    pub fn scalar() -> Self {
        Shape::default()
    }

    pub fn new(dims: &[u64]) -> Self {
        Shape(SmallVec::from_slice(dims))
    }

    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// Number of elements, or `None` beyond 2^63.
    pub fn checked_num_elements(&self) -> Option<u64> {
        if self.0.contains(&0) {
            return Some(0);
        }
        self.0
            .iter()
            .try_fold(1u64, |product, &dim| product.checked_mul(dim))
            .filter(|&product| product < 1 << 63)
    }

    /// Number of elements of a shape that a validator has accepted.
    pub fn num_elements(&self) -> u64 {
        self.checked_num_elements().expect("a validated shape has fewer than 2^63 elements")
    }

    /// Row-major strides in elements.
    pub fn strides(&self) -> SmallVec<[u64; 6]> {
        let mut strides: SmallVec<[u64; 6]> = SmallVec::from_elem(1, self.rank());
        for dim in (1..self.rank()).rev() {
            strides[dim - 1] = strides[dim] * self.0[dim].max(1);
        }
        strides
    }

    /// All index tuples in row-major order.
    pub fn indices(&self) -> Indices {
        Indices {
            shape: self.clone(),
            next: (!self.0.contains(&0)).then(|| SmallVec::from_elem(0, self.rank())),
        }
    }
}

impl Deref for Shape {
    type Target = [u64];
    fn deref(&self) -> &[u64] {
        &self.0
    }
}

impl DerefMut for Shape {
    fn deref_mut(&mut self) -> &mut [u64] {
        &mut self.0
    }
}

impl FromIterator<u64> for Shape {
    fn from_iter<It: IntoIterator<Item = u64>>(dims: It) -> Self {
        Shape(dims.into_iter().collect())
    }
}

impl From<Vec<u64>> for Shape {
    fn from(dims: Vec<u64>) -> Self {
        Shape(SmallVec::from_vec(dims))
    }
}

impl<const N: usize> From<[u64; N]> for Shape {
    fn from(dims: [u64; N]) -> Self {
        Shape(SmallVec::from_slice(&dims))
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dims: Vec<String> = self.0.iter().map(u64::to_string).collect();
        write!(f, "[{}]", dims.join(","))
    }
}

/// Iterator over a shape's index tuples, last dimension fastest.
pub struct Indices {
    shape: Shape,
    next: Option<SmallVec<[u64; 6]>>,
}

impl Iterator for Indices {
    type Item = SmallVec<[u64; 6]>;

    fn next(&mut self) -> Option<Self::Item> {
        let current = self.next.take()?;
        let mut index = current.clone();
        for dim in (0..index.len()).rev() {
            index[dim] += 1;
            if index[dim] < self.shape[dim] {
                self.next = Some(index);
                break;
            }
            index[dim] = 0;
        }
        Some(current)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_strides() {
        let shape = Shape::from([2, 3, 4]);
        assert_eq!(shape.num_elements(), 24);
        assert_eq!(shape.strides().as_slice(), [12, 4, 1]);
        assert_eq!(Shape::scalar().num_elements(), 1);
        assert_eq!(Shape::from([0, u64::MAX, u64::MAX]).checked_num_elements(), Some(0));
        assert_eq!(Shape::from([u64::MAX, 2]).checked_num_elements(), None);
    }

    #[test]
    fn indices_are_row_major() {
        let indices: Vec<Vec<u64>> = Shape::from([2, 2]).indices().map(|i| i.to_vec()).collect();
        assert_eq!(indices, [[0, 0], [0, 1], [1, 0], [1, 1]]);
        assert_eq!(Shape::scalar().indices().count(), 1);
        assert_eq!(Shape::from([3, 0]).indices().count(), 0);
    }
}
