//! Whether a machine makes sense, and is small enough to calculate with.
//!
//! In: a [`Machine`]. Out: nothing, or the first field that is wrong. After a check every count is
//! bounded by the limits below, so that chips x tiles x bytes fits an `i64` and any product of two
//! rates is a finite `f64`; other crates rely on it. Deliberately not here: types and missing
//! fields (serde), and messages.

use pando_base::Error;

use crate::chip::{Chip, Exchange, Issue, MatrixRate, Sram};
use crate::errors::{self, Problem};
use crate::machine::{Ddr, Gateway, Host, Links, Machine, Topology};

type Checked = Result<(), Problem>;

/// A million chips; the vendor's largest plan was 65,536.
const CHIPS_MAX: u64 = 1 << 20;
const TILES_MAX: u64 = 1 << 16;
/// 128 MiB; a tile's addresses have 21 bits. 2^20 chips x 2^16 tiles x 2^27 bytes = 2^63 overflows
/// an `i64` by one, hence the - 1.
const TILE_BYTES_MAX: u64 = (1 << 27) - 1;
const MACHINE_BYTES_MAX: u64 = 1 << 43;
const WORKERS_MAX: u64 = 1 << 10;
/// Bytes or cycles of single steps.
const STEP_MAX: u64 = 1 << 20;
/// Hertz, bytes per second, dollars, watts.
const RATE_MAX: f64 = 1e18;
const LATENCY_MAX_S: f64 = 1000.0;

const INPUT_FORMATS: &[&str] = &["f8", "f16", "f32"];
const PARTIAL_FORMATS: &[&str] = &["f16", "f32"];

/// The first thing that is wrong with a machine, as an error that names the field.
pub fn check(machine: &Machine) -> Result<(), Error> {
    problem(machine).map_err(|problem| errors::field_without_text(&problem))
}

/// As [`check`], for callers that know the text.
pub(crate) fn problem(machine: &Machine) -> Checked {
    named("name", &machine.name)?;
    count("chips", machine.chips.into(), 1, CHIPS_MAX)?;
    optional_rate("price_usd", machine.price_usd)?;
    optional_rate("power_w", machine.power_w)?;
    chip_problem(&machine.chip).map_err(|problem| problem.under("chip"))?;
    if let Some(links) = &machine.links {
        links_problem(links).map_err(|problem| problem.under("links"))?;
    }
    if let Some(gateway) = &machine.gateway {
        gateway_problem(gateway).map_err(|problem| problem.under("gateway"))?;
    }
    if let Some(ddr) = &machine.ddr {
        ddr_problem(ddr, machine.chips).map_err(|problem| problem.under("ddr"))?;
    }
    host_problem(&machine.host, machine.chips).map_err(|problem| problem.under("host"))?;
    domains_problem(machine)
}

/// As [`problem`], for a chip alone; fields count from the chip.
pub(crate) fn chip_problem(chip: &Chip) -> Checked {
    named("name", &chip.name)?;
    count("tiles", chip.tiles.into(), 1, TILES_MAX)?;
    count("workers", chip.workers.into(), 1, WORKERS_MAX)?;
    rate("clock_hz", chip.clock_hz)?;
    optional_rate("power_w", chip.power_w)?;
    sram_problem(&chip.sram).map_err(|problem| problem.under("sram"))?;
    issue_problem(&chip.issue).map_err(|problem| problem.under("issue"))?;
    matrix_problem(&chip.matrix)?;
    exchange_problem(&chip.exchange).map_err(|problem| problem.under("exchange"))?;
    let sync = &chip.sync;
    count("sync.internal_cycles", sync.internal_cycles, 0, STEP_MAX)?;
    latency("sync.external_s", sync.external_s)?;
    latency("sync.hop_s", sync.hop_s)
}

fn sram_problem(sram: &Sram) -> Checked {
    count("bytes_per_tile", sram.bytes_per_tile, 1, TILE_BYTES_MAX)?;
    count("executable_bytes", sram.executable_bytes, 1, TILE_BYTES_MAX)?;
    count("interleaved_bytes", sram.interleaved_bytes, 0, TILE_BYTES_MAX)?;
    count("element_bytes", sram.element_bytes, 1, TILE_BYTES_MAX)?;
    // Both are below 2^27, so the sum cannot overflow.
    if sram.executable_bytes + sram.interleaved_bytes != sram.bytes_per_tile {
        let (executable, interleaved) = (sram.executable_bytes, sram.interleaved_bytes);
        return Err(errors::regions_do_not_add_up(executable, interleaved, sram.bytes_per_tile));
    }
    Ok(())
}

