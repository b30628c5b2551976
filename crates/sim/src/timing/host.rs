//! Transfers between host and chip.
//!
//! A transfer takes the host's latency and its bytes over the bandwidth of one attachment. Chips that
//! share the attachment share its bandwidth: with replicas on n chips that is `min(chips_per_attachment,
//! n)` of them, since replicas fill one attachment's chips before the next. The latency is that of a host
//! which has its data ready (`ready_latency_s`, hardware.md row 31): streams are fed ahead of use. A host
//! that is asked for each item and waited for (no prefetching) makes each transfer `callback_latency_s` long (row 30).

use crate::report::total_bytes;
use pando_machine::Machine;
use pando_profile::{Cycles, Step, StepKind};
use pando_tile::{Program, VarId};

/// Cycles of a transfer of `bytes` per replica, for which the host is ready; `kind` says in which direction.
pub fn host_cycles(machine: &Machine, kind: StepKind, bytes: u64, replicas: u64) -> u64 {
    transfer_cycles(machine, kind, bytes, replicas, machine.host.ready_latency_s)
}

fn transfer_cycles(machine: &Machine, kind: StepKind, bytes: u64, replicas: u64, latency_s: f64) -> u64 {
    let host = &machine.host;
    let bandwidth = match kind {
        StepKind::HostIn => host.bytes_to_chip_per_s,
        _ => host.bytes_from_chip_per_s,
    };
    let sharers = u64::from(host.chips_per_attachment).min(replicas).max(1);
    let seconds = latency_s + bytes as f64 * sharers as f64 / bandwidth;
    (seconds * machine.chip.clock_hz).ceil() as u64
}

/// The least cycles between two items of a loop: the host is asked for an item as many items ahead as it prefetches, and
/// answers after `callback_latency_s`. Assumption: it works on that many requests at once. Without prefetching the
/// transfers themselves wait.
pub(super) fn callback_period(program: &Program, machine: &Machine) -> u64 {
    match program.prefetch {
        0 => 0,
        depth => (machine.host.callback_latency_s / f64::from(depth) * machine.chip.clock_hz).ceil() as u64,
    }
}

/// What a call of a program costs besides its steps: the chip waits until the host starts it. Each run begins with two
/// tiny transfers that say which program to run (poplar.md section 1.9): the host has to be waited for at the first.
pub fn call_cycles(machine: &Machine) -> u64 {
    let host = &machine.host;
    ((host.callback_latency_s + host.ready_latency_s) * machine.chip.clock_hz).ceil() as u64
}

pub(super) fn time_host(program: &Program, machine: &Machine, kind: StepKind, vars: &[VarId]) -> Step {
    let bytes = vars.iter().fold(0u64, |sum, &var| sum.saturating_add(total_bytes(&program.vars[var])));
    let host = &machine.host;
    let latency_s = if program.prefetch == 0 { host.callback_latency_s } else { host.ready_latency_s };
    let cycles = transfer_cycles(machine, kind, bytes, program.replicas, latency_s);
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
