//! The first and last lines: what ran where, whether it fits, how fast it is, how far to trust that.

use super::columns::{Align, aligned, shortened};
use super::units::{amount, bytes, count, duration, energy, percent, price, rate};
use super::{Style, Tone, line};
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
    let needs =
        format!("tile {} needs {} of {}", fit.tile, bytes(fit.used_bytes), bytes(fit.available_bytes));
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
        row("latency", duration(totals.seconds), format!("{} cycles a run", count(totals.cycles))),
        row(
            "throughput",
            format!("{} items/s", amount(profile.throughput_per_s())),
            format!("{} a run and replica{}", items(profile.items_per_run), pace(profile)),
        ),
        row(
            "computing",
            rate(flop_rate, "FLOP/s"),
            format!("{} of {} {} peak", percent(totals.utilisation), whose(profile), totals.peak_type),
        ),
        row(
            "host",
            bytes(totals.host_in_bytes.saturating_add(totals.host_out_bytes)),
            format!("a run: {} in, {} out", bytes(totals.host_in_bytes), bytes(totals.host_out_bytes)),
        ),
    ];
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

/// What sets the pace of a pipeline.
fn pace(profile: &Profile) -> String {
    match profile.stages.is_empty() {
        true => String::new(),
        false => format!(", a run every {}", duration(profile.period_s())),
    }
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
