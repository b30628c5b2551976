//! The checkers' rules once more, straight from their definitions: element by element, tile by tile. Slow
//! and obvious; the checkers must agree on every program, sound or broken.

use crate::oracle::{indices, pairs, position};
use pando_base::Id;
use pando_tile::validate::operand_block;
use pando_tile::{Access, Block, ComputeSet, Exchange, Program, VarId};
use std::collections::{BTreeMap, BTreeSet};

/// What each tile holds.
type Held = BTreeMap<(VarId, u32), Block>;

fn held(program: &Program) -> Held {
    let mut held = Held::new();
    for (id, var) in program.vars.iter() {
        for coordinates in var.home.grid.coordinates() {
            held.insert((id, var.home.grid.tile(&coordinates)), var.home.block(&var.shape, &coordinates));
        }
    }
    held
}

/// Whether every vertex touches only variables that its tile has a block of, and only elements of that block.
pub fn is_local(program: &Program) -> bool {
    let held = held(program);
    program.compute_sets.values().flat_map(|set| &set.groups).all(|group| {
        group.grid.coordinates().all(|coordinates| {
            let tile = group.grid.tile(&coordinates);
            group.operands.iter().all(|operand| {
                let wanted = operand_block(program, group, operand, &coordinates);
                held.get(&(operand.var, tile)).is_some_and(|block| block.contains(&wanted))
            })
        })
    })
}

/// Whether no vertex touches what another one writes, and none writes part of what itself reads.
pub fn is_free_of_races(program: &Program) -> bool {
    program.compute_sets.values().all(|set| !set_races(program, set))
}

/// A vertex's use of an element: its number, whether it writes, and its block.
type Use = (usize, bool, Block);

fn set_races(program: &Program, set: &ComputeSet) -> bool {
    let mut uses: BTreeMap<(VarId, u32, Vec<u64>), Vec<Use>> = BTreeMap::new();
    let mut vertex = 0;
    for group in &set.groups {
        for coordinates in group.grid.coordinates() {
            vertex += 1;
            for (operand, access) in group.operands.iter().zip(group.kernel.signature()) {
                let block = operand_block(program, group, operand, &coordinates);
                for index in indices(&block) {
                    let key = (operand.var, group.grid.tile(&coordinates), index);
                    uses.entry(key).or_default().push((vertex, *access == Access::Out, block.clone()));
                }
            }
        }
    }
    let meets = |a: &Use, b: &Use| (a.1 || b.1) && (a.0 != b.0 || a.2 != b.2);
    uses.values()
        .any(|uses| uses.iter().enumerate().any(|(at, a)| uses[at + 1..].iter().any(|b| meets(a, b))))
}

/// Whether exchanges read what exists, write nothing twice and nothing that they read.
pub fn are_exchanges_sound(program: &Program) -> bool {
    let held = held(program);
    program.exchanges.values().all(|exchange| is_sound(program, exchange, &held))
}

fn is_sound(program: &Program, exchange: &Exchange, held: &Held) -> bool {
    let sources: BTreeSet<VarId> = exchange.copies.iter().map(|copy| copy.src).collect();
    let mut written: BTreeSet<(VarId, u32, usize)> = BTreeSet::new();
    for copy in &exchange.copies {
        let src = &program.vars[copy.src];
        let owned = positions_of(held, copy.src, &src.shape);
        for &dst in &copy.dsts {
            let shape = &program.vars[dst].shape;
            let pairs = pairs(&copy.map, &src.shape, shape);
            for (&(var, tile), block) in held.iter().filter(|((var, _), _)| *var == dst) {
                let here: BTreeSet<usize> = indices(block).map(|index| position(shape, &index)).collect();
                for &(from, to) in pairs.iter().filter(|(_, to)| here.contains(to)) {
                    if !owned.contains(&from) || !written.insert((var, tile, to)) {
                        return false;
                    }
                }
            }
            if sources.contains(&dst) {
                return false;
            }
        }
    }
    true
}

/// Positions of the elements that any tile holds.
fn positions_of(held: &Held, var: VarId, shape: &[u64]) -> BTreeSet<usize> {
    let blocks = held.iter().filter(|((v, _), _)| v.index() == var.index()).map(|(_, block)| block);
    blocks.flat_map(|block| indices(block).map(|index| position(shape, &index)).collect::<Vec<_>>()).collect()
}
