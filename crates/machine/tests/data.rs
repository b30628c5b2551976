//! The files under `data/`: every one loads and checks, every number states its source, and what
//! follows from the numbers meets what the vendor published. Rows and sections are those named in
//! `data/SOURCES.md`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use pando_machine::{Machine, check, load, names};

fn system(name: &str) -> Machine {
    load(name).unwrap_or_else(|error| panic!("{error}"))
}

fn data_files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("data").join(folder);
    let entries = std::fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// Within a share of the published value.
#[track_caller]
fn near(value: f64, published: f64, share: f64) {
    let off = value / published - 1.0;
    assert!(off.abs() <= share, "{value:e} is {:.2} % off {published:e}", off * 100.0);
}

#[test]
fn every_system_loads_under_its_own_name() {
    for name in names() {
        let machine = system(name);
        assert_eq!(machine.name, *name);
        check(&machine).unwrap();
    }
}

#[test]
fn the_systems_that_scripts_rely_on_exist() {
    let promised = "c2 mk2 m2000 pod4 pod16 pod64 pod128 pod256 bow bow2000 bow-pod16 bow-pod64 \
                    bow-pod128 bow-pod256 c600 pod64k tiny4";
    for name in promised.split_whitespace() {
        assert!(names().contains(&name), "{name}");
    }
}

#[test]
fn every_file_is_built_in() {
    let files = data_files("systems");
    let stems = files.iter().map(|file| file.file_stem().unwrap().to_str().unwrap());
    assert_eq!(stems.collect::<BTreeSet<_>>(), names().iter().copied().collect());
}

#[test]
fn every_number_states_its_source() {
    for file in data_files("systems").into_iter().chain(data_files("chips")) {
        let text = std::fs::read_to_string(&file).unwrap();
        let lines = text.lines().enumerate().filter(|(_, line)| !line.starts_with('#'));
        for (i, line) in lines {
            let Some((_, right)) = line.split_once('=') else { continue };
            let is_text = right.trim_start().starts_with('"');
            let source = right.split_once('#').map_or("", |(_, comment)| comment.trim());
            assert!(is_text || source.len() > 3, "{}:{}: no source: {line}", file.display(), i + 1);
        }
    }
}

/// Section 1, peak rows.
#[test]
fn peaks_are_the_published_ones() {
    let peak = |name: &str, format: &str| system(name).chip.peak_flops(format);
    near(system("c2").chip.clock_hz, 1.6e9, 0.0);
    near(peak("c2", "f16"), 124.5e12, 0.01);
    near(peak("c2", "f32"), 31.1e12, 0.01);
    near(peak("mk2", "f16"), 250e12, 0.01);
    near(peak("mk2", "f32"), 62.5e12, 0.01);
    near(peak("bow", "f16"), 348.6e12, 0.01);
    near(peak("bow", "f32"), 87.1e12, 0.01);
    near(peak("c600", "f8"), 560e12, 0.01);
    near(peak("c600", "f16"), 280e12, 0.01);
    near(peak("c600", "f32"), 70e12, 0.01);
    assert_eq!(peak("mk2", "f8"), 0.0, "GC200 has no f8");
}

/// SYS 2.1, and 16 EFLOPS of the vendor's claims for 64,000 chips.
#[test]
fn system_peaks_are_the_published_ones() {
    near(system("m2000").peak_flops("f16"), 0.999e15, 0.01);
    near(system("pod64").peak_flops("f16"), 15.978e15, 0.01);
    near(system("pod64").peak_flops("f32"), 3.994e15, 0.01);
    near(system("pod128").peak_flops("f16"), 31.955e15, 0.01);
    near(system("bow2000").peak_flops("f16"), 1.4e15, 0.01);
    near(system("bow-pod256").peak_flops("f16"), 89.23e15, 0.01);
    near(system("bow-pod256").peak_flops("f32"), 22.31e15, 0.01);
    near(system("pod64k").peak_flops("f16"), 16e18, 0.01);
}

