//! Ready-made layouts and their normal form.

use pando_base::{DType, Shape};
use pando_tile::{Axis, Grid, Layout, Part, Region, Span};
use smallvec::SmallVec;

/// Units in which the innermost dimension is split: one 64-bit access, so that pieces stay aligned and
/// no word is shared by two tiles (sub-word exchange is impossible, poplar.md section 2.5).
const ACCESS_BYTES: u64 = 8;
/// What an exchange moves at least.
const WORD_BYTES: u64 = 4;

/// The numbers of parts worth trying for `units`: for each largest share, the fewest parts that give it.
pub fn part_counts(units: u64, most: u64) -> Vec<u64> {
    let mut counts = Vec::new();
    let mut parts = 1;
    while parts <= units.min(most) {
        counts.push(parts);
        let share = units.div_ceil(parts);
        if share == 1 {
            break;
        }
        // The fewest parts with a smaller largest share.
        parts = units.div_ceil(share - 1);
    }
    counts
}

/// A partition over up to `tiles` tiles with the smallest largest block; among equals the one with
/// fewest tiles. Blocks below `min_bytes` count as `min_bytes`. Rows stay whole if that makes the largest block
/// little larger: who reads rows then gets them in few messages.
pub fn balanced(shape: &Shape, dtype: DType, tiles: u32, min_bytes: u64) -> Layout {
    partition(shape, dtype, tiles, min_bytes, (5, 4))
}

/// As [`balanced`], with whole rows only if that costs hardly any memory.
pub fn evenly(shape: &Shape, dtype: DType, tiles: u32, min_bytes: u64) -> Layout {
    partition(shape, dtype, tiles, min_bytes, (65, 64))
}

/// A partition of a tensor that is transposed, in units of one access both along its own rows and along `column`, whose
/// neighbours were neighbours before.
pub fn transposable(shape: &Shape, dtype: DType, tiles: u32, min_bytes: u64, column: usize) -> Layout {
    let mut grains = grains(shape, dtype);
    grains[column] = *grains.last().expect("what is transposed has dimensions");
    let floor = (min_bytes / dtype.size_bytes()).max(1);
    split(shape, &grains, &smallest_blocks(shape, &grains, floor, tiles).2)
}

/// Whether two parts may share a word of what has this span along its rows.
pub fn splits_words(span: &Span, dtype: DType) -> bool {
    matches!(span, Span::Part(part) if !(part.grain * dtype.size_bytes()).is_multiple_of(WORD_BYTES))
}

/// `larger` says how much larger whole rows may make the largest block.
fn partition(shape: &Shape, dtype: DType, tiles: u32, min_bytes: u64, larger: (u64, u64)) -> Layout {
    let grains = grains(shape, dtype);
    let floor = (min_bytes / dtype.size_bytes()).max(1);
    let best = |grains: &[u64]| smallest_blocks(shape, grains, floor, tiles);
    let (block, _, parts) = best(&grains);
    let mut whole_rows = grains.clone();
    if let (Some(grain), Some(&size)) = (whole_rows.last_mut(), shape.last()) {
        *grain = size.max(1);
    }
    let rows = best(&whole_rows);
    let parts = if rows.0 * larger.1 <= block * larger.0 { rows.2 } else { parts };
    split(shape, &grains, &parts)
}

fn grains(shape: &Shape, dtype: DType) -> Vec<u64> {
    let mut grains = vec![1; shape.rank()];
    if let Some(last) = grains.last_mut() {
        *last = (ACCESS_BYTES / dtype.size_bytes()).max(1);
    }
    grains
}

/// The size of the largest block, the number of parts, and the parts by dimension.
fn smallest_blocks(shape: &[u64], grains: &[u64], floor: u64, tiles: u32) -> (u64, u64, Vec<u64>) {
    let mut best = (u64::MAX, u64::MAX, Vec::new());
    search(shape, grains, floor, 1, tiles.into(), &mut Vec::new(), &mut best);
    best
}

fn search(
    shape: &[u64],
    grains: &[u64],
    floor: u64,
    volume: u64,
    tiles: u64,
    parts: &mut Vec<u64>,
    best: &mut (u64, u64, Vec<u64>),
) {
    let dim = parts.len();
    let Some(&size) = shape.get(dim) else {
        let key = (volume.max(floor), parts.iter().product::<u64>());
        if key < (best.0, best.1) {
            *best = (key.0, key.1, parts.clone());
        }
        return;
    };
    // What the remaining dimensions cannot get below bounds the result.
    let rest: u64 = shape[dim + 1..].iter().product();
    for count in part_counts(size.div_ceil(grains[dim]), tiles) {
        let block =
            volume.saturating_mul((size.div_ceil(grains[dim]).div_ceil(count) * grains[dim]).min(size));
        if block.saturating_mul(rest).div_ceil(tiles / count).max(floor) > best.0 {
            continue;
        }
        parts.push(count);
        search(shape, grains, floor, block, tiles / count, parts, best);
        parts.pop();
    }
}