fn issue_problem(issue: &Issue) -> Checked {
    count("load_bytes_per_cycle", issue.load_bytes_per_cycle, 1, STEP_MAX)?;
    let interleaved = issue.interleaved_load_bytes_per_cycle;
    count("interleaved_load_bytes_per_cycle", interleaved, 1, STEP_MAX)?;
    count("store_bytes_per_cycle", issue.store_bytes_per_cycle, 1, STEP_MAX)?;
    count("memcpy_bytes_per_cycle", issue.memcpy_bytes_per_cycle, 1, STEP_MAX)?;
    count("vector_bytes", issue.vector_bytes, 1, STEP_MAX)?;
    count("supervisor_stall_cycles", issue.supervisor_stall_cycles, 0, STEP_MAX)?;
    count("vertex_dispatch_cycles", issue.vertex_dispatch_cycles, 0, STEP_MAX)
}

fn matrix_problem(rates: &[MatrixRate]) -> Checked {
    if rates.is_empty() {
        return Err(errors::no_matrix_rate());
    }
    for (i, rate) in rates.iter().enumerate() {
        let table = format!("matrix[{i}]");
        matrix_rate_problem(rate).map_err(|problem| problem.under(&table))?;
        let same = |other: &MatrixRate| other.input == rate.input && other.partials == rate.partials;
        if rates[..i].iter().any(same) {
            let field = format!("{table}.input");
            return Err(errors::matrix_rate_twice(&field, &rate.input, &rate.partials));
        }
    }
    Ok(())
}

fn matrix_rate_problem(rate: &MatrixRate) -> Checked {
    format_known("input", &rate.input, INPUT_FORMATS)?;
    format_known("partials", &rate.partials, PARTIAL_FORMATS)?;
    count("conv_units", rate.conv_units, 1, STEP_MAX)?;
    count("weights_per_unit", rate.weights_per_unit, 1, STEP_MAX)?;
    count("coeff_load_bytes_per_cycle", rate.coeff_load_bytes_per_cycle, 1, STEP_MAX)?;
    count("cycles_per_row", rate.cycles_per_row, 1, STEP_MAX)
}

fn exchange_problem(exchange: &Exchange) -> Checked {
    count("bytes_per_cycle", exchange.bytes_per_cycle, 1, STEP_MAX)?;
    count("tiles_per_bus", exchange.tiles_per_bus.into(), 1, 2)?;
    count("setup_cycles", exchange.setup_cycles, 0, STEP_MAX)?;
    count("message_code_bytes", exchange.message_code_bytes, 0, STEP_MAX)?;
    count("host_packet_bytes", exchange.host_packet_bytes, 1, STEP_MAX)?;
    count("host_packet_code_bytes", exchange.host_packet_code_bytes, 0, STEP_MAX)
}

fn links_problem(links: &Links) -> Checked {
    count("domain_chips", links.domain_chips.into(), 2, CHIPS_MAX)?;
    count("links_per_chip", links.links_per_chip.into(), 1, STEP_MAX)?;
    count("rung_links", links.rung_links.into(), 0, STEP_MAX)?;
    count("rail_links", links.rail_links.into(), 0, STEP_MAX)?;
    rate("link_bytes_per_s", links.link_bytes_per_s)?;
    share("efficiency", links.efficiency)?;
    latency("hop_latency_s", links.hop_latency_s)?;
    topology_problem(links)
}

