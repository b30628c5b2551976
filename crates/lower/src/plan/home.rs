//! Operands of products that lie somewhere already, such as weights that several products of a training step share, or
//! what another product has computed: a split that wants exactly these blocks, on these tiles, moves nothing of them.

use super::matmul::{COLUMNS, DotDims, ROWS};
use super::ways::{Dim, Way};
use crate::layouts::normalize;
use pando_tile::{Axis, Layout, Span};
use smallvec::SmallVec;

/// How an operand lies, as splits of a product see it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Home {
    /// The operand: 0 gives rows, 1 the unit's weights.
    pub side: usize,
    base: u32,
    /// For each role that the operand has, by the role's dimensions: parts and units, and the axis of the tiles.
    roles: [Option<SmallVec<[Spread; 2]>>; 4],
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Spread {
    grain: u64,
    axis: Axis,
}

impl Home {
    /// Nothing if tiles have copies, or blocks are not the parts of an even split.
    pub fn of(dims: &DotDims, side: usize, layout: &Layout, shape: &[u64]) -> Option<Home> {
        let layout = normalize(layout, shape);
        if layout.copies() > 1 || !layout.is_partition(shape) {
            return None;
        }
        let spread = |dim: usize| match layout.region[dim] {
            Span::Part(part) => Spread { grain: part.grain, axis: layout.grid.axes[usize::from(part.axis)] },
            Span::Fixed { .. } => Spread { grain: 1, axis: Axis { extent: 1, stride: 1 } },
        };
        let of_pairs = |pairs: &[(usize, usize)]| {
            Some(pairs.iter().map(|pair| spread(if side == 0 { pair.0 } else { pair.1 })).collect())
        };
        let free = |dims: &[usize]| Some(dims.iter().map(|&dim| spread(dim)).collect());
        let mut roles = [of_pairs(&dims.contract), of_pairs(&dims.batch), None, None];
        if side == 0 {
            roles[ROWS] = free(&dims.lhs_free);
        } else {
            roles[COLUMNS] = free(&dims.rhs_free);
        }
        Some(Home { side, base: layout.grid.base, roles })
    }

    /// Puts the operand's way to divide a role among those worth trying; whether that can be.
    pub fn join(&self, role: usize, dims: &[Dim], ways: &mut Vec<Way>) -> bool {
        let Some(spreads) = &self.roles[role] else { return true };
        let same_parts = |(dim, spread): (&Dim, &Spread)| {
            let parts = u64::from(spread.axis.extent);
            let even = |grain: u64| dim.size.is_multiple_of(parts * grain);
            parts == 1 || spread.grain == dim.grain || (even(spread.grain) && even(dim.grain))
        };
        if !dims.iter().zip(spreads).all(same_parts) {
            return false;
        }
        let parts: SmallVec<[u64; 4]> = spreads.iter().map(|spread| spread.axis.extent.into()).collect();
        let own = Way::new(dims, parts);
        let at = ways.partition_point(|way| way.choice.parts < own.choice.parts);
        let replaces = ways.get(at).is_some_and(|way| way.choice.parts == own.choice.parts);
        let after = at + usize::from(replaces);
        // Blocks have to get smaller with every way.
        let fits = at.checked_sub(1).is_none_or(|before| ways[before].choice.block > own.choice.block)
            && ways.get(after).is_none_or(|next| next.choice.block < own.choice.block);
        if fits {
            ways.splice(at..after, [own]);
        }
        fits
    }

    /// Whether a split into so many parts leaves the operand where it is.
    pub fn stays(&self, parts: &[u64; 4]) -> bool {
        (0..4).all(|role| parts[role] == self.parts(role))
    }

    /// Parts that a role has if the operand stays.
    pub fn parts(&self, role: usize) -> u64 {
        let spreads = self.roles[role].as_ref();
        spreads.map_or(1, |spreads| spreads.iter().map(|spread| u64::from(spread.axis.extent)).product())
    }

    pub fn base(&self) -> u32 {
        self.base
    }

    /// The axis along which a role's dimension is spread, counted among the role's dimensions.
    pub fn axis(&self, role: usize, at: usize) -> Axis {
        let spreads = self.roles[role].as_ref();
        spreads
            .and_then(|spreads| spreads.get(at))
            .map_or(Axis { extent: 1, stride: 1 }, |spread| spread.axis)
    }
}
