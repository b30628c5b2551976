//! Time of an exchange from what it asks of the ports.

use pando_machine::Chip;
use pando_profile::{Cycles, Step, StepKind};
use pando_tile::traffic::ExchangeCost;

pub fn time_exchange(name: &str, cost: &ExchangeCost, chip: &Chip) -> Step {
    let sync = if cost.cycles > 0 { chip.sync.internal_cycles } else { 0 };
    let parts = Cycles { exchange: cost.cycles, sync, local_copy: cost.local_cycles, ..Cycles::default() };
    Step {
        cycles: parts.total(),
        parts,
        busiest_tile: cost.busiest_tile,
        tiles_used: cost.tiles_used,
        mean_tile_cycles: match cost.tiles_used {
            0 => 0.0,
            tiles => cost.sum_cycles as f64 / f64::from(tiles),
        },
        max_tile_cycles: cost.busiest_cycles,
        sent_bytes: cost.sent_bytes,
        received_bytes: cost.received_bytes,
        local_bytes: cost.local_bytes,
        messages: cost.messages,
        ..Step::new(name, StepKind::Exchange, 1)
    }
}
