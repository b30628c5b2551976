//! Goal: the screen says what a person needs, aligned. Method: exact text of a hand-made profile, blessed on
//! purpose with BLESS=1, and the sums it shows against the numbers in `common`.

mod common;

use common::profile;
use pando_profile::{Style, reduce, table};

fn check(name: &str, actual: &str) {
    let path = format!("{}/tests/golden/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("BLESS").is_some() {
        std::fs::create_dir_all(format!("{}/tests/golden", env!("CARGO_MANIFEST_DIR"))).unwrap();
        std::fs::write(&path, actual).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(expected == actual, "{path} differs (BLESS=1 accepts):\n{actual}");
}

#[test]
fn fits() {
    check("fits", &table(&profile(), Style::Plain));
}

#[test]
fn does_not_fit() {
    let mut profile = profile();
    profile.fit.fits = false;
    profile.fit.available_bytes = 900;
    profile.fit.over_bytes = 100;
    profile.fit.remedy = "use a smaller micro-batch".into();
    profile.totals.energy_j_per_item = None;
    profile.totals.price_usd_per_million = None;
    profile.memory.gap_bytes = None;
    profile.trust = Default::default();
    check("does_not_fit", &table(&profile, Style::Plain));
}

#[test]
fn colours_only_if_asked() {
    let plain = table(&profile(), Style::Plain);
    let coloured = table(&profile(), Style::Color);
    assert!(!plain.contains('\x1b') && coloured.contains("\x1b[1;32mfits\x1b[0m"));
    let mut stripped = coloured;
    for code in ["\x1b[1m", "\x1b[1;32m", "\x1b[1;31m", "\x1b[2m", "\x1b[0m"] {
        stripped = stripped.replace(code, "");
    }
    assert_eq!(stripped, plain);
}

#[test]
fn an_empty_profile_renders() {
    assert!(table(&Default::default(), Style::Plain).contains("DOES NOT FIT"));
}

#[test]
fn reductions() {
    let profile = profile();
    assert_eq!(profile.totals.parts.total(), 3000);
    assert_eq!(profile.throughput_per_s(), 2e6);
    let names: Vec<(&str, u64, u32)> =
        profile.operations.iter().map(|o| (o.name.as_str(), o.cycles, o.steps)).collect();
    assert_eq!(names, [("host in %x", 436, 1), ("layer", 2564, 2)]);
    assert_eq!(reduce::alike(&profile.operations)[0].together.name, "layer");
    assert_eq!(reduce::operation_name("/model/Add:partials"), "/model/Add");
    assert_eq!(reduce::fullest_tiles(&profile.memory, 1)[0].first_tile, 2);
    assert_eq!(reduce::live_at(&profile.variables, 2).len(), 1);
    let over_time: Vec<(u64, u64)> =
        reduce::memory_over_time(&profile).iter().map(|p| (p.start_cycle, p.bytes)).collect();
    assert_eq!(over_time, [(0, 700), (436, 900), (1000, 1000)]);
    let kinds: Vec<u64> = reduce::cycles_by_step_kind(&profile.steps).into_values().collect();
    assert_eq!(kinds, [2000, 564, 436]);
    assert_eq!(profile.steps[2].balance(), Some(0.9));
}

/// Two chips, the second of which waits for what the first sends: a run takes both, minus the wait.
#[test]
fn a_pipeline_is_as_fast_as_its_slowest_stage() {
    let link = |name: &str, cycles, inward: bool| pando_profile::Step {
        cycles,
        parts: pando_profile::Cycles { links: cycles, ..Default::default() },
        sent_bytes: if inward { 0 } else { 64 },
        received_bytes: if inward { 64 } else { 0 },
        ..pando_profile::Step::new(name, pando_profile::StepKind::Links, 1)
    };
    let stage = |step: pando_profile::Step, extra: u64| {
        let mut stage = profile();
        stage.steps.push(step);
        stage.totals.cycles += extra;
        stage.totals.seconds += extra as f64 * 1e-9;
        stage.totals.parts.links += extra;
        stage
    };
    let (first, mut second) =
        (stage(link("links out %h", 100, false), 100), stage(link("links in %h", 60, true), 60));
    second.fit.used_bytes += 1;
    let whole = reduce::pipeline(vec![first, second], 0);
    assert_eq!((whole.totals.cycles, whole.totals.parts.links), (6100, 100));
    assert_eq!(whole.period_s(), 3.1e-6);
    assert_eq!(whole.throughput_per_s(), 2.0 * 3.0 / 3.1e-6);
    // 0.25 mJ in 3.1 µs and in 3.06 µs, stretched to 3.1 µs.
    let energy = 0.000_25 * (1.0 + 3.1 / 3.06);
    assert!((whole.totals.energy_j_per_item.unwrap() / energy - 1.0).abs() < 1e-12);
    assert_eq!(
        whole.stages.iter().map(|s| (s.first_step, s.steps, s.cycles)).collect::<Vec<_>>(),
        [(0, 4, 3100), (4, 4, 3060)]
    );
    assert_eq!((whole.memory.max_step, whole.fit.operation.as_str()), (6, "stage 1, layer"));
    check("pipeline", &table(&whole, Style::Plain));
}
