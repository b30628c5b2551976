//! Goal: values, cycles and bytes of small programs are exactly what one computes by hand.
//! Method: every file under `programs/` says in its header what must come out on `tiny4`, with the sums
//! written beside it (`;;`). Keys: `step NAME:` (one execution), `operation NAME:`, `total`, `memory`,
//! `in NAME:`, `out NAME:`. What is not named is not checked here but in the table of the whole run, which is
//! blessed on purpose with BLESS=1.

use pando_base::{Id, Tensor};
use pando_profile::{Fit, Profile, Step, Style};
use pando_sim::{RunOptions, profile, run};
use pando_tile::{Program, VarId, parse};
use std::collections::BTreeMap;

struct File {
    name: String,
    text: String,
    program: Program,
}

fn files() -> Vec<File> {
    let folder = format!("{}/tests/programs", env!("CARGO_MANIFEST_DIR"));
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "tile"));
    paths.sort();
    let file = |path: &std::path::PathBuf| {
        let text = std::fs::read_to_string(path).unwrap();
        let program = parse(&text, &path.display().to_string()).unwrap_or_else(|error| panic!("{error}"));
        File { name: path.file_stem().unwrap().to_string_lossy().into(), text, program }
    };
    paths.iter().map(file).collect()
}

impl File {
    /// What follows `; KEY ` in the header, line by line.
    fn lines(&self, key: &str) -> Vec<&str> {
        let prefix = format!("; {key} ");
        self.text.lines().filter_map(|line| line.strip_prefix(prefix.as_str())).collect()
    }

    /// Lines of the form `NAME: …`.
    fn named(&self, key: &str) -> Vec<(&str, &str)> {
        let split =
            |line| -> (&str, &str) { str::rsplit_once(line, ": ").unwrap_or_else(|| panic!("{line}")) };
        self.lines(key).into_iter().map(split).collect()
    }

    fn var(&self, name: &str) -> VarId {
        let found = self.program.vars.iter().find(|(_, var)| var.name == name);
        found.unwrap_or_else(|| panic!("{}: no %{name}", self.name)).0
    }

    fn tensor(&self, name: &str, values: &str) -> Tensor {
        let var = &self.program.vars[self.var(name)];
        let values: Vec<f64> = values.split_whitespace().map(|word| word.parse().unwrap()).collect();
        Tensor::from_f64(var.dtype, var.shape.clone(), &values)
    }

    fn profile(&self) -> Profile {
        profile(&self.program, &pando_machine::load("tiny4").unwrap(), None, fits(), 1)
    }
}

/// Whether it fits is the caller's to say.
fn fits() -> Fit {
    Fit { fits: true, ..Fit::default() }
}

/// `key=value …` against actual values.
fn check(place: &str, expected: &str, actual: &[(&str, f64)]) {
    for pair in expected.split_whitespace() {
        let (key, value) =
            pair.split_once('=').unwrap_or_else(|| panic!("{place}: '{pair}' is no key=value"));
        let found =
            actual.iter().find(|(name, _)| *name == key).unwrap_or_else(|| panic!("{place}: no key {key}"));
        assert_eq!(found.1, value.parse::<f64>().unwrap(), "{place}: {key}");
    }
}

fn step_values(step: &Step) -> Vec<(&'static str, f64)> {
    vec![
        ("times", step.times as f64),
        ("cycles", step.cycles as f64),
        ("compute", step.parts.compute as f64),
        ("exchange", step.parts.exchange as f64),
        ("sync", step.parts.sync as f64),
        ("local", step.parts.local_copy as f64),
        ("host", step.parts.host as f64),
        ("busiest", step.busiest_tile.into()),
        ("tiles", step.tiles_used.into()),
        ("mean", step.mean_tile_cycles),
        ("max", step.max_tile_cycles as f64),
        ("vertices", step.vertices as f64),
        ("flops", step.flops as f64),
        ("sent", step.sent_bytes as f64),
        ("received", step.received_bytes as f64),
        ("localbytes", step.local_bytes as f64),
        ("messages", step.messages as f64),
        ("host_bytes", step.host_bytes as f64),
        ("hidden", step.hidden_cycles as f64),
        ("live", step.live_bytes_peak as f64),
        ("livetile", step.live_peak_tile.into()),
    ]
}

#[test]
fn values() {
    for file in files() {
        let inputs: BTreeMap<VarId, Tensor> = file
            .named("in")
            .into_iter()
            .map(|(name, values)| (file.var(name), file.tensor(name, values)))
            .collect();
        let options = RunOptions { strict: true, ..RunOptions::default() };
        let outputs = run(&file.program, |var| inputs.get(&var).cloned(), &options).unwrap();
        let expected = file.named("out");
        assert_eq!(outputs.vars.len(), expected.len(), "{}: outputs named", file.name);
        for (name, values) in expected {
            assert_eq!(
                outputs.tensor(file.var(name)),
                Some(file.tensor(name, values)),
                "{} %{name}",
                file.name
            );
        }
    }
}

