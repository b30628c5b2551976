//! The explicit form of a copy: which tile sends which elements to which tiles.
//!
//! This is the definition that the closed forms in [`crate::traffic`] are judged by, what values are
//! moved by, and what [`crate::expand()`] writes down. Its cost follows the number of messages.

use crate::block::Block;
use crate::grid::Coordinates;
use crate::program::{Copy, CopyMap, Layout, Program, SrcIndex, Var, VarId};
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// One message: sent once, received by every destination, which all hold the same block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub src_tile: u32,
    pub dsts: SmallVec<[(VarId, u32); 2]>,
    pub map: CopyMap,
    pub elements: u64,
}

/// The tiles of a layout by what they hold: for each distinct block its tiles, copy 0 first.
pub struct Holders {
    pub block: Block,
    pub tiles: SmallVec<[u32; 2]>,
}

/// Distinct blocks of a variable in row-major order of coordinates, with their holders.
pub fn holders(var: &Var) -> Vec<Holders> {
    let copies = var.home.copy_axes();
    let mut by_part: BTreeMap<Coordinates, Holders> = BTreeMap::new();
    for coordinates in var.home.grid.coordinates() {
        let mut part = coordinates.clone();
        copies.iter().for_each(|&axis| part[axis] = 0);
        let tile = var.home.grid.tile(&coordinates);
        by_part
            .entry(part)
            .or_insert_with(|| Holders {
                block: var.home.block(&var.shape, &coordinates),
                tiles: SmallVec::new(),
            })
            .tiles
            .push(tile);
    }
    by_part.into_values().collect()
}

/// All messages of a copy.
pub fn messages(program: &Program, copy: &Copy) -> Vec<Message> {
    let sources = holders(&program.vars[copy.src]);
    let mut out = Vec::new();
    if copy.dsts.len() > 1 {
        // A multicast to single-tile variables: one message for each distinct source tile, as one.
        let dsts = copy.dsts.iter().map(|&dst| (dst, program.vars[dst].home.grid.base)).collect();
        let block = &holders(&program.vars[copy.dsts[0]])[0].block;
        push_messages(program, copy, sources.iter(), block, &dsts, &mut out);
        return out;
    }
    let nearby = Nearby::new(&program.vars[copy.src], &sources, &copy.map);
    for holder in holders(&program.vars[copy.dsts[0]]) {
        let dsts = holder.tiles.iter().map(|&tile| (copy.dsts[0], tile)).collect();
        let sources = nearby.sources(&program.vars[copy.dsts[0]], &holder.block);
        push_messages(program, copy, sources.into_iter(), &holder.block, &dsts, &mut out);
    }
    out
}

/// Which sources can give something to a destination. Of a flat copy those at the same positions, which are found without
/// a look at all others.
struct Nearby<'a> {
    sources: &'a [Holders],
    flat: Option<Positions>,
}

/// Where the sources of a flat copy lie.
struct Positions {
    /// First position, end and index of each source, in order of position.
    intervals: Vec<(u64, u64, usize)>,
    src_begin: u64,
    dst_begin: u64,
}

impl<'a> Nearby<'a> {
    fn new(src: &Var, sources: &'a [Holders], map: &CopyMap) -> Self {
        let CopyMap::Flat { src_begin, dst_begin, .. } = *map else { return Nearby { sources, flat: None } };
        let interval = |(index, source): (usize, &Holders)| {
            let (begin, end) = flat_interval(&src.shape, &source.block);
            (begin, end, index)
        };
        let mut intervals: Vec<(u64, u64, usize)> = sources.iter().enumerate().map(interval).collect();
        intervals.sort_unstable();
        Nearby { sources, flat: Some(Positions { intervals, src_begin, dst_begin }) }
    }

    fn sources(&self, dst: &Var, block: &Block) -> Vec<&'a Holders> {
        let Some(Positions { intervals, src_begin, dst_begin }) = &self.flat else {
            return self.sources.iter().collect();
        };
        let (begin, end) = flat_interval(&dst.shape, block);
        let at = |position: u64| position.saturating_sub(*dst_begin) + src_begin;
        // Blocks of a source are disjoint, so their ends are in order, too.
        let first = intervals.partition_point(|&(_, until, _)| until <= at(begin));
        let met = intervals[first..].iter().take_while(|&&(from, ..)| from < at(end));
        let mut indices: Vec<usize> = met.map(|&(_, _, index)| index).collect();
        indices.sort_unstable();
        indices.into_iter().map(|index| &self.sources[index]).collect()
    }
}

