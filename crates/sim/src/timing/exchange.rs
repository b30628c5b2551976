//! Time of exchanges. Programs repeat the same exchange many times (a layer per iteration), so equal ones
//! (same layouts, types and maps, whatever the variables) are computed once.

use pando_machine::Chip;
use pando_profile::{Cycles, Step, StepKind};
use pando_tile::traffic::{PortUse, port_use, ports_cost};
use pando_tile::{Exchange, ExchangeId, Program};
use rustc_hash::{FxHashMap, FxHasher};
use std::hash::{Hash, Hasher};

/// Times of the exchanges seen so far, with one of those that have them, by a hash of their form.
#[derive(Default)]
pub struct ExchangeTimes {
    by_form: FxHashMap<u64, Vec<(ExchangeId, Step)>>,
}

impl ExchangeTimes {
    pub fn time(&mut self, program: &Program, id: ExchangeId, chip: &Chip) -> Step {
        let exchange = &program.exchanges[id];
        let known = self.by_form.entry(form_hash(program, exchange)).or_default();
        let position =
            known.iter().position(|(other, _)| alike(program, exchange, &program.exchanges[*other]));
        let position = position.unwrap_or_else(|| {
            known.push((id, time_exchange(program, exchange, chip)));
            known.len() - 1
        });
        Step { name: exchange.name.clone(), ..known[position].1.clone() }
    }
}

fn form_hash(program: &Program, exchange: &Exchange) -> u64 {
    let mut hasher = FxHasher::default();
    for copy in &exchange.copies {
        for &var in std::iter::once(&copy.src).chain(&copy.dsts) {
            let var = &program.vars[var];
            (&var.home, &var.shape, var.dtype).hash(&mut hasher);
        }
    }
    hasher.finish()
}

/// Whether two exchanges move the same elements between the same tiles.
fn alike(program: &Program, a: &Exchange, b: &Exchange) -> bool {
    let same_var = |a, b| {
        let (a, b) = (&program.vars[a], &program.vars[b]);
        a.home == b.home && a.shape == b.shape && a.dtype == b.dtype
    };
    a.copies.len() == b.copies.len()
        && a.copies.iter().zip(&b.copies).all(|(a, b)| {
            a.map == b.map
                && a.dsts.len() == b.dsts.len()
                && same_var(a.src, b.src)
                && a.dsts.iter().zip(&b.dsts).all(|(&a, &b)| same_var(a, b))
        })
}

fn time_exchange(program: &Program, exchange: &Exchange, chip: &Chip) -> Step {
    let ports = port_use(program, exchange, chip.exchange.tiles_per_bus);
    let cost = ports_cost(&ports, chip);
    let sync = if cost.cycles > 0 { chip.sync.internal_cycles } else { 0 };
    let parts = Cycles { exchange: cost.cycles, sync, local_copy: cost.local_cycles, ..Cycles::default() };
    let own = |port: &PortUse| port.transfer_cycles(chip) + port.local_cycles(chip);
    let used = ports.iter().filter(|port| **port != PortUse::default());
    let (tiles_used, sum) =
        used.fold((0u32, 0u64), |(tiles, sum), port| (tiles + 1, sum.saturating_add(own(port))));
    let busiest = ports
        .iter()
        .map(own)
        .enumerate()
        .fold((0, 0), |best, (tile, cycles)| if cycles > best.1 { (tile as u32, cycles) } else { best });
    Step {
        cycles: parts.total(),
        parts,
        busiest_tile: busiest.0,
        tiles_used,
        mean_tile_cycles: if tiles_used == 0 { 0.0 } else { sum as f64 / f64::from(tiles_used) },
        max_tile_cycles: busiest.1,
        sent_bytes: cost.sent_bytes,
        received_bytes: cost.received_bytes,
        local_bytes: cost.local_bytes,
        messages: cost.messages,
        ..Step::new("", StepKind::Exchange, 1)
    }
}
