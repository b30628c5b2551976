//! Where to cut: stages of about equal time whose weights a chip holds.
//!
//! Times are estimates from the work of each operation until stages have been timed; then an operation takes its
//! share of its stage's time.

use crate::flops::work;
use pando_base::{Shape, SideTable};
use pando_graph::{Func, Module, NodeId, Op, ValueDef, ValueId};
use pando_machine::Machine;

/// Share of the matrix unit's peak that whole models reach (12 to 15 % of f16 for BERT and ResNet-50 at small batches).
const REACHED: f64 = 0.13;
/// Share of a chip's memory for weights; the rest is for what is computed, and for code.
const WEIGHTS: f64 = 0.65;

/// A node that is no constant, as it bears on balance.
pub struct Load {
    pub node: NodeId,
    /// That it takes.
    pub seconds: f64,
    /// That what crosses a cut before it takes on the links.
    pub cut_seconds: f64,
    pub weight_bytes: f64,
}

/// The first node of every stage but the first; none if there are fewer nodes than stages.
pub fn cuts(loads: &[Load], stages: usize, machine: &Machine) -> Option<Vec<NodeId>> {
    if loads.len() < stages {
        return None;
    }
    let weights: f64 = loads.iter().map(|load| load.weight_bytes).sum();
    let chip_bytes = machine.chip.sram.bytes_per_tile as f64 * f64::from(machine.chip.tiles);
    // Where the chips do not hold the weights, they are at least spread evenly.
    let room = f64::max(chip_bytes * WEIGHTS, weights / stages as f64 * 1.1);
    slowest_bounded(loads, stages, room).or_else(|| slowest_bounded(loads, stages, f64::INFINITY))
}

/// Bisection over the time of the slowest stage.
fn slowest_bounded(loads: &[Load], stages: usize, room_bytes: f64) -> Option<Vec<NodeId>> {
    let (mut low, mut high) =
        (0.0, loads.iter().map(|load| load.seconds + 2.0 * load.cut_seconds).sum::<f64>());
    let mut best = within(loads, stages, f64::INFINITY, room_bytes);
    for _ in 0..50 {
        let limit = (low + high) / 2.0;
        match within(loads, stages, limit, room_bytes) {
            Some(cuts) => (best, high) = (Some(cuts), limit),
            None => low = limit,
        }
    }
    best
}

/// Cuts that leave no stage with more seconds and bytes than allowed. Each stage is as long as it can be.
fn within(loads: &[Load], stages: usize, seconds: f64, bytes: f64) -> Option<Vec<NodeId>> {
    let (mut cuts, mut begin) = (Vec::new(), 0);
    for stage in 1..=stages {
        // What comes after needs a node a stage.
        let most = loads.len() - (stages - stage);
        begin = longest(loads, begin, most, seconds, bytes)?;
        if stage < stages {
            cuts.push(loads[begin].node);
        }
    }
    (begin == loads.len()).then_some(cuts)
}

/// The end of the longest stage from `begin` within the limits.
fn longest(loads: &[Load], begin: usize, most: usize, seconds: f64, bytes: f64) -> Option<usize> {
    let mut busy = if begin > 0 { loads[begin].cut_seconds } else { 0.0 };
    let (mut held, mut end) = (0.0, None);
    for at in begin..most {
        busy += loads[at].seconds;
        held += loads[at].weight_bytes;
        if busy > seconds || held > bytes {
            break;
        }
        if busy + loads.get(at + 1).map_or(0.0, |next| next.cut_seconds) <= seconds {
            end = Some(at + 1);
        }
    }
    end
}

/// Every node but the constants, in order, with estimates.
pub fn loads(module: &Module, func: &Func, machine: &Machine) -> Vec<Load> {
    let bytes = |value: ValueId| {
        let ty = func.ty(value);
        ty.shape().map_or(0, |shape: Shape| shape.num_elements() * ty.dtype.size_bytes()) as f64
    };
    let nodes: Vec<NodeId> =
        func.nodes.iter().filter(|(_, node)| !matches!(node.op, Op::Constant(_))).map(|(id, _)| id).collect();
    let weight_bytes = |id: NodeId| -> f64 {
        func.nodes[id].operands.iter().filter(|&&v| is_constant(func, v)).map(|&v| bytes(v)).sum()
    };
    // Small operations cost their syncs, whatever they compute.
    let works: Vec<f64> = nodes.iter().map(|&id| work(module, func, &func.nodes[id]) as f64).collect();
    let overhead = works.iter().sum::<f64>() / nodes.len().max(1) as f64 / 4.0;
    let flops_per_s = REACHED * machine.chip.peak_flops("f16").max(machine.chip.peak_flops("f32")).max(1.0);
    let bytes_per_s = machine.links.as_ref().map_or(f64::INFINITY, |links| {
        f64::from(links.rail_links.max(1)) * links.link_bytes_per_s * links.efficiency
    });
    (nodes.iter().zip(works).zip(crossing(func, &nodes, bytes)))
        .map(|((&node, work), crossing)| Load {
            node,
            seconds: (work + overhead.max(1.0)) / flops_per_s,
            cut_seconds: crossing / bytes_per_s,
            weight_bytes: weight_bytes(node),
        })
        .collect()
}

fn is_constant(func: &Func, value: ValueId) -> bool {
    let node = match func.values[value].def {
        ValueDef::Node(node, _) => node,
        ValueDef::Param(_) => return false,
    };
    matches!(func.nodes[node].op, Op::Constant(_))
}

/// For each node the bytes of computed values that are made before it and used by it or later.
fn crossing(func: &Func, nodes: &[NodeId], bytes: impl Fn(ValueId) -> f64) -> Vec<f64> {
    let mut last_use: SideTable<ValueId, Option<usize>> = SideTable::default();
    for (at, &id) in nodes.iter().enumerate() {
        func.nodes[id].operands.iter().for_each(|&value| last_use[value] = Some(at));
    }
    let mut change = vec![0.0; nodes.len() + 1];
    for (at, &id) in nodes.iter().enumerate() {
        for &value in &func.nodes[id].results {
            if let Some(last) = last_use[value] {
                change[at + 1] += bytes(value);
                change[last + 1] -= bytes(value);
            }
        }
    }
    let mut live = 0.0;
    change
        .iter()
        .take(nodes.len())
        .map(|by| {
            live += by;
            live
        })
        .collect()
}