/// A partition whose blocks are contiguous in row-major order: leading dimensions one by one, then a
/// split of the next.
pub fn flat(shape: &Shape, dtype: DType, tiles: u32, min_bytes: u64) -> Layout {
    let mut grains = grains(shape, dtype);
    let mut parts = vec![1; shape.rank()];
    let bytes = shape.num_elements() * dtype.size_bytes();
    let mut left = u64::from(tiles).min(bytes.div_ceil(min_bytes.max(1))).max(1);
    for dim in 0..shape.rank() {
        parts[dim] = shape[dim].div_ceil(grains[dim]).min(left);
        if parts[dim] < shape[dim] {
            break;
        }
        left /= parts[dim];
        grains[dim] = 1;
    }
    split(shape, &grains, &parts)
}

fn split(shape: &Shape, grains: &[u64], parts: &[u64]) -> Layout {
    let extents: Vec<u32> = parts.iter().map(|&count| count as u32).collect();
    let spans = shape.iter().zip(grains).enumerate();
    let region = spans.map(|(dim, (&size, &grain))| Span::Part(Part::even(dim, size, grain))).collect();
    normalize(&Layout { grid: Grid::packed(0, &extents), region }, shape)
}

/// The normal form, in which equal layouts look equal: no axes with a single coordinate; axes in the order
/// of the dimensions they split, then copies by falling stride.
pub fn normalize(layout: &Layout, shape: &[u64]) -> Layout {
    let extent = |axis: usize| layout.grid.axes[axis].extent;
    let mut order: SmallVec<[usize; 4]> =
        layout.region.iter().filter_map(Span::axis).filter(|&axis| extent(axis) > 1).collect();
    let mut copies: SmallVec<[usize; 4]> =
        layout.copy_axes().into_iter().filter(|&axis| extent(axis) > 1).collect();
    copies.sort_by_key(|&axis| std::cmp::Reverse(layout.grid.axes[axis].stride));
    order.extend(copies);
    let axes: SmallVec<[Axis; 4]> = order.iter().map(|&axis| layout.grid.axes[axis]).collect();
    let spans = layout.region.iter().zip(shape);
    let region: Region = spans.map(|(span, &dim)| renumber(span, dim, &order)).collect();
    Layout { grid: Grid { base: layout.grid.base, axes }, region }
}

fn renumber(span: &Span, dim: u64, order: &[usize]) -> Span {
    let Span::Part(part) = span else { return *span };
    match order.iter().position(|&axis| axis == part.axis as usize) {
        Some(axis) => Span::Part(Part { axis: axis as u8, ..*part }),
        None => {
            let (begin, end) = part.bounds(0, 1, dim);
            Span::Fixed { begin, end }
        }
    }
}

/// The layout of a tensor whose dimension `i` is dimension `dims[i]` of one laid out so, on the same grid.
/// Dimensions of size 1 stand on every tile. Axes that no dimension uses hold copies.
pub fn project(layout: &Layout, shape: &[u64], dims: &[usize]) -> Layout {
    let region = dims
        .iter()
        .zip(shape)
        .map(|(&dim, &size)| if size == 1 { Span::full(1) } else { layout.region[dim] })
        .collect();
    normalize(&Layout { grid: layout.grid.clone(), region }, shape)
}

/// The same partition without its copies, on the tiles of copy 0.
pub fn without_copies(layout: &Layout, shape: &[u64]) -> Layout {
    let mut grid = layout.grid.clone();
    for axis in layout.copy_axes() {
        grid.axes[axis].extent = 1;
    }
    normalize(&Layout { grid, region: layout.region.clone() }, shape)
}

/// Whether every tile of one normalised layout has what another one gives it, so that nothing need move.
/// Says no where that takes more than a look at each dimension by itself.
pub fn holds(home: &Layout, wanted: &Layout, shape: &[u64]) -> bool {
    let inside = |(dim, (held, span)): (usize, (&Span, &Span))| {
        let along = |span: &Span| span.axis().map_or(1, |axis| home.grid.axes[axis].extent);
        let together = held.axis() == span.axis() || along(held) == 1 || along(span) == 1;
        together && {
            let axis = held.axis().or(span.axis());
            let mut coordinates: SmallVec<[u32; 4]> = SmallVec::from_elem(0, home.grid.axes.len());
            (0..axis.map_or(1, |axis| home.grid.axes[axis].extent)).all(|coordinate| {
                if let Some(axis) = axis {
                    coordinates[axis] = coordinate;
                }
                let bounds = |span: &Span| span.bounds(&home.grid, &coordinates, shape[dim]);
                let (held, wanted) = (bounds(held), bounds(span));
                wanted.0 >= wanted.1 || (held.0 <= wanted.0 && wanted.1 <= held.1)
            })
        }
    };
    home == wanted
        || holds_all(home, wanted, shape)
        || (home.grid == wanted.grid && home.region.iter().zip(&wanted.region).enumerate().all(inside))
}