fn push_messages<'a>(
    program: &Program,
    copy: &Copy,
    sources: impl Iterator<Item = &'a Holders>,
    dst_block: &Block,
    dsts: &SmallVec<[(VarId, u32); 2]>,
    out: &mut Vec<Message>,
) {
    let (src, dst) = (&program.vars[copy.src], &program.vars[copy.dsts[0]]);
    for source in sources {
        if let Some((map, elements)) = restrict(&copy.map, src, dst, &source.block, dst_block) {
            out.push(Message { src_tile: source.tiles[0], dsts: dsts.clone(), map, elements });
        }
    }
}

/// The part of a copy between one source block and one destination block.
fn restrict(
    map: &CopyMap,
    src: &Var,
    dst: &Var,
    src_block: &Block,
    dst_block: &Block,
) -> Option<(CopyMap, u64)> {
    match map {
        CopyMap::Affine { region, dims } => {
            let wanted = region.intersect(dst_block);
            let block = preimage(src_block, dims, &wanted)?;
            let elements = block.volume();
            (elements > 0).then(|| (CopyMap::Affine { region: block, dims: dims.clone() }, elements))
        }
        CopyMap::Flat { src_begin, dst_begin, len } => {
            let (s0, s1) = flat_interval(&src.shape, src_block);
            let (d0, d1) = flat_interval(&dst.shape, dst_block);
            // In positions of the copy: [0, len).
            let begin = s0.saturating_sub(*src_begin).max(d0.saturating_sub(*dst_begin));
            let end = s1.saturating_sub(*src_begin).min(d1.saturating_sub(*dst_begin)).min(*len);
            let map = CopyMap::Flat {
                src_begin: src_begin + begin,
                dst_begin: dst_begin + begin,
                len: end.max(begin) - begin,
            };
            (begin < end).then(|| (map, end - begin))
        }
    }
}

/// The destination indices within `wanted` whose sources lie in `src_block`; `None` if a fixed index
/// misses it.
fn preimage(src_block: &Block, dims: &[SrcIndex], wanted: &Block) -> Option<Block> {
    let mut block = wanted.clone();
    for (index, &(begin, end)) in dims.iter().zip(&src_block.0) {
        match *index {
            SrcIndex::At(at) if (begin..end).contains(&at) => {}
            SrcIndex::At(_) => return None,
            SrcIndex::Dst { dim, step, offset } => {
                let bounds = &mut block.0[dim as usize];
                let (low, high) = preimage_interval(begin, end, step, offset);
                bounds.0 = bounds.0.max(low);
                bounds.1 = bounds.1.min(high).max(bounds.0);
            }
        }
    }
    Some(block)
}

/// The non-negative `d` with `begin <= step·d + offset < end`.
pub fn preimage_interval(begin: u64, end: u64, step: i64, offset: i64) -> (u64, u64) {
    let (begin, end, step, offset) =
        (i128::from(begin), i128::from(end), i128::from(step), i128::from(offset));
    let ceil_div = |a: i128, b: i128| a.div_euclid(b) + i128::from(a.rem_euclid(b) != 0);
    let (low, high) = if step > 0 {
        (ceil_div(begin - offset, step), ceil_div(end - offset, step))
    } else {
        // begin <= offset - s·d < end  <=>  (offset - end, offset - begin] / s
        let s = -step;
        ((offset - end).div_euclid(s) + 1, (offset - begin).div_euclid(s) + 1)
    };
    (low.max(0) as u64, high.max(0) as u64)
}

/// The row-major positions of a block that is contiguous in that order.
pub fn flat_interval(shape: &[u64], block: &Block) -> (u64, u64) {
    if block.is_empty() {
        return (0, 0);
    }
    let position = |index: &mut dyn Iterator<Item = u64>| {
        shape.iter().zip(index).fold(0, |sum, (&dim, i)| sum * dim + i)
    };
    let first = position(&mut block.0.iter().map(|&(begin, _)| begin));
    let last = position(&mut block.0.iter().map(|&(_, end)| end - 1));
    (first, last + 1)
}

/// Whether every block of a layout is contiguous in row-major order.
pub fn is_flat(layout: &Layout, shape: &[u64]) -> bool {
    let classes = layout.grid.classes([(layout.region.as_slice(), shape)].into_iter());
    classes.iter().all(|class| {
        let block = layout.block(shape, &class.representative());
        let (begin, end) = flat_interval(shape, &block);
        end - begin == block.volume()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preimages_by_definition() {
        for step in [-3i64, -1, 1, 2, 5] {
            for offset in -4..12 {
                for begin in 0..6u64 {
                    for end in begin..8 {
                        let expected: Vec<u64> = (0..20u64)
                            .filter(|&d| {
                                let at = step * d as i64 + offset;
                                (begin as i64..end as i64).contains(&at)
                            })
                            .collect();
                        let (low, high) = preimage_interval(begin, end, step, offset);
                        assert_eq!(
                            (low..high.min(20)).collect::<Vec<_>>(),
                            expected,
                            "{begin}..{end} {step} {offset}"
                        );
                    }
                }
            }
        }
    }
}
