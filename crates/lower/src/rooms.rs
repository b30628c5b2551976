//! How much memory products and scatters may take for copies and sums where the whole does not fit: what is left of a tile at the time
//! when each runs. Equal products have equal room, so that they are planned alike and share their code.
//!
//! Only a program that is emitted and placed tells what else lives then, so this looks at one that does not fit, and
//! what it says is for planning once more.

use crate::Compiled;
use crate::plan::{Method, Plan};
use pando_graph::{Func, Module, Node, Op};
use pando_machine::Sram;
use pando_tile::Step;
use pando_tile::liveness::points;
use pando_tile::memory::memory_over_time;
use rustc_hash::FxHashMap;

/// What is left for an operation when hardly anything is: 5 % of a tile, below which the documentation advises against
/// (poplar.md section 3.3).
const LEAST_SHARE: u64 = 20;
/// Gaps between addresses are not known before placement: this much of a tile is left for them at first, then four times
/// as much, and so on.
const GAP_SHARE: u64 = 32;

/// Bytes for the temporaries of a product, by [`kind`].
pub type Rooms = FxHashMap<String, u64>;

/// What makes products and scatters equal: operation and types. Nothing for other nodes.
pub fn kind(func: &Func, node: &Node) -> Option<String> {
    let has_room = matches!(node.op, Op::Dot(_) | Op::Conv(_) | Op::Scatter { .. });
    let types = func.operand_types(&node.operands);
    has_room.then(|| format!("{:?} {types:?} {:?}", node.op, func.ty(node.results[0])))
}

/// Less room for the products that run when a tile has too little, by what it lacks; whether there is any such product.
/// Attempts count from 1.
pub fn tighten(rooms: &mut Rooms, compiled: &Compiled, sram: &Sram, attempt: u64) -> bool {
    let peaks = peaks(compiled);
    let highest = highest(&peaks);
    // What adds up but does not fit has gaps.
    let gap = sram.bytes_per_tile / GAP_SHARE;
    let within = sram.bytes_per_tile.saturating_sub(gap * attempt * attempt).min(highest.saturating_sub(gap));
    let taken = taken(compiled);
    let least = sram.bytes_per_tile / LEAST_SHARE;
    let mut tightened = false;
    for (kind, peak) in peaks_by_kind(compiled, &peaks) {
        let Some(&(bytes, _)) = taken.get(&kind) else { continue };
        let room = bytes.saturating_sub(peak.saturating_sub(within)).max(least);
        let before = rooms.get(&kind).copied().unwrap_or(u64::MAX);
        if peak > within && room < bytes.min(before) {
            rooms.insert(kind, room);
            tightened = true;
        }
    }
    tightened
}

/// More room for the products that have little in a program that fits, by one `share`-th of what it leaves; whether
/// there is any such product.
pub fn loosen(rooms: &mut Rooms, compiled: &Compiled, sram: &Sram, share: u64) -> bool {
    let peaks = peaks(compiled);
    let gaps = compiled.fit.used_bytes.saturating_sub(highest(&peaks));
    let within = sram.bytes_per_tile.saturating_sub(gaps);
    let taken = taken(compiled);
    let mut loosened = false;
    for (kind, peak) in peaks_by_kind(compiled, &peaks) {
        let (Some(&(bytes, _)), Some(room)) = (taken.get(&kind), rooms.get_mut(&kind)) else { continue };
        let more = bytes + within.saturating_sub(peak) / share;
        if more > *room {
            *room = more;
            loosened = true;
        }
    }
    loosened
}

/// What plans reckon that products and scatters take together.
pub fn cycles(compiled: &Compiled) -> u64 {
    taken(compiled).values().map(|&(_, cycles)| cycles).fold(0, u64::saturating_add)
}

/// The highest sum over tiles at each point, and the tile that has it.
fn peaks(compiled: &Compiled) -> Vec<(u64, u32)> {
    let fixed = compiled.placed.fixed.total();
    memory_over_time(&compiled.emitted.program, &compiled.placed.live, &fixed).peaks
}

fn highest(peaks: &[(u64, u32)]) -> u64 {
    peaks.iter().map(|peak| peak.0).max().unwrap_or(0)
}

/// The most bytes of any tile while a product of a kind runs.
fn peaks_by_kind(compiled: &Compiled, peaks: &[(u64, u32)]) -> FxHashMap<String, u64> {
    let emitted = &compiled.emitted;
    let mut by_kind: FxHashMap<String, u64> = FxHashMap::default();
    for (point, &(bytes, _)) in points(&emitted.program).iter().zip(peaks) {
        let kind = match point.step {
            Step::Compute(id) => emitted.products.of_sets[*id].as_ref(),
            Step::Exchange(id) => emitted.products.of_exchanges[*id].as_ref(),
            _ => None,
        };
        if let Some(kind) = kind {
            let most = by_kind.entry(kind.to_string()).or_default();
            *most = bytes.max(*most);
        }
    }
    by_kind
}

/// What plans reckon that products of a kind take: the most bytes, and the cycles of all.
type Taken = FxHashMap<String, (u64, u64)>;

fn taken(compiled: &Compiled) -> Taken {
    let mut taken = Taken::default();
    let main = compiled.module.funcs.values().next().expect("an inlined module has a function");
    add_taken(&compiled.module, main, &compiled.plan, &mut taken);
    taken
}

fn add_taken(module: &Module, func: &Func, plan: &Plan, taken: &mut Taken) {
    for (id, node) in func.nodes.iter() {
        let (bytes, cycles) = match &plan.methods[id] {
            Some(Method::Matmul(plan)) => (plan.cost.temporary_bytes, plan.cost.cycles()),
            Some(Method::Conv(plan)) => (plan.cost.temporary_bytes, plan.cost.cycles()),
            Some(Method::Serial(plan)) => (plan.temporary_bytes, plan.cycles),
            Some(Method::Scatter(plan)) => (plan.temporary_bytes, plan.cycles),
            Some(Method::Control(plans)) => {
                let inner = node.op.funcs().into_iter().zip(plans);
                inner.for_each(|(func, plan)| add_taken(module, &module.funcs[func], plan, taken));
                continue;
            }
            _ => continue,
        };
        if let Some(kind) = kind(func, node) {
            let of_kind = taken.entry(kind).or_default();
            *of_kind = (of_kind.0.max(bytes), of_kind.1.saturating_add(cycles));
        }
    }
}
