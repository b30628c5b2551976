//! Copies a box of elements between two dense blocks, each walked with its own steps. All movement of
//! values (operands, messages, inputs, outputs) is this one loop.

use pando_tile::Block;
use smallvec::SmallVec;

/// Where a box of elements lies in a dense block: the first element, and the distance between neighbours
/// along each dimension of the box, in elements.
#[derive(Clone, Debug)]
pub struct Walk {
    pub first: i64,
    pub steps: SmallVec<[i64; 4]>,
}

impl Walk {
    /// A box that is the whole of a dense block.
    pub fn dense(lens: &[u64]) -> Self {
        Walk { first: 0, steps: row_major(lens) }
    }

    /// `inner` within a dense block that holds `outer`; `outer` contains `inner`.
    pub fn within(outer: &Block, inner: &Block) -> Self {
        let steps = row_major(&outer.lens());
        let offsets = inner.0.iter().zip(&outer.0).map(|(inner, outer)| inner.0 as i64 - outer.0 as i64);
        let first = offsets.zip(&steps).map(|(offset, step)| offset * step).sum();
        Walk { first, steps }
    }
}

/// Distances between neighbours of a dense block in row-major order.
pub fn row_major(lens: &[u64]) -> SmallVec<[i64; 4]> {
    let mut steps: SmallVec<[i64; 4]> = SmallVec::from_elem(1, lens.len());
    for dim in (1..lens.len()).rev() {
        steps[dim - 1] = steps[dim] * lens[dim] as i64;
    }
    steps
}

/// Copies the box of size `lens`; elements have `size` bytes. Both walks stay within their slices.
pub fn copy(dst: &mut [u8], to: &Walk, src: &[u8], from: &Walk, lens: &[u64], size: usize) {
    if !lens.contains(&0) {
        copy_from(dst, to, src, from, lens, size, (0, to.first, from.first));
    }
}

/// The part of the copy from dimension `dim` on, at the given positions.
fn copy_from(
    dst: &mut [u8],
    to: &Walk,
    src: &[u8],
    from: &Walk,
    lens: &[u64],
    size: usize,
    (dim, dst_at, src_at): (usize, i64, i64),
) {
    let element = |at: i64, count: usize| at as usize * size..(at as usize + count) * size;
    if dim == lens.len() {
        dst[element(dst_at, 1)].copy_from_slice(&src[element(src_at, 1)]);
        return;
    }
    let (dst_step, src_step) = (to.steps[dim], from.steps[dim]);
    if dim + 1 == lens.len() && dst_step == 1 && src_step == 1 {
        let count = lens[dim] as usize;
        dst[element(dst_at, count)].copy_from_slice(&src[element(src_at, count)]);
        return;
    }
    for index in 0..lens[dim] as i64 {
        let at = (dim + 1, dst_at + index * dst_step, src_at + index * src_step);
        copy_from(dst, to, src, from, lens, size, at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_are_found_reversed_and_transposed() {
        // Rows 1..3 and columns 1..3 of a 3 x 4 block that stands at [10, 20].
        let outer = Block::new(&[(10, 13), (20, 24)]);
        let inner = Block::new(&[(11, 13), (21, 23)]);
        let src: Vec<u8> = (0..12).collect();
        let mut dst = [0; 4];
        let from = Walk::within(&outer, &inner);
        copy(&mut dst, &Walk::dense(&[2, 2]), &src, &from, &[2, 2], 1);
        assert_eq!(dst, [5, 6, 9, 10]);
        let transposed = Walk { first: 0, steps: SmallVec::from_slice(&[1, 2]) };
        copy(&mut dst, &transposed, &src, &from, &[2, 2], 1);
        assert_eq!(dst, [5, 9, 6, 10]);
        let reversed = Walk { first: 3, steps: SmallVec::from_slice(&[-2, -1]) };
        copy(&mut dst, &reversed, &src, &from, &[2, 2], 1);
        assert_eq!(dst, [10, 9, 6, 5]);
    }

    #[test]
    fn scalars_and_nothing() {
        let mut dst = [0; 2];
        copy(&mut dst, &Walk::dense(&[]), &[7, 8], &Walk::dense(&[]), &[], 2);
        assert_eq!(dst, [7, 8]);
        copy(&mut dst, &Walk::dense(&[0]), &[], &Walk::dense(&[0]), &[0], 2);
        assert_eq!(dst, [7, 8]);
    }
}