/// Section 1: SRAM per chip, headline SRAM and exchange bandwidth; section 4: link totals.
#[test]
fn memory_and_bandwidths_are_the_published_ones() {
    const MIB: u64 = 1 << 20;
    let (gc2, gc200) = (system("c2").chip, system("mk2").chip);
    assert_eq!(gc2.sram_bytes(), 304 * MIB);
    assert_eq!(gc200.sram_bytes(), 897 * MIB);
    near(gc200.sram_bytes_per_s(), 47e12, 0.01);
    near(gc2.exchange_bytes_per_s(), 7.8e12, 0.01);
    near(gc200.exchange_bytes_per_s(), 7.8e12, 0.01);
    let links = system("pod64").links.unwrap();
    near(2.0 * f64::from(links.links_per_chip) * links.link_bytes_per_s, 320e9, 0.0);
    // Row 36: both directions of what 2 links carry; 5 % because the efficiency is PopLibs's, not
    // fitted to this row.
    near(2.0 * links.rail_bytes_per_s() * 8.0, 423.31e9, 0.05);
    // SYS 2.1: in-processor and streaming memory together.
    let memory = |name: &str| (system(name).sram_bytes() + system(name).ddr_bytes()) as f64;
    near(memory("pod64"), 4.2e12, 0.02);
    near(memory("pod128"), 8.4e12, 0.02);
    near(memory("bow-pod256"), 16.6e12, 0.02);
}

/// SYS 2.3, and the claim of ~259,000 US$ for 8 machines.
#[test]
fn compositions_are_the_published_ones() {
    let composition = |name: &str| {
        let machine = system(name);
        (machine.machines(), machine.domains(), machine.domain_chips())
    };
    assert_eq!(composition("c2"), (1, 1, 2));
    assert_eq!(composition("mk2"), (1, 1, 1));
    assert_eq!(composition("m2000"), (1, 1, 4));
    assert_eq!(composition("pod16"), (4, 1, 16));
    assert_eq!(composition("pod64"), (16, 1, 64));
    assert_eq!(composition("pod128"), (32, 2, 64));
    assert_eq!(composition("bow-pod256"), (64, 4, 64));
    assert_eq!(composition("pod64k"), (16_000, 1_000, 64));
    assert_eq!(system("mk2").tiles_total(), 1472);
    assert_eq!(system("pod64k").tiles_total(), 94_208_000);
    assert_eq!(system("tiny4").tiles_total(), 4);
    near(2.0 * system("pod16").price_usd.unwrap(), 259_000.0, 0.01);
    near(system("m2000").power_w.unwrap(), 1200.0, 0.0);
}

/// Section 4: 15 ns per hop, hops = 1 + (N / 2) / 2, cycles = 15e-9 x f x hops x 2.
#[test]
fn barriers_among_chips_follow_the_vendors_model() {
    let pod64 = system("pod64");
    assert_eq!(pod64.chips_sync_s(1), 0.0);
    near(pod64.chips_sync_s(2), 30e-9, 1e-9);
    near(pod64.chips_sync_s(4), 60e-9, 1e-9);
    near(pod64.chips_sync_s(64), 510e-9, 1e-9);
    let pod128 = system("pod128");
    near(pod128.chips_sync_s(64), 510e-9, 1e-9);
    let gateway_s = pod128.gateway.as_ref().unwrap().latency_s;
    near(pod128.chips_sync_s(128), 510e-9 + 2.0 * gateway_s, 1e-9);
}

/// A system with the same chip, written as JSON: field names are the files' own.
#[test]
fn systems_serialise() {
    let json = serde_json::to_value(system("pod128")).unwrap();
    assert_eq!(json["chip"]["sram"]["bytes_per_tile"], 638_976);
    assert_eq!(json["links"]["topology"], "torus");
    assert_eq!(json["gateway"]["topology"], "ring");
    let json = serde_json::to_value(system("tiny4")).unwrap();
    assert!(json["links"].is_null());
}
