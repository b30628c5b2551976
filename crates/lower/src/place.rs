//! Placement: one address for every variable, the same on all tiles that hold it, so that two variables
//! share bytes only if they are never live at once or never on one tile.
//!
//! A tile's memory has two regions. Code lies in the executable one, from its bottom up, and with it vertex state and
//! stacks. Variables lie in the interleaved region, from its bottom up; what finds no room there and is never loaded 128
//! bits at a time lies in the executable region, from its top down. So no variable's address depends on how much code
//! there is, which in turn depends on which addresses are equal. What must be interleaved comes first, then constants,
//! then everything else by liveness, each largest first, at the first address that is free of what it meets and in
//! other memory elements than what is accessed in the same cycle. What takes a part in an exchange that another variable
//! takes in one of the same form lies where that one does, if it can: such exchanges share code.

use pando_machine::{Machine, Sram};
use pando_tile::liveness::{Liveness, liveness};
use pando_tile::memory::{FixedMemory, fixed_memory};
use pando_tile::traffic::Traffic;
use pando_tile::{Placement, Program, VarId};
use rustc_hash::{FxHashMap, FxHashSet};

/// Alignment of variables: the widest access (hardware.md section 2, ld128).
const ALIGN_BYTES: u64 = 16;

pub struct Placed {
    pub placement: Placement,
    pub live: Liveness,
    pub fixed: FixedMemory,
    /// Fixed memory of the tile with most.
    pub base_bytes: u64,
}

struct Item {
    var: VarId,
    bytes: u64,
    /// Tiles `[first, end)` that may hold it.
    tiles: (u64, u64),
    live: (u32, u32),
    constant: bool,
    /// Whether it must lie in the interleaved region.
    wide: bool,
}

/// What vertices ask of their operands' addresses.
struct Demands {
    wide: FxHashSet<VarId>,
    apart: FxHashMap<VarId, Vec<VarId>>,
}

/// Places all variables that are used. O(variables²) at worst; independent of the number of tiles.
pub fn place(program: &Program, machine: &Machine) -> Placed {
    let live = liveness(program);
    let sram = &machine.chip.sram;
    let demands = demands(program, sram);
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
                wide: demands.wide.contains(&id),
            })
        })
        .collect();
    items.sort_by_key(|item| (!item.wide, !item.constant, std::cmp::Reverse(item.bytes), item.var));
    let mut placement = Placement::default();
    // By address, so that what an item meets hardly needs sorting.
    let mut placed: Vec<(u64, Item)> = Vec::new();
    let mut known: FxHashMap<VarId, (u64, u64)> = FxHashMap::default();
    let traffic = Traffic::new(program, &machine.chip);
    let mut peers = Peers::new(program, &traffic);
    for item in items {
        let taken = taken(&placed, &item, &demands, &known, sram);
        let like_a_peer = peers.addresses(item.var).find(|&at| is_free(&taken, at, &item, sram));
        let address = like_a_peer.unwrap_or_else(|| address(&taken, &item, sram));
        peers.add(item.var, address);
        placement.offset_bytes[item.var] = address;
        known.insert(item.var, (address, address + item.bytes));
        placed.insert(placed.partition_point(|&(begin, _)| begin <= address), (address, item));
    }
    let fixed = fixed_memory(program, &machine.chip, &traffic, Some(&placement));
    let base_bytes = fixed.total().max().0.max(0) as u64;
    Placed { placement, live, fixed, base_bytes }
}

fn demands(program: &Program, sram: &Sram) -> Demands {
    let mut demands = Demands { wide: FxHashSet::default(), apart: FxHashMap::default() };
    for group in program.compute_sets.values().flat_map(|set| &set.groups) {
        let var = |operand: usize| group.operands[operand].var;
        if sram.interleaved_bytes > 0 {
            demands.wide.extend(group.kernel.wide_operands().iter().map(|&operand| var(operand)));
        }
        for &(a, b) in group.kernel.apart_operands() {
            let (a, b) = (var(a), var(b));
            if a != b {
                demands.apart.entry(a).or_default().push(b);
                demands.apart.entry(b).or_default().push(a);
            }
        }
    }
    demands
}

/// Addresses that an item may not use, in order: of what it meets, and the elements of what it is accessed with.
fn taken(
    placed: &[(u64, Item)],
    item: &Item,
    demands: &Demands,
    known: &FxHashMap<VarId, (u64, u64)>,
    sram: &Sram,
) -> Vec<(u64, u64)> {
    let met = placed.iter().filter(|(_, other)| meets(item, other));
    let mut taken: Vec<(u64, u64)> = met.map(|&(begin, ref other)| (begin, begin + other.bytes)).collect();
    let partners = demands.apart.get(&item.var).into_iter().flatten().filter_map(|var| known.get(var));
    taken.extend(partners.filter(|(begin, end)| begin < end).map(|&(begin, end)| elements(begin, end, sram)));
    taken.sort();
    taken
}

/// Variables that take the same part in exchanges of one form, and the addresses that they have so far.
struct Peers {
    groups_of: FxHashMap<VarId, Vec<u32>>,
    addresses: Vec<Vec<u64>>,
}