/// The links each chip needs for its topology are there, and the number of chips suits it.
fn topology_problem(links: &Links) -> Checked {
    let chips = links.domain_chips;
    let (rung, rail) = (u64::from(links.rung_links), u64::from(links.rail_links));
    // What the topology is called, which chips it takes, and the links on its busiest chip.
    let (name, suits, expected, uses_rung, rails) = match links.topology {
        Topology::Pair => ("pair", chips == 2, "2", true, 0),
        Topology::Ladder => {
            let rails = u64::from(chips).div_ceil(2).saturating_sub(1).min(2);
            ("ladder", chips.is_multiple_of(2), "an even number", true, rails)
        }
        Topology::Torus => ("torus", chips.is_multiple_of(2) && chips >= 4, "an even number from 4", true, 2),
        Topology::Full => ("full", chips >= 2, "at least 2", false, u64::from(chips - 1)),
    };
    if !suits {
        return Err(errors::wrong_domain_for_topology(chips, name, expected));
    }
    if uses_rung && rung == 0 {
        return Err(errors::no_parallel_links("rung_links", name));
    }
    if rails > 0 && rail == 0 {
        return Err(errors::no_parallel_links("rail_links", name));
    }
    // At most 2^20 + 2^20 x 2^20.
    let needed = u64::from(uses_rung) * rung + rails * rail;
    if needed > links.links_per_chip.into() {
        return Err(errors::too_many_links(needed, links.links_per_chip));
    }
    Ok(())
}

fn gateway_problem(gateway: &Gateway) -> Checked {
    count("domains", gateway.domains.into(), 1, CHIPS_MAX)?;
    rate("bytes_per_s", gateway.bytes_per_s)?;
    latency("latency_s", gateway.latency_s)
}

fn ddr_problem(ddr: &Ddr, chips: u32) -> Checked {
    count("bytes_per_machine", ddr.bytes_per_machine, 1, MACHINE_BYTES_MAX)?;
    at_most_all("chips_per_machine", ddr.chips_per_machine, chips)?;
    rate("bytes_per_s", ddr.bytes_per_s)?;
    share("efficiency", ddr.efficiency)?;
    rate("chip_bytes_per_s", ddr.chip_bytes_per_s)
}

fn host_problem(host: &Host, chips: u32) -> Checked {
    rate("bytes_to_chip_per_s", host.bytes_to_chip_per_s)?;
    rate("bytes_from_chip_per_s", host.bytes_from_chip_per_s)?;
    at_most_all("chips_per_attachment", host.chips_per_attachment, chips)?;
    latency("callback_latency_s", host.callback_latency_s)?;
    latency("ready_latency_s", host.ready_latency_s)
}

/// Domains times chips per domain is all chips, and more than one chip needs links.
fn domains_problem(machine: &Machine) -> Checked {
    let domains = machine.domains();
    let Some(links) = &machine.links else {
        return match machine.chips.max(domains) {
            1 => Ok(()),
            several => Err(errors::no_links(several)),
        };
    };
    if u64::from(domains) * u64::from(links.domain_chips) != u64::from(machine.chips) {
        return Err(errors::chips_do_not_match(machine.chips, domains, links.domain_chips));
    }
    Ok(())
}

fn named(field: &str, value: &str) -> Checked {
    if value.trim().is_empty() { Err(errors::empty_text(field)) } else { Ok(()) }
}

fn format_known(field: &str, value: &str, formats: &[&str]) -> Checked {
    if formats.contains(&value) { Ok(()) } else { Err(errors::unknown_format(field, value, formats)) }
}

fn count(field: &str, value: u64, min: u64, max: u64) -> Checked {
    if (min..=max).contains(&value) { Ok(()) } else { Err(errors::out_of_range(field, value, min, max)) }
}

fn at_most_all(field: &str, value: u32, chips: u32) -> Checked {
    count(field, value.into(), 1, CHIPS_MAX)?;
    if value <= chips { Ok(()) } else { Err(errors::more_than_there_are(field, value, "the system", chips)) }
}

// NaN fails each of the three comparisons below.

fn rate(field: &str, value: f64) -> Checked {
    if value > 0.0 && value <= RATE_MAX {
        Ok(())
    } else {
        Err(errors::rate_out_of_range(field, value, RATE_MAX))
    }
}

fn optional_rate(field: &str, value: Option<f64>) -> Checked {
    value.map_or(Ok(()), |value| rate(field, value))
}

fn latency(field: &str, value: f64) -> Checked {
    if (0.0..=LATENCY_MAX_S).contains(&value) {
        Ok(())
    } else {
        Err(errors::latency_out_of_range(field, value, LATENCY_MAX_S))
    }
}

fn share(field: &str, value: f64) -> Checked {
    if value > 0.0 && value <= 1.0 { Ok(()) } else { Err(errors::share_out_of_range(field, value)) }
}
