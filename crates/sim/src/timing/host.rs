//! Transfers between host and chip.
//!
//! A transfer takes the host's latency and its bytes over the bandwidth of one attachment. Chips that
//! share the attachment share its bandwidth: with replicas on n chips that is `min(chips_per_attachment,
//! n)` of them, since replicas fill one attachment's chips before the next. The latency is that of a host
//! which has its data ready (`ready_latency_s`, hardware.md row 31): streams are fed ahead of use. A host
//! that computes on demand makes each transfer `callback_latency_s` long (row 30), which is its own cost
//! and not the program's.

use crate::report::total_bytes;
use pando_machine::Machine;
use pando_profile::{Cycles, Step, StepKind};
use pando_tile::{Program, VarId};

/// Cycles of a transfer of `bytes` per replica; `kind` says in which direction.
pub fn host_cycles(machine: &Machine, kind: StepKind, bytes: u64, replicas: u64) -> u64 {
    let host = &machine.host;
    let bandwidth = match kind {
        StepKind::HostIn => host.bytes_to_chip_per_s,
        _ => host.bytes_from_chip_per_s,
    };
    let sharers = u64::from(host.chips_per_attachment).min(replicas).max(1);
    let seconds = host.ready_latency_s + bytes as f64 * sharers as f64 / bandwidth;
    (seconds * machine.chip.clock_hz).ceil() as u64
}

pub(super) fn time_host(program: &Program, machine: &Machine, kind: StepKind, vars: &[VarId]) -> Step {
    let bytes = vars.iter().fold(0u64, |sum, &var| sum.saturating_add(total_bytes(&program.vars[var])));
    let cycles = host_cycles(machine, kind, bytes, program.replicas);
    let direction = if kind == StepKind::HostIn { "host in" } else { "host out" };
    let first = &program.vars[vars[0]].name;
    let name = match vars.len() {
        1 => format!("{direction} %{first}"),
        n => format!("{direction} %{first} and {} more", n - 1),
    };
    Step {
        cycles,
        parts: Cycles { host: cycles, ..Cycles::default() },
        host_bytes: bytes,
        ..Step::new(name, kind, 1)
    }
}
