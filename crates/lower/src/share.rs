//! Equal layers share the code of an exchange if what they move lies at the same addresses. Their weights do not: so
//! where the code would take more of a tile than a copy, weights are copied on their tiles before they are sent, into a
//! variable that lives as long as the exchange. The vendor's compiler does so when it makes functions of equal layers
//! (poplar.md section 2.6).
//!
//! In: a program. Out: the same with more steps. The cost of the copies is not weighed: they are 8 bytes a cycle on the
//! tile, where the exchange takes 4.

use crate::emit::Emitted;
use crate::layouts::without_copies;
use pando_machine::Chip;
use pando_tile::traffic::{forms, port_use, ports_cost};
use pando_tile::{
    ComputeSet, ComputeSetId, Copy, ExchangeId, Group, Kernel, Operand, Program, Role, Step, Var, VarId,
};
use rustc_hash::{FxHashMap, FxHashSet};

pub fn share_code(emitted: &mut Emitted, chip: &Chip) {
    let mut sets: FxHashMap<ExchangeId, ComputeSetId> = FxHashMap::default();
    let wanted: Vec<Vec<ExchangeId>> = forms(&emitted.program)
        .into_iter()
        .filter(|ids| ids.len() > 1 && is_worth_copying(&emitted.program, ids, chip))
        .collect();
    for ids in wanted {
        let differs = differing(&emitted.program, &ids);
        for id in ids {
            let set = copies_before(&mut emitted.program, id, &differs);
            let product = emitted.products.of_exchanges[id].clone();
            emitted.products.of_sets[set] = product;
            sets.insert(id, set);
        }
    }
    let body = std::mem::take(&mut emitted.program.body);
    emitted.program.body = with_copies(body, &sets);
}

/// The copies, by position, whose sources are lasting variables that differ from one exchange of a form to another.
fn differing(program: &Program, ids: &[ExchangeId]) -> Vec<usize> {
    let source = |id: ExchangeId, at: usize| program.exchanges[id].copies[at].src;
    let lasts = |at: usize| ids.iter().all(|&id| program.vars[source(id, at)].role.always_lives());
    let differs = |at: usize| ids.iter().any(|&id| source(id, at) != source(ids[0], at));
    (0..program.exchanges[ids[0]].copies.len()).filter(|&at| lasts(at) && differs(at)).collect()
}

/// Whether the copies are smaller than the code that is shared then.
fn is_worth_copying(program: &Program, ids: &[ExchangeId], chip: &Chip) -> bool {
    let differs = differing(program, ids);
    let sources = |id: ExchangeId| differs.iter().map(move |&at| program.exchanges[id].copies[at].src);
    let distinct: FxHashSet<Vec<VarId>> = ids.iter().map(|&id| sources(id).collect()).collect();
    let copied: u64 = sources(ids[0]).map(|var| program.vars[var].max_tile_bytes()).sum();
    if differs.is_empty() {
        return false;
    }
    let ports = port_use(program, &program.exchanges[ids[0]], chip.exchange.tiles_per_bus);
    let messages = ports_cost(&ports, chip).message_runs.iter().map(|run| run.2).max().unwrap_or(0);
    messages * chip.exchange.message_code_bytes * (distinct.len() as u64 - 1) > copied
}

/// Makes an exchange send copies; the compute set that makes them.
fn copies_before(program: &mut Program, id: ExchangeId, differs: &[usize]) -> ComputeSetId {
    let mut groups = Vec::new();
    for &at in differs {
        let Copy { src, .. } = program.exchanges[id].copies[at];
        let var = &program.vars[src];
        let home = without_copies(&var.home, &var.shape);
        let name = format!("{}.sent.{}", var.name, program.vars.len());
        let copy = Var { name, home: home.clone(), role: Role::Temp, ..var.clone() };
        let copy = program.vars.push(copy);
        program.exchanges[id].copies[at].src = copy;
        let operands = [src, copy].map(|var| Operand { var, region: home.region.clone() });
        groups.push(Group {
            kernel: Kernel::Copy,
            grid: home.grid,
            operands: operands.into_iter().collect(),
        });
    }
    let name = program.exchanges[id].name.clone();
    program.compute_sets.push(ComputeSet { name, groups })
}

fn with_copies(steps: Vec<Step>, sets: &FxHashMap<ExchangeId, ComputeSetId>) -> Vec<Step> {
    let mut out = Vec::with_capacity(steps.len());
    for step in steps {
        let inside = |body: Vec<Step>| with_copies(body, sets);
        if let Step::Exchange(id) = &step
            && let Some(&set) = sets.get(id)
        {
            out.push(Step::Compute(set));
        }
        out.push(match step {
            Step::Repeat { count, body } => Step::Repeat { count, body: inside(body) },
            Step::Stream { count, load, body, store } => {
                Step::Stream { count, load, body: inside(body), store }
            }
            Step::If { flags, then_body, else_body } => {
                Step::If { flags, then_body: inside(then_body), else_body: inside(else_body) }
            }
            Step::While { cond, flags, body, trips } => {
                Step::While { cond: inside(cond), flags, body: inside(body), trips }
            }
            other => other,
        });
    }
    out
}