/// Whether every tile from the first to the last has the whole tensor, and the wanted tiles are among them.
fn holds_all(home: &Layout, wanted: &Layout, shape: &[u64]) -> bool {
    let whole = home.region.iter().zip(shape).all(|(span, &size)| *span == Span::full(size));
    let (tiles, end) = (home.grid.len(), wanted.grid.end_tile());
    let is_dense = home.grid == Grid::packed(home.grid.base, &[tiles as u32]);
    whole && is_dense && wanted.grid.base >= home.grid.base && end <= u64::from(home.grid.base) + tiles
}

/// For each dimension of one shape the dimension of the other that it is, if they differ in dimensions of size 1
/// only; nothing for a dimension of size 1 that the other lacks.
pub fn unit_dims(from: &[u64], to: &[u64]) -> Option<SmallVec<[Option<usize>; 4]>> {
    let mut long = (0..from.len()).filter(|&dim| from[dim] != 1);
    let dims: SmallVec<[Option<usize>; 4]> = to
        .iter()
        .map(|&size| if size == 1 { None } else { long.next().filter(|&dim| from[dim] == size) })
        .collect();
    let matched = to.iter().zip(&dims).all(|(&size, dim)| (size == 1) == dim.is_none());
    (matched && long.next().is_none()).then_some(dims)
}

#[cfg(test)]
mod tests {
    #[test]
    fn unit_dimensions_come_and_go() {
        assert_eq!(unit_dims(&[4, 1, 8], &[4, 8]).unwrap().as_slice(), [Some(0), Some(2)]);
        assert_eq!(unit_dims(&[4, 8], &[1, 4, 8, 1]).unwrap().as_slice(), [None, Some(0), Some(1), None]);
        assert_eq!(unit_dims(&[1], &[]).unwrap().as_slice(), []);
        assert!(unit_dims(&[4, 8], &[8, 4]).is_none() && unit_dims(&[4, 8], &[4, 1]).is_none());
    }

    use super::*;

    #[test]
    fn part_counts_give_every_largest_share_once() {
        for units in 1..200u64 {
            let counts = part_counts(units, u64::MAX);
            let mut shares: Vec<u64> = (1..=units).map(|parts| units.div_ceil(parts)).collect();
            shares.dedup();
            assert_eq!(counts.iter().map(|&count| units.div_ceil(count)).collect::<Vec<_>>(), shares);
        }
    }

    #[test]
    fn layouts_that_hold_others() {
        let layout = |span| Layout { grid: Grid::packed(0, &[4]), region: Region::from_slice(&[span]) };
        let rows = layout(Span::Part(Part::even(0, 16, 4)));
        let window = |mul, lo, hi| layout(Span::Part(Part { mul, lo, hi, ..Part::even(0, 8, 1) }));
        // Outputs 0..8 in pairs: inputs 2y and 2y + 1 are there, 2y + 2 is not.
        assert!(holds(&rows, &window(2, 0, 2), &[16]) && holds(&rows, &window(2, 1, 2), &[16]));
        assert!(!holds(&rows, &window(2, 0, 3), &[16]) && !holds(&rows, &window(2, -1, 2), &[16]));
        assert!(!holds(&rows, &layout(Span::full(16)), &[16]));
        assert!(holds(&layout(Span::full(16)), &rows, &[16]));
        let other = Layout { grid: Grid::packed(1, &[4]), ..rows.clone() };
        assert!(!holds(&rows, &other, &[16]));
    }

    #[test]
    fn balanced_is_nearly_even() {
        let shape = Shape::from([256, 4096]);
        let layout = balanced(&shape, DType::F32, 1472, 128);
        // 1,048,576 elements on 1,472 tiles: 712.3 each at best.
        let largest = layout.grid.classes([(layout.region.as_slice(), &*shape)].into_iter());
        let largest = largest.iter().map(|c| layout.block(&shape, &c.representative()).volume()).max();
        assert!(largest.unwrap() <= 720, "{layout:?}");
        assert!(layout.is_partition(&shape) && layout.grid.is_injective());
        assert_eq!(balanced(&Shape::scalar(), DType::F32, 4, 128).grid.len(), 1);
        assert_eq!(balanced(&Shape::from([32]), DType::F32, 4, 128).grid.len(), 1);
        assert_eq!(balanced(&Shape::from([64]), DType::F32, 4, 128).grid.len(), 2);
    }

    #[test]
    fn flat_layouts_are_contiguous() {
        for shape in [[2, 4096, 3], [7, 5, 64], [1500, 2, 2], [1, 1, 9]] {
            let shape = Shape::from(shape);
            let layout = flat(&shape, DType::F32, 64, 4);
            assert!(pando_tile::message::is_flat(&layout, &shape), "{layout:?}");
        }
    }
}
