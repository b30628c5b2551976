//! A value as a strided window onto a buffer. Layout ops (transpose, broadcast, slice, reverse, most
//! reshapes, bitcast) only make new views; whoever needs rows without gaps asks [`View::is_dense`].
//! Offsets and strides count elements, not bytes. Nothing here touches memory.

use pando_base::{DType, define_id};
use smallvec::SmallVec;

define_id!(
    /// Storage of one plan: a parameter, a constant or a part of the arena.
    pub BufferId, "b"
);

pub type Sizes = SmallVec<[usize; 6]>;
pub type Strides = SmallVec<[isize; 6]>;

#[derive(Clone, Debug, PartialEq)]
pub struct View {
    pub buffer: BufferId,
    pub dtype: DType,
    pub offset: isize,
    pub sizes: Sizes,
    pub strides: Strides,
}

/// Row-major strides. Sizes of zero count as one, as in [`pando_base::Shape::strides`].
pub fn dense_strides(sizes: &[usize]) -> Strides {
    let mut strides: Strides = SmallVec::from_elem(1, sizes.len());
    for dim in (1..sizes.len()).rev() {
        strides[dim - 1] = strides[dim] * sizes[dim].max(1) as isize;
    }
    strides
}

/// The first buffer: for views that get theirs in a moment.
impl Default for BufferId {
    fn default() -> Self {
        pando_base::Id::from_index(0)
    }
}

impl View {
    pub fn dense(buffer: BufferId, dtype: DType, sizes: &[usize]) -> View {
        View { buffer, dtype, offset: 0, sizes: sizes.into(), strides: dense_strides(sizes) }
    }

    pub fn num_elements(&self) -> usize {
        self.sizes.iter().product()
    }

    pub fn num_bytes(&self) -> usize {
        self.num_elements() * self.dtype.size_bytes() as usize
    }

    /// Elements in row-major order without gaps.
    pub fn is_dense(&self) -> bool {
        let expected = dense_strides(&self.sizes);
        let along = |dim: usize| self.sizes[dim] <= 1 || self.strides[dim] == expected[dim];
        self.num_elements() == 0 || (0..self.sizes.len()).all(along)
    }

    pub fn transpose(&self, perm: &[usize]) -> View {
        let sizes = perm.iter().map(|&axis| self.sizes[axis]).collect();
        let strides = perm.iter().map(|&axis| self.strides[axis]).collect();
        View { sizes, strides, ..self.clone() }
    }

    pub fn broadcast(&self, sizes: &[usize], axes: &[usize]) -> View {
        let mut strides: Strides = SmallVec::from_elem(0, sizes.len());
        for (from, &axis) in axes.iter().enumerate() {
            strides[axis] = if self.sizes[from] == 1 { 0 } else { self.strides[from] };
        }
        View { sizes: sizes.into(), strides, ..self.clone() }
    }

    pub fn slice(&self, begin: &[u64], step: &[u64], sizes: &[usize]) -> View {
        let mut view = View { sizes: sizes.into(), ..self.clone() };
        if view.num_elements() == 0 {
            return view;
        }
        for axis in 0..sizes.len() {
            view.offset += begin[axis] as isize * self.strides[axis];
            // A step that is never taken may be absurdly large.
            view.strides[axis] = if sizes[axis] > 1 { self.strides[axis] * step[axis] as isize } else { 0 };
        }
        view
    }

    pub fn reverse(&self, axes: &[usize]) -> View {
        let mut view = self.clone();
        for &axis in axes.iter().filter(|&&axis| self.sizes[axis] > 0) {
            view.offset += (self.sizes[axis] as isize - 1) * self.strides[axis];
            view.strides[axis] = -self.strides[axis];
        }
        view
    }

    /// The same elements in the same order under other sizes, if strides can say so.
    pub fn reshape(&self, sizes: &[usize]) -> Option<View> {
        let mut view = View { sizes: sizes.into(), strides: dense_strides(sizes), ..self.clone() };
        if view.num_elements() <= 1 || self.is_dense() {
            return Some(view);
        }
        let (from_sizes, from_strides) = collapse(&self.sizes, &self.strides);
        let (mut from, mut left) = (0, from_sizes[0]);
        for (&size, stride) in sizes.iter().zip(&mut view.strides) {
            if size == 1 {
                *stride = 0;
                continue;
            }
            if left == 1 {
                from += 1;
                left = from_sizes[from];
            }
            if left % size != 0 {
                return None;
            }
            left /= size;
            *stride = from_strides[from] * left as isize;
        }
        Some(view)
    }

    /// Smallest and largest element position the view touches; `None` without elements.
    pub fn extent(&self) -> Option<(isize, isize)> {
        if self.num_elements() == 0 {
            return None;
        }
        let (mut low, mut high) = (self.offset, self.offset);
        for (&size, &stride) in self.sizes.iter().zip(&self.strides) {
            let reach = (size as isize - 1) * stride;
            low += reach.min(0);
            high += reach.max(0);
        }
        Some((low, high))
    }
}

/// Merges neighbouring dimensions that strides allow to be one; sizes of one disappear. At least one
/// dimension is left.
pub fn collapse(sizes: &[usize], strides: &[isize]) -> (Sizes, Strides) {
    let (mut out_sizes, mut out_strides) = (Sizes::new(), Strides::new());
    for (&size, &stride) in sizes.iter().zip(strides).filter(|&(&size, _)| size != 1) {
        match (out_sizes.last_mut(), out_strides.last_mut()) {
            (Some(last_size), Some(last_stride)) if *last_stride == stride * size as isize => {
                *last_size *= size;
                *last_stride = stride;
            }
            _ => {
                out_sizes.push(size);
                out_strides.push(stride);
            }
        }
    }
    if out_sizes.is_empty() {
        out_sizes.push(1);
        out_strides.push(1);
    }
    (out_sizes, out_strides)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pando_base::Id;

    fn dense(sizes: &[usize]) -> View {
        View::dense(BufferId::from_index(0), DType::F32, sizes)
    }

    #[test]
    fn reshapes_without_copies() {
        let view = dense(&[2, 3, 4]).transpose(&[1, 0, 2]);
        assert_eq!(view.strides.as_slice(), [4, 12, 1]);
        assert!(view.reshape(&[6, 4]).is_none());
        let split = view.reshape(&[3, 2, 2, 2]).unwrap();
        assert_eq!(split.strides.as_slice(), [4, 12, 2, 1]);
        let broadcast = dense(&[4]).broadcast(&[2, 3, 4], &[2]);
        assert_eq!(broadcast.reshape(&[6, 4]).unwrap().strides.as_slice(), [0, 1]);
        assert!(broadcast.reshape(&[24]).is_none());
    }

    #[test]
    fn slices_and_reverses() {
        let view = dense(&[5]).slice(&[1], &[2], &[2]).reverse(&[0]);
        assert_eq!((view.offset, view.strides[0], view.extent()), (3, -2, Some((1, 3))));
        assert!(!view.is_dense() && dense(&[1, 5]).is_dense());
    }
}
