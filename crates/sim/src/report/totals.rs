//! Sums over a run, and what follows from them.

use pando_machine::Machine;
use pando_profile::{SERVICE_YEARS, Step, StepKind, Totals, reduce};
use pando_tile::{Kernel, Program};

pub fn totals(program: &Program, machine: &Machine, steps: &[Step], items_per_run: u64) -> Totals {
    let sum = |value: &dyn Fn(&Step) -> u64| {
        steps.iter().fold(0u64, |sum, step| sum.saturating_add(value(step).saturating_mul(step.times)))
    };
    let host = |kind: StepKind| sum(&|step| if step.kind == kind { step.host_bytes } else { 0 });
    let cycles = sum(&|step| step.cycles);
    let seconds = machine.chip.seconds(cycles as f64);
    let flops = sum(&|step| step.flops);
    let peak_type = peak_type(program, machine);
    Totals {
        cycles,
        seconds,
        parts: reduce::cycles_by_kind(steps),
        flops,
        peak_type: peak_type.into(),
        utilisation: utilisation(flops as f64, seconds * machine.chip.peak_flops(peak_type)),
        sent_bytes: sum(&|step| step.sent_bytes),
        received_bytes: sum(&|step| step.received_bytes),
        local_bytes: sum(&|step| step.local_bytes),
        host_in_bytes: host(StepKind::HostIn),
        host_out_bytes: host(StepKind::HostOut),
        energy_j_per_item: chip_power_w(machine).map(|watts| watts * seconds / items_per_run.max(1) as f64),
        price_usd_per_million: chip_price_usd(machine).map(|dollars| {
            dollars * seconds / (SERVICE_YEARS * SECONDS_PER_YEAR) / items_per_run.max(1) as f64 * 1e6
        }),
    }
}

const SECONDS_PER_YEAR: f64 = 365.0 * 86_400.0;

fn utilisation(flops: f64, possible: f64) -> f64 {
    if possible > 0.0 { flops / possible } else { 0.0 }
}

/// One chip's share of the system's power, hosts left out as the sources do; else the chip's own.
fn chip_power_w(machine: &Machine) -> Option<f64> {
    let share = machine.power_w.map(|watts| watts / f64::from(machine.chips.max(1)));
    share.or(machine.chip.power_w)
}

/// One chip's share of the system's list price.
fn chip_price_usd(machine: &Machine) -> Option<f64> {
    machine.price_usd.map(|dollars| dollars / f64::from(machine.chips.max(1)))
}

/// Input format of the narrowest products at whose rate the chip computes them, in the machine files' spelling: the
/// peak that a program could reach. f32 without any.
fn peak_type(program: &Program, machine: &Machine) -> &'static str {
    let groups = program.compute_sets.values().flat_map(|set| &set.groups);
    let matrix = groups.filter(|group| matches!(group.kernel, Kernel::MatMul { .. } | Kernel::Conv(_)));
    let narrowest = matrix.map(|group| program.vars[group.operands[0].var].dtype.size_bytes()).min();
    let formats: &[&str] = match narrowest {
        Some(1) => &["f8", "f16", "f32"],
        Some(2) => &["f16", "f32"],
        _ => &["f32"],
    };
    formats.iter().find(|format| machine.chip.fastest_rate(format).is_some()).unwrap_or(&"f32")
}
