//! Placement: one address for every variable, the same on all tiles that hold it, so that two variables
//! share bytes only if they are never live at once or never on one tile.
//!
//! Fixed memory (code, vertex state, exchange code, stacks) comes first, since code must lie in the
//! executable region at the bottom. Then constants, largest first, then everything else by liveness, largest
//! first, each at the lowest address that is free of what it meets.

use pando_machine::Machine;
use pando_tile::liveness::{Liveness, liveness};
use pando_tile::memory::{FixedMemory, fixed_memory};
use pando_tile::traffic::Traffic;
use pando_tile::{Placement, Program, VarId};

/// Alignment of variables: the widest access (hardware.md section 2, ld128).
const ALIGN_BYTES: u64 = 16;

pub struct Placed {
    pub placement: Placement,
    pub live: Liveness,
    pub fixed: FixedMemory,
    /// First address after the fixed memory of the fullest tile.
    pub base_bytes: u64,
}

struct Item {
    var: VarId,
    bytes: u64,
    /// Tiles `[first, end)` that may hold it.
    tiles: (u64, u64),
    live: (u32, u32),
    constant: bool,
}

/// Places all variables that are used. O(variables²) at worst; independent of the number of tiles.
pub fn place(program: &Program, machine: &Machine) -> Placed {
    let live = liveness(program);
    let mut items: Vec<Item> = program
        .vars
        .iter()
        .filter_map(|(id, var)| {
            Some(Item {
                var: id,
                bytes: var.max_tile_bytes().next_multiple_of(ALIGN_BYTES),
                tiles: (var.home.grid.base.into(), var.home.grid.end_tile()),
                live: live.ranges[id]?,
                constant: var.role.always_lives(),
            })
        })
        .collect();
    items.sort_by_key(|item| (!item.constant, std::cmp::Reverse(item.bytes), item.var));
    let mut placement = Placement::default();
    let mut placed: Vec<(u64, Item)> = Vec::new();
    for item in items {
        let offset = lowest_free(&placed, &item);
        placement.offset_bytes[item.var] = offset;
        placed.push((offset, item));
    }
    // How much code there is follows from which addresses are equal, so it is known now.
    let traffic = Traffic::new(program, &machine.chip);
    let fixed = fixed_memory(program, &machine.chip, &traffic, Some(&placement));
    let base_bytes = (fixed.total().max().0.max(0) as u64).next_multiple_of(ALIGN_BYTES);
    placed.iter().for_each(|(_, item)| placement.offset_bytes[item.var] += base_bytes);
    Placed { placement, live, fixed, base_bytes }
}

/// The lowest offset from the first address for variables.
fn lowest_free(placed: &[(u64, Item)], item: &Item) -> u64 {
    let mut taken: Vec<(u64, u64)> = placed
        .iter()
        .filter(|(_, other)| meets(item, other))
        .map(|&(offset, ref other)| (offset, offset + other.bytes))
        .collect();
    taken.sort_unstable();
    let mut at = 0;
    for (begin, end) in taken {
        if at + item.bytes <= begin {
            break;
        }
        at = at.max(end);
    }
    at
}

/// Whether two variables may hold data at the same time on one tile.
fn meets(a: &Item, b: &Item) -> bool {
    let at_once = a.live.0 <= b.live.1 && b.live.0 <= a.live.1;
    at_once && a.tiles.0 < b.tiles.1 && b.tiles.0 < a.tiles.1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Options, compile};

    /// The code of a deep network's exchanges is that of one of its layers, since the layers' values lie at two
    /// alternating addresses; without addresses every layer's is counted.
    #[test]
    fn repeated_layers_share_code() {
        let layers = |count: usize| -> (i64, i64) {
            let layer = |at: usize| {
                format!(
                    "  %w{at} = constant @w : f32[32,32]\n  %y{} = dot %y{at}, %w{at} contract=[1:0] : f32[16,32]\n",
                    at + 1
                )
            };
            let body: String = (0..count).map(layer).collect();
            let text = format!(
                "const @w: f32[32,32] = normal(seed=1, mean=0, std=0.2)\n\n\
                 func @main(%y0: f32[16,32]) -> f32[16,32] {{\n{body}  return %y{count}\n}}\n"
            );
            let module = pando_graph::parse(&text, "layers.graph").expect("a valid module");
            let machine = pando_machine::load("tiny4").expect("built in");
            let compiled = compile(&module, &machine, &Options::default()).expect("dots lower");
            let (program, chip) = (&compiled.emitted.program, &machine.chip);
            let alone = fixed_memory(program, chip, &Traffic::new(program, chip), None);
            (compiled.placed.fixed.exchange_code.total(), alone.exchange_code.total())
        };
        let (few, many) = (layers(4), layers(12));
        assert!(few.0 > 0 && few.0 == many.0, "{few:?} {many:?}");
        assert!(many.1 > 2 * few.1, "{few:?} {many:?}");
    }
}
