//! Time of exchanges, once for each form.

use pando_base::SideTable;
use pando_machine::{Chip, Machine};
use pando_profile::{Cycles, Step, StepKind};
use pando_tile::traffic::{PortUse, forms, port_use, ports_cost};
use pando_tile::{Exchange, ExchangeId, Program};

/// The step of every exchange, without its name.
pub fn exchange_times(program: &Program, machine: &Machine) -> SideTable<ExchangeId, Option<Step>> {
    let mut times = SideTable::default();
    for form in forms(program) {
        let step = time_exchange(program, &program.exchanges[form[0]], &machine.chip);
        form.into_iter().for_each(|id| times[id] = Some(step.clone()));
    }
    times
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
