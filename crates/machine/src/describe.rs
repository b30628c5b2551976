//! A machine as a table for people.
//!
//! In: a [`Machine`]. Out: aligned text with units, ending in a newline. Deliberately not here:
//! JSON (the structs serialise themselves) and the sources of numbers (the files show them).

use std::fmt::Write;

use crate::chip::Chip;
use crate::machine::{Ddr, Gateway, GatewayTopology, Host, Links, Machine, Topology};

/// A label and what stands beside it.
type Row = (&'static str, String);

/// Everything a machine consists of and the peaks that follow, one fact a line.
pub fn describe(machine: &Machine) -> String {
    let mut sections = vec![
        (format!("Chip {}", machine.chip.name), chip_rows(&machine.chip)),
        ("System".to_string(), system_rows(machine)),
    ];
    if let Some(links) = &machine.links {
        sections.push(("Links".to_string(), links_rows(links)));
    }
    if let Some(gateway) = &machine.gateway {
        sections.push(("Gateway".to_string(), gateway_rows(gateway)));
    }
    if let Some(ddr) = &machine.ddr {
        sections.push(("DDR".to_string(), ddr_rows(ddr)));
    }
    sections.push(("Host".to_string(), host_rows(&machine.host)));
    sections.push(("Cost".to_string(), cost_rows(machine)));
    let width = sections.iter().flat_map(|(_, rows)| rows).map(|(label, _)| label.len()).max();
    let width = width.unwrap_or(0);
    let mut text = format!("{}: {}\n", machine.name, machine.title);
    for (title, rows) in &sections {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "\n{title}");
        for (label, value) in rows {
            let _ = writeln!(text, "  {label:<width$}  {value}");
        }
    }
    text
}

fn chip_rows(chip: &Chip) -> Vec<Row> {
    let (sram, issue, exchange) = (&chip.sram, &chip.issue, &chip.exchange);
    let mut rows = vec![
        ("tiles", format!("{}, {} workers each", chip.tiles, chip.workers)),
        ("clock", si(chip.clock_hz, "Hz")),
        ("SRAM", format!("{} ({} per tile)", binary(chip.sram_bytes()), binary(sram.bytes_per_tile))),
        (
            "SRAM regions",
            format!(
                "{} for code or data, {} interleaved, {} elements",
                binary(sram.executable_bytes),
                binary(sram.interleaved_bytes),
                binary(sram.element_bytes)
            ),
        ),
        (
            "SRAM bandwidth",
            format!(
                "{} ({} or {} B load + {} B store per cycle and tile)",
                si(chip.sram_bytes_per_s(), "B/s"),
                issue.load_bytes_per_cycle,
                issue.interleaved_load_bytes_per_cycle,
                issue.store_bytes_per_cycle
            ),
        ),
        ("vector", format!("{} B", issue.vector_bytes)),
    ];
    rows.extend(chip.matrix.iter().map(|rate| {
        let peak = 2.0 * rate.macs_per_cycle() * f64::from(chip.tiles) * chip.clock_hz;
        let formats = format!("{} to {}", rate.input, rate.partials);
        let macs = rate.macs_per_cycle();
        ("matrix peak", format!("{} {formats} ({macs} MAC per cycle and tile)", si(peak, "FLOP/s")))
    }));
    rows.extend([
        (
            "exchange",
            format!(
                "{} ({} B per cycle and tile, buses of {} tiles{})",
                si(chip.exchange_bytes_per_s(), "B/s"),
                exchange.bytes_per_cycle,
                exchange.tiles_per_bus,
                if exchange.multicast { ", multicast" } else { "" }
            ),
        ),
        ("exchange setup", format!("{} cycles", exchange.setup_cycles)),
        ("exchange code", format!("{} B per message and tile", exchange.message_code_bytes)),
        (
            "host packets",
            format!(
                "up to {} B, {} B of header and code",
                exchange.host_packet_bytes, exchange.host_packet_code_bytes
            ),
        ),
        ("sync in chip", format!("{} cycles", chip.sync.internal_cycles)),
        ("sync with host", si(chip.sync.external_s, "s")),
        ("sync among chips", format!("{} per hop", si(chip.sync.hop_s, "s"))),
        ("power", optional(chip.power_w, |watts| si(watts, "W"))),
    ]);
    rows
}

fn system_rows(machine: &Machine) -> Vec<Row> {
    let mut rows = vec![
        ("chips", format!("{} in {}", machine.chips, plural(machine.machines(), "machine"))),
        ("tiles", machine.tiles_total().to_string()),
        ("SRAM", binary(machine.sram_bytes())),
    ];
    let mut formats: Vec<&str> = machine.chip.matrix.iter().map(|rate| &*rate.input).collect();
    formats.dedup();
    rows.extend(
        formats
            .into_iter()
            .map(|format| ("matrix peak", format!("{} {format}", si(machine.peak_flops(format), "FLOP/s")))),
    );
    let sync_s = machine.chips_sync_s(machine.chips);
    if sync_s > 0.0 {
        rows.push(("sync of all chips", si(sync_s, "s")));
    }
    rows
}