impl Peers {
    fn new(program: &Program, traffic: &Traffic) -> Self {
        let mut peers = Peers { groups_of: FxHashMap::default(), addresses: Vec::new() };
        for (_, ids) in traffic.forms().iter().filter(|(_, ids)| ids.len() > 1) {
            let first = peers.addresses.len() as u32;
            for &id in ids {
                let copies = program.exchanges[id].copies.iter();
                let vars = copies.flat_map(|copy| std::iter::once(&copy.src).chain(&copy.dsts));
                for (part, &var) in vars.enumerate() {
                    let groups = peers.groups_of.entry(var).or_default();
                    let group = first + part as u32;
                    if !groups.contains(&group) {
                        groups.push(group);
                    }
                    let count = peers.addresses.len().max(group as usize + 1);
                    peers.addresses.resize(count, Vec::new());
                }
            }
        }
        peers
    }

    /// Addresses of a variable's peers, those of its first part first.
    fn addresses(&self, var: VarId) -> impl Iterator<Item = u64> {
        let groups = self.groups_of.get(&var).into_iter().flatten();
        groups.flat_map(|&group| self.addresses[group as usize].iter().copied())
    }

    fn add(&mut self, var: VarId, address: u64) {
        for &group in self.groups_of.get(&var).into_iter().flatten() {
            let known = &mut self.addresses[group as usize];
            if !known.contains(&address) {
                known.push(address);
            }
        }
    }
}

/// Whether an item may lie at an address.
fn is_free(taken: &[(u64, u64)], at: u64, item: &Item, sram: &Sram) -> bool {
    let (begin, end) = (at, at + item.bytes);
    let in_region = begin >= sram.interleaved_begin() || (!item.wide && end <= sram.interleaved_begin());
    in_region && end <= sram.bytes_per_tile && taken.iter().all(|&(from, to)| end <= from || to <= begin)
}

/// All addresses of the memory elements that hold some.
fn elements(begin: u64, end: u64, sram: &Sram) -> (u64, u64) {
    (sram.element(begin).0, sram.element(end - 1).1)
}

/// Interleaved if there is room or there must be, else executable; what fits neither lies beyond the end.
fn address(taken: &[(u64, u64)], item: &Item, sram: &Sram) -> u64 {
    let upward = first_gap(taken, item.bytes, sram.interleaved_begin());
    if item.wide || upward + item.bytes <= sram.bytes_per_tile {
        return upward;
    }
    last_gap(taken, item.bytes, sram.interleaved_begin()).unwrap_or(upward)
}

fn first_gap(taken: &[(u64, u64)], bytes: u64, from: u64) -> u64 {
    let mut at = from;
    for &(begin, end) in taken.iter().filter(|(_, end)| *end > from) {
        if at + bytes <= begin {
            break;
        }
        at = at.max(end);
    }
    at.next_multiple_of(ALIGN_BYTES)
}

/// The highest address below `end`; none if there is no room.
fn last_gap(taken: &[(u64, u64)], bytes: u64, end: u64) -> Option<u64> {
    let mut by_end: Vec<(u64, u64)> = taken.iter().copied().filter(|(begin, _)| *begin < end).collect();
    by_end.sort_unstable_by_key(|&(_, end)| std::cmp::Reverse(end));
    let mut at = end;
    for (begin, end) in by_end {
        if end + bytes <= at {
            break;
        }
        at = at.min(begin);
    }
    at.checked_sub(bytes).map(|address| address / ALIGN_BYTES * ALIGN_BYTES)
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

    /// Weights are interleaved, what goes in and comes out of the matrix unit lies in different elements, and what finds no
    /// room in the interleaved region lies under the executable region's end.
    #[test]
    fn regions_and_elements_are_kept_apart() {
        let text = "const @w: f32[32,32] = normal(seed=1, mean=0, std=0.2)\n\n\
                    func @main(%x: f32[16,32]) -> f32[16,32] {\n  %w = constant @w : f32[32,32]\n  \
                    %y = dot %x, %w contract=[1:0] : f32[16,32]\n  return %y\n}\n";
        let module = pando_graph::parse(text, "dot.graph").expect("a valid module");
        let mut machine = pando_machine::load("tiny4").expect("built in");
        // Room for the weights and one of both others.
        let sram = &mut machine.chip.sram;
        (sram.executable_bytes, sram.interleaved_bytes, sram.element_bytes) = (8192, 4096, 1024);
        sram.bytes_per_tile = 8192 + 4096;
        let compiled = compile(&module, &machine, &Options::default()).expect("a dot lowers");
        let (program, placement) = (&compiled.emitted.program, &compiled.placed.placement);
        let address = |name: &str| {
            let (id, _) = program.vars.iter().find(|(_, var)| var.name == name).expect("it is there");
            placement.offset_bytes[id]
        };
        assert_eq!((address("w"), address("x.at"), address("y")), (8192, 8192 + 2048, 8192 - 1024));
        assert!(compiled.fit.fits);
        let none = Vec::<String>::new();
        assert_eq!(pando_tile::check::check_placement(program, placement, &machine.chip), none);
        assert_eq!(pando_tile::check::check_room(program, placement, &machine.chip), none);
    }

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