#[test]
fn cycles_and_bytes() {
    for file in files() {
        let profile = file.profile();
        for (name, expected) in file.named("step") {
            let step = profile.steps.iter().find(|step| step.name == name);
            let step = step.unwrap_or_else(|| panic!("{}: no step {name}", file.name));
            check(&format!("{} {name}", file.name), expected, &step_values(step));
        }
        for (name, expected) in file.named("operation") {
            let operation = profile.operations.iter().find(|operation| operation.name == name).unwrap();
            let actual = [
                ("cycles", operation.cycles as f64),
                ("flops", operation.flops as f64),
                ("sent", operation.sent_bytes as f64),
                ("steps", operation.steps.into()),
            ];
            check(&format!("{} {name}", file.name), expected, &actual);
        }
        file.lines("total").into_iter().for_each(|expected| check_total(&file, &profile, expected));
        file.lines("memory").into_iter().for_each(|expected| check_memory(&file, &profile, expected));
    }
}

fn check_total(file: &File, profile: &Profile, expected: &str) {
    let totals = &profile.totals;
    let actual = [
        ("cycles", totals.cycles as f64),
        ("flops", totals.flops as f64),
        ("in", totals.host_in_bytes as f64),
        ("out", totals.host_out_bytes as f64),
    ];
    check(&format!("{} total", file.name), expected, &actual);
}

fn check_memory(file: &File, profile: &Profile, expected: &str) {
    let (memory, fullest) = (&profile.memory, &profile.memory.fullest);
    let actual = [
        ("max", memory.max_used as f64),
        ("tile", memory.max_tile.into()),
        ("step", memory.max_step.into()),
        ("mean", memory.mean_used),
        ("always", fullest.always_live as f64),
        ("temporary", fullest.temporary as f64),
        ("code", fullest.code as f64),
        ("vertex", fullest.vertex_state as f64),
        ("exchange", fullest.exchange_code as f64),
        ("host", fullest.host_code as f64),
        ("stacks", fullest.stacks as f64),
    ];
    check(&format!("{} memory", file.name), expected, &actual);
}

/// The whole run as people see it.
#[test]
fn tables() {
    for file in files() {
        let path = format!("{}/tests/programs/{}.txt", env!("CARGO_MANIFEST_DIR"), file.name);
        let mut profile = file.profile();
        let (tile, used) = (profile.memory.max_tile, profile.memory.max_used);
        profile.fit = Fit { tile, used_bytes: used, available_bytes: profile.memory.tile_bytes, ..fits() };
        let table = pando_profile::table(&profile, Style::Plain);
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(&path, &table).unwrap();
        }
        let expected = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(expected == table, "{path} differs (BLESS=1 accepts):\n{table}");
    }
}

/// Replicas are counted: they change the throughput and how the way to the host is shared, not the work.
#[test]
fn replicas_cost_no_time() {
    let file = files().into_iter().find(|file| file.name == "add").unwrap();
    let machine = pando_machine::load("pod64k").unwrap();
    let with = |replicas| {
        let program = Program { replicas, ..file.program.clone() };
        profile(&program, &machine, None, fits(), 1)
    };
    let (one, many) = (with(1), with(64_000));
    assert_eq!(one.steps[1], many.steps[1]);
    // Four chips share an attachment: 1762.25 + 4 x 48.045.
    assert_eq!((one.steps[0].cycles, many.steps[0].cycles), (1811, 1955));
    assert_eq!(with(3).steps[0].cycles, 1907);
    assert!(many.throughput_per_s() > 50_000.0 * one.throughput_per_s());
}

/// Sums saturate, they never wrap, whatever a program that was not validated asks for.
#[test]
fn endless_loops_saturate() {
    let text = "program \"long\" tiles=1 replicas=1\nvar %x: f32[1] temp on 0 [0..1]\n\
                compute @cs0 \"fill\" { fill{value=1} on 0 %x[0..1] }\n\
                main { repeat 2 { repeat 9 { compute @cs0 } } }";
    let mut program = parse(text, "long").unwrap();
    let pando_tile::Step::Repeat { count, .. } = &mut program.body[0] else { panic!("the loop") };
    *count = u64::MAX;
    let profile = profile(&program, &pando_machine::load("tiny4").unwrap(), None, fits(), 1);
    assert_eq!(profile.totals.cycles, u64::MAX);
    assert_eq!(program.vars.ids().next().map(Id::index), Some(0));
}
