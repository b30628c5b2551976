//! Vertices of one compute set run at once: what one writes, no other may touch on the same tile.
//!
//! Two groups that meet on a tile are compared coordinate by coordinate unless they use different
//! variables. Within a group, an output whose every on-tile axis is a plain split cannot race with itself.

use crate::block::Block;
use crate::kernel::Access;
use crate::program::{ComputeSet, Group, Program, VarId};
use crate::span::Span;
use crate::validate::operand_block;
use rustc_hash::FxHashMap;

pub fn check_races(program: &Program) -> Vec<String> {
    let mut findings = Vec::new();
    for (id, set) in program.compute_sets.iter() {
        for var in contested(set) {
            if let Some(tile) = first_race(program, set, var) {
                let name = &program.vars[var].name;
                findings.push(format!(
                    "race: two vertices of {id} \"{}\" meet in %{name} on tile {tile}",
                    set.name
                ));
            }
        }
    }
    findings
}

/// Variables that need the close look.
fn contested(set: &ComputeSet) -> Vec<VarId> {
    let mut users: FxHashMap<VarId, (usize, bool, bool)> = FxHashMap::default();
    for group in &set.groups {
        for (operand, access) in group.operands.iter().zip(group.kernel.signature()) {
            let (count, written, safe) = users.entry(operand.var).or_insert((0, false, true));
            *count += 1;
            if *access == Access::Out {
                *written = true;
                *safe &= disjoint_on_tile(group, &operand.region);
            }
        }
    }
    let mut vars: Vec<VarId> = users
        .into_iter()
        .filter(|&(_, (count, written, safe))| written && (count > 1 || !safe))
        .map(|(v, _)| v)
        .collect();
    vars.sort_unstable();
    vars
}

/// Whether vertices of the group that share a tile write disjoint blocks, by form alone.
fn disjoint_on_tile(group: &Group, region: &[Span]) -> bool {
    let splits = |axis: usize| {
        region
            .iter()
            .any(|span| matches!(span, Span::Part(part) if part.axis as usize == axis && part.is_partition()))
    };
    let stays = group.grid.axes.iter().enumerate().filter(|(_, axis)| axis.stride == 0 && axis.extent > 1);
    let moving = crate::grid::Grid {
        base: group.grid.base,
        axes: group.grid.axes.iter().copied().filter(|axis| axis.stride > 0).collect(),
    };
    moving.is_injective() && stays.map(|(axis, _)| axis).all(splits)
}

fn first_race(program: &Program, set: &ComputeSet, var: VarId) -> Option<u32> {
    // Per tile, the blocks touched, by vertex.
    let mut touched: FxHashMap<u32, Vec<(usize, bool, Block)>> = FxHashMap::default();
    let mut vertex = 0;
    for group in &set.groups {
        let operands: Vec<(usize, Access)> = group
            .operands
            .iter()
            .zip(group.kernel.signature())
            .enumerate()
            .filter(|(_, (operand, _))| operand.var == var)
            .map(|(index, (_, access))| (index, *access))
            .collect();
        if operands.is_empty() {
            continue;
        }
        for coordinates in group.grid.coordinates() {
            vertex += 1;
            for &(index, access) in &operands {
                let block = operand_block(program, group, &group.operands[index], &coordinates);
                let entries = touched.entry(group.grid.tile(&coordinates)).or_default();
                entries.push((vertex, access == Access::Out, block));
            }
        }
    }
    let mut tiles: Vec<u32> = touched
        .into_iter()
        .filter(|(_, entries)| {
            entries
                .iter()
                .enumerate()
                .any(|(i, a)| entries[i + 1..].iter().any(|b| (a.1 || b.1) && overlap_races(a, b)))
        })
        .map(|(tile, _)| tile)
        .collect();
    tiles.sort_unstable();
    tiles.first().copied()
}

/// A vertex may write what itself reads, if it is the very same block (element by element in place).
fn overlap_races(a: &(usize, bool, Block), b: &(usize, bool, Block)) -> bool {
    a.2.overlaps(&b.2) && (a.0 != b.0 || a.2 != b.2 || (a.1 && b.1))
}