fn links_rows(links: &Links) -> Vec<Row> {
    let topology = match links.topology {
        Topology::Pair => "pair",
        Topology::Ladder => "ladder",
        Topology::Torus => "torus",
        Topology::Full => "full",
    };
    let bundle = |links: u32, rate: f64| format!("{} per direction ({links} links)", si(rate, "B/s"));
    vec![
        ("domain", format!("{} chips, {topology}", links.domain_chips)),
        (
            "link",
            format!(
                "{} per direction, {} % usable, {} links per chip",
                si(links.link_bytes_per_s, "B/s"),
                digits(links.efficiency * 100.0),
                links.links_per_chip
            ),
        ),
        ("rung", bundle(links.rung_links, links.rung_bytes_per_s())),
        ("rail", bundle(links.rail_links, links.rail_bytes_per_s())),
        ("hop latency", si(links.hop_latency_s, "s")),
    ]
}

fn gateway_rows(gateway: &Gateway) -> Vec<Row> {
    let topology = match gateway.topology {
        GatewayTopology::Ring => "ring",
        GatewayTopology::Switch => "switch",
    };
    vec![
        ("domains", format!("{}, {topology}", gateway.domains)),
        ("bandwidth", format!("{} per direction and machine", si(gateway.bytes_per_s, "B/s"))),
        ("latency", si(gateway.latency_s, "s")),
    ]
}

fn ddr_rows(ddr: &Ddr) -> Vec<Row> {
    let capacity = si(ddr.bytes_per_machine as f64, "B");
    vec![
        ("capacity", format!("{capacity} per {}", plural(ddr.chips_per_machine, "chip"))),
        (
            "bandwidth",
            format!("{} peak, {} % usable", si(ddr.bytes_per_s, "B/s"), digits(ddr.efficiency * 100.0)),
        ),
        ("chip to DDR", format!("{} peak per direction", si(ddr.chip_bytes_per_s, "B/s"))),
    ]
}

fn host_rows(host: &Host) -> Vec<Row> {
    vec![
        ("attachment", format!("one per {}", plural(host.chips_per_attachment, "chip"))),
        ("to chip", si(host.bytes_to_chip_per_s, "B/s")),
        ("from chip", si(host.bytes_from_chip_per_s, "B/s")),
        ("latency, host ready", si(host.ready_latency_s, "s")),
        ("latency, host waited", si(host.callback_latency_s, "s")),
    ]
}

fn cost_rows(machine: &Machine) -> Vec<Row> {
    vec![
        ("price", optional(machine.price_usd, |dollars| format!("{dollars:.0} US$"))),
        ("power", optional(machine.power_w, |watts| si(watts, "W"))),
    ]
}

fn optional(value: Option<f64>, show: impl Fn(f64) -> String) -> String {
    value.map_or_else(|| "no source".to_string(), show)
}

fn plural(count: u32, noun: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{ending}")
}

/// Four significant digits, without trailing zeros.
fn digits(value: f64) -> String {
    let magnitude = if value == 0.0 { 0 } else { value.abs().log10().floor() as i32 };
    let decimals = (3 - magnitude).clamp(0, 9) as usize;
    let text = format!("{value:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => text,
    }
}

/// A value with the SI prefix that leaves one to three digits before the point.
fn si(value: f64, unit: &str) -> String {
    const PREFIXES: [(f64, &str); 10] = [
        (1e18, "E"),
        (1e15, "P"),
        (1e12, "T"),
        (1e9, "G"),
        (1e6, "M"),
        (1e3, "k"),
        (1.0, ""),
        (1e-3, "m"),
        (1e-6, "µ"),
        (1e-9, "n"),
    ];
    let fits = PREFIXES.iter().find(|(scale, _)| value.abs() >= *scale);
    let (scale, prefix) = fits.copied().unwrap_or((1.0, ""));
    format!("{} {prefix}{unit}", digits(value / scale))
}

/// Bytes with a binary prefix.
fn binary(bytes: u64) -> String {
    const PREFIXES: [(u32, &str); 6] =
        [(60, "EiB"), (50, "PiB"), (40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    match PREFIXES.iter().find(|(bits, _)| bytes >> bits > 0) {
        Some((bits, unit)) => format!("{} {unit}", digits(bytes as f64 / (1u64 << bits) as f64)),
        None => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_units_and_four_digits() {
        assert_eq!(si(1.325e9, "Hz"), "1.325 GHz");
        assert_eq!(si(249.6e12, "FLOP/s"), "249.6 TFLOP/s");
        assert_eq!(si(0.363e-6, "s"), "363 ns");
        assert_eq!(si(0.0, "s"), "0 s");
        assert_eq!(si(300.0, "W"), "300 W");
        assert_eq!(binary(638_976), "624 KiB");
        assert_eq!(binary(940_572_672), "897 MiB");
        assert_eq!(binary(12), "12 B");
        assert_eq!(digits(99.99999), "100");
    }
}
