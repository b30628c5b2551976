//! Transfers between the chips of a pipeline: neighbouring stages on neighbouring chips, in a line that winds up
//! the ladder (0, 1, 3, 2, 4, …), so that every second step of it crosses a rung and the others go along a rail.

use pando_base::SideTable;
use pando_machine::{Machine, Topology};
use pando_profile::{Cycles, Step, StepKind};
use pando_tile::{Program, VarId};

/// The way from one chip to another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hop {
    pub bytes_per_s: f64,
    /// Until the first byte is there.
    pub latency_s: f64,
}

/// Inputs and outputs that come from another chip or go there; all others are the host's.
pub type Linked = SideTable<VarId, Option<Hop>>;

/// The way from the chip of one stage to that of another; none without links between them.
pub fn hop(machine: &Machine, from: u32, to: u32) -> Option<Hop> {
    let links = machine.links.as_ref()?;
    let (low, high) = (from.min(to), from.max(to));
    if low == high || high >= links.domain_chips {
        return None;
    }
    let adjacent = high - low == 1;
    let (parallel, hops) = match links.topology {
        Topology::Pair => (links.rung_links, 1),
        Topology::Full => (links.rail_links, 1),
        Topology::Ladder | Topology::Torus if adjacent && low.is_multiple_of(2) => (links.rung_links, 1),
        Topology::Ladder | Topology::Torus if adjacent => (links.rail_links, 1),
        Topology::Ladder | Topology::Torus => (links.rung_links.min(links.rail_links), high - low),
    };
    Some(Hop {
        bytes_per_s: f64::from(parallel) * links.link_bytes_per_s * links.efficiency,
        latency_s: f64::from(hops) * links.hop_latency_s,
    })
}

/// Adjacent transfers in one direction. Bytes to different chips follow one another; the longest way counts once.
pub(super) fn time_links(
    program: &Program,
    machine: &Machine,
    inward: bool,
    vars: &[VarId],
    linked: &Linked,
) -> Step {
    let bytes = |var: VarId| crate::report::total_bytes(&program.vars[var]);
    let hops = || vars.iter().filter_map(|&var| Some((var, linked[var]?)));
    let seconds: f64 = hops().map(|(var, hop)| bytes(var) as f64 / hop.bytes_per_s).sum();
    let latency = hops().map(|(_, hop)| hop.latency_s).fold(0.0, f64::max);
    let cycles = ((seconds + latency) * machine.chip.clock_hz).ceil() as u64;
    let moved = vars.iter().fold(0u64, |sum, &var| sum.saturating_add(bytes(var)));
    let direction = if inward { "in" } else { "out" };
    let first = &program.vars[vars[0]].name;
    let name = match vars.len() {
        1 => format!("links {direction} %{first}"),
        n => format!("links {direction} %{first} and {} more", n - 1),
    };
    Step {
        cycles,
        parts: Cycles { links: cycles, ..Cycles::default() },
        sent_bytes: if inward { 0 } else { moved },
        received_bytes: if inward { moved } else { 0 },
        ..Step::new(name, StepKind::Links, 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_wind_up_the_ladder() {
        let machine = pando_machine::load("m2000").unwrap();
        let rate = |from, to| hop(&machine, from, to).map(|hop| (hop.bytes_per_s / 16e9 / 0.85).round());
        // Six links across a rung, two along a rail, the fewer of both further on.
        assert_eq!([rate(0, 1), rate(1, 2), rate(3, 2), rate(0, 2)], [6.0, 2.0, 6.0, 2.0].map(Some));
        assert_eq!([rate(3, 4), rate(1, 1)], [None, None]);
        assert_eq!(hop(&machine, 0, 3).unwrap().latency_s, 3.0 * 0.6e-6);
        assert_eq!(hop(&pando_machine::load("mk2").unwrap(), 0, 1), None);
    }
}
