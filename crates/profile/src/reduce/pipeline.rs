//! Stages on chips of their own as one profile. A run passes all of them, so its latency is their sum; while one run
//! is in a stage, others are in the other stages, so runs follow one another at the pace of the slowest.

use super::{cycles_by_kind, operations};
use crate::schema::{Cycles, HostIo, Profile, Stage, Step, StepKind, Totals};

/// The profile of a pipeline from those of its stages, in order. Memory, variables and fit are those of the stage that
/// is fullest. What one chip sends another receives at the same time: in the sum it counts once. `iterations` of a call
/// are what the stages' programs loop over, 0 if they do not; then a call lasts until the last iteration has left the
/// last stage.
///
/// # Panics
/// Without a stage.
pub fn pipeline(stages: Vec<Profile>, iterations: u64) -> Profile {
    let uses: Vec<Stage> = stages.iter().map(|profile| stage(profile, iterations)).collect();
    let fullest = (0..stages.len()).max_by_key(|&at| (stages[at].fit.used_bytes, std::cmp::Reverse(at)));
    let fullest = fullest.expect("a pipeline has a stage");
    let totals: Vec<Totals> = stages.iter().map(|stage| stage.totals.clone()).collect();
    let host_io = one_after_another(&stages, iterations);
    let mut whole = stages[fullest].clone();
    whole.steps = Vec::new();
    whole.stages = Vec::new();
    for (at, (stage, mut uses)) in stages.into_iter().zip(uses).enumerate() {
        uses.first_step = whole.steps.len() as u32;
        if at == fullest {
            whole.memory.max_step += uses.first_step;
            for var in &mut whole.variables {
                var.first_step += uses.first_step;
                var.last_step += uses.first_step;
            }
            whole.fit.operation = format!("stage {at}, {}", whole.fit.operation);
        }
        whole.stages.push(uses);
        whole.steps.extend(stage.steps);
    }
    whole.steps.iter_mut().filter(|step| receives(step)).for_each(|step| step.times = 0);
    whole.fit.fits = whole.stages.iter().all(|stage| stage.fits);
    whole.operations = operations(&whole.steps);
    whole.totals = sum(&totals, &whole);
    whole.host_io = host_io;
    if iterations > 0 {
        let first = host_io.host_cycles.saturating_add(host_io.chip_cycles);
        let others = host_io.period_cycles.saturating_mul(iterations - 1);
        whole.totals.cycles = first.saturating_add(others);
        whole.totals.seconds = whole.seconds(whole.totals.cycles);
    }
    whole
}

/// Iterations at the pace of the slowest stage, each through all stages.
fn one_after_another(stages: &[Profile], iterations: u64) -> HostIo {
    let received = |profile: &Profile| {
        let steps = profile.steps.iter().filter(|step| receives(step));
        steps.fold(0u64, |sum, step| sum.saturating_add(step.total_cycles())) / iterations.max(1)
    };
    let twice = stages.iter().map(received).fold(0, u64::saturating_add);
    let sum = |value: fn(&HostIo) -> u64| {
        stages.iter().map(|stage| value(&stage.host_io)).fold(0, u64::saturating_add)
    };
    HostIo {
        iterations,
        period_cycles: stages.iter().map(|stage| stage.host_io.period_cycles).max().unwrap_or(0),
        latency_cycles: sum(|io| io.latency_cycles).saturating_sub(twice),
        host_cycles: sum(|io| io.host_cycles),
        chip_cycles: sum(|io| io.chip_cycles).saturating_sub(twice),
        ..stages[0].host_io
    }
}

/// Whether a step takes in what another chip sends.
fn receives(step: &Step) -> bool {
    step.kind == StepKind::Links && step.received_bytes > 0
}

fn stage(profile: &Profile, iterations: u64) -> Stage {
    let times = iterations.max(1);
    Stage {
        first_step: 0,
        steps: profile.steps.len() as u32,
        cycles: if iterations > 0 { profile.host_io.period_cycles } else { profile.totals.cycles },
        link_cycles: profile.totals.parts.links / times,
        flops: profile.totals.flops / times,
        max_used: profile.fit.used_bytes,
        always_live: profile.memory.always_live,
        fits: profile.fit.fits,
    }
}

fn sum(stages: &[Totals], whole: &Profile) -> Totals {
    let add = |value: fn(&Totals) -> u64| stages.iter().map(value).fold(0, u64::saturating_add);
    let parts: Cycles = cycles_by_kind(&whole.steps);
    let cycles = parts.total();
    let period_s = stages.iter().map(|totals| totals.seconds).fold(0.0, f64::max);
    // Every chip draws power, and is paid for, during the whole period.
    let kept = |value: fn(&Totals) -> Option<f64>| -> Option<f64> {
        let shares = stages.iter().map(|totals| Some(value(totals)? * period_s / totals.seconds));
        shares.sum()
    };
    let possible: f64 = stages
        .iter()
        .map(|t| if t.utilisation > 0.0 { t.flops as f64 / t.utilisation / t.seconds } else { 0.0 })
        .fold(0.0, f64::max)
        * period_s
        * stages.len() as f64;
    let flops = add(|totals| totals.flops);
    Totals {
        cycles,
        seconds: whole.seconds(cycles),
        parts,
        flops,
        peak_type: whole.totals.peak_type.clone(),
        utilisation: if possible > 0.0 { flops as f64 / possible } else { 0.0 },
        sent_bytes: add(|totals| totals.sent_bytes),
        received_bytes: add(|totals| totals.received_bytes),
        local_bytes: add(|totals| totals.local_bytes),
        host_in_bytes: add(|totals| totals.host_in_bytes),
        host_out_bytes: add(|totals| totals.host_out_bytes),
        energy_j_per_item: kept(|totals| totals.energy_j_per_item),
        price_usd_per_million: kept(|totals| totals.price_usd_per_million),
    }
}
