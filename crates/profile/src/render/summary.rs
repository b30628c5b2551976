//! The first and last lines: what ran where, whether it fits, how fast it is, how far to trust that.

use super::columns::{Align, aligned, shortened};
use super::units::{amount, bytes, count, duration, energy, percent, price, rate};
use super::{Style, Tone, line};
use crate::reduce::bound;
use crate::schema::{Fit, Profile, SERVICE_YEARS};

pub fn verdict(profile: &Profile, style: Style, out: &mut String) {
    let system = &profile.system;
    let replicas = match profile.replicas {
        1 => "1 replica".to_string(),
        n => format!("{} replicas", count(n)),
    };
    let heading = format!("{} on {} ({})", shortened(&profile.program), system.name, system.title);
    line(out, style.paint(Tone::Heading, &heading));
    let replicas = match profile.stages.len() {
        0 => replicas,
        n => format!("{replicas} of {n} stages"),
    };
    let shape = format!(
        "{replicas}, chips of {} tiles with {} at {:.3} GHz",
        count(system.tiles_per_chip.into()),
        bytes(system.tile_bytes),
        system.clock_hz / 1e9
    );
    line(out, shape);
    fit(&profile.fit, style, out);
}

fn fit(fit: &Fit, style: Style, out: &mut String) {
    let region = match fit.region.as_str() {
        "" => String::new(),
        region => format!(" of {region} memory"),
    };
    let needs = format!(
        "tile {} needs {} of {}{region}",
        fit.tile,
        bytes(fit.used_bytes),
        bytes(fit.available_bytes)
    );
    let during =
        if fit.operation.is_empty() { String::new() } else { format!(" in {}", shortened(&fit.operation)) };
    if fit.fits {
        let free = fit.available_bytes.saturating_sub(fit.used_bytes);
        let verdict = style.paint(Tone::Good, "fits");
        return line(out, format!("{verdict}: {needs}{during}, {} free", bytes(free)));
    }
    let verdict = style.paint(Tone::Bad, "DOES NOT FIT");
    line(out, format!("{verdict}: {needs}{during}, {} too much", bytes(fit.over_bytes)));
    if !fit.remedy.is_empty() {
        line(out, format!("  {}", fit.remedy));
    }
}

pub fn speed(profile: &Profile, out: &mut String) {
    let totals = &profile.totals;
    let flop_rate = if totals.seconds > 0.0 { totals.flops as f64 / totals.seconds } else { 0.0 };
    let mut rows = vec![
        row("latency", duration(profile.latency_s()), cycles(profile)),
        row(
            "throughput",
            format!("{} items/s", amount(profile.throughput_per_s())),
            format!(
                "{} a {} and replica{}",
                items(profile.items_per_run),
                call_or_run(profile),
                pace(profile)
            ),
        ),
        row(
            "computing",
            rate(flop_rate, "FLOP/s"),
            format!("{} of {} {} peak", percent(totals.utilisation), whose(profile), totals.peak_type),
        ),
        row(
            "host",
            bytes(totals.host_in_bytes.saturating_add(totals.host_out_bytes)),
            format!(
                "a {}: {} in, {} out",
                call_or_run(profile),
                bytes(totals.host_in_bytes),
                bytes(totals.host_out_bytes)
            ),
        ),
    ];
    rows.extend(iterations(profile));
    if let Some(joules) = totals.energy_j_per_item {
        rows.push(row("energy", energy(joules), "an item".into()));
    }
    if let Some(dollars) = totals.price_usd_per_million {
        let remark = format!("a million items: list price over {SERVICE_YEARS} years of such runs");
        rows.push(row("price", price(dollars), remark));
    }
    for text in aligned(&rows, &[Align::Left, Align::Right, Align::Left]) {
        line(out, text);
    }
}

fn cycles(profile: &Profile) -> String {
    match profile.host_io.iterations {
        0 => format!("{} cycles a run", count(profile.totals.cycles)),
        1 => "of a call with one iteration".into(),
        _ => "of an iteration, from its first byte to its last result".into(),
    }
}

/// What sets the pace of a pipeline, or of a call's iterations.
fn pace(profile: &Profile) -> String {
    let period = match (profile.host_io.iterations, profile.stages.is_empty()) {
        (0, true) => return String::new(),
        (0, false) => profile.period_s(),
        _ => profile.seconds(profile.host_io.period_cycles),
    };
    let (what, bound) =
        (if profile.host_io.iterations > 0 { "an iteration" } else { "a run" }, bound(profile));
    let bound = if bound.is_empty() { String::new() } else { format!(", bound by {bound}") };
    format!(", {what} every {}{bound}", duration(period))
}

/// A call of several iterations, and how much of the host's transfers is hidden behind work.
fn iterations(profile: &Profile) -> Option<Vec<String>> {
    let io = &profile.host_io;
    if io.iterations == 0 {
        return None;
    }
    let call = profile.period_s() + profile.seconds(io.call_cycles);
    let tiles = match io.io_tiles {
        0 => "no I/O tiles, so transfers wait for work and work for them".to_string(),
        n => {
            let hidden: u64 =
                profile.steps.iter().map(|step| step.hidden_cycles.saturating_mul(step.times)).sum();
            let all = io.host_cycles.saturating_mul(io.iterations).max(1);
            format!(
                "{n} I/O tiles, behind which {} of the transfers are hidden",
                percent(hidden as f64 / all as f64)
            )
        }
    };
    let remark = format!(
        "{} iterations, {} to start; {tiles}",
        count(io.iterations),
        duration(profile.seconds(io.call_cycles))
    );
    Some(row("a call", duration(call), remark))
}

fn call_or_run(profile: &Profile) -> &'static str {
    if profile.host_io.iterations > 0 { "call" } else { "run" }
}

fn whose(profile: &Profile) -> String {
    match profile.stages.len() {
        0 | 1 => "one chip's".into(),
        n => format!("{n} chips'"),
    }
}

fn items(number: u64) -> String {
    if number == 1 { "1 item".into() } else { format!("{} items", count(number)) }
}

fn row(name: &str, value: String, remark: String) -> Vec<String> {
    vec![name.into(), value, remark]
}

pub fn trust(profile: &Profile, style: Style, out: &mut String) {
    let trust = &profile.trust;
    let error = match trust.error {
        Some(error) => format!("median error {}", percent(error)),
        None => "not compared with measurements".into(),
    };
    let range = if trust.range.is_empty() { String::new() } else { format!("; {}", trust.range) };
    line(out, style.paint(Tone::Faint, &format!("trust: {error}{range}")));
}
