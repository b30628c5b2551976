//! Goal: every operator's file under tests/ops gives the same values on tiles as its `run` lines say, at an
//! exact cost. Method: each function that has such lines is compiled for `tiny4` (four tiles; tensors split down to eight bytes),
//! its values are computed tile by tile and compared with the expected ones and with the evaluator, every
//! checker looks at it, its explicit form must agree, and the cycles and memory of `main` must equal the table
//! kept beside the file (`BLESS=1` writes tables). Values are also computed on 5 and 16 tiles where fixed costs are
//! nothing, so that every operator is split over tiles in as many ways as it can be.

mod common;

use pando_base::{DType, Tensor};
use pando_graph::testing::{compare, run_lines, tolerance};
use pando_graph::{Module, bind_dims};
use pando_lower::{Compiled, Options, compile};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Functions that have no lowering, with what `compile` must say.
const UNSUPPORTED: &str = include_str!("unsupported.txt");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/ops")
}

fn files() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root()).expect("tests/ops is there");
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "graph"))
        .collect();
    files.sort();
    files
}

/// Tiles compute in the operands' own types; the evaluator in f64. What a file allows, and a few units in
/// the last place of the results' type.
fn allowed(file_tolerance: f64, expected: &[Tensor]) -> f64 {
    let of_type = |tensor: &Tensor| match tensor.dtype() {
        DType::F32 => 4e-6,
        DType::F16 => 4e-3,
        DType::BF16 => 2e-2,
        DType::F8(..) => 0.13,
        _ => 0.0,
    };
    expected.iter().map(of_type).fold(file_tolerance, f64::max)
}

#[test]
fn every_operator_file_on_tiles() {
    let machine = pando_machine::load("tiny4").expect("built in");
    let options = Options { min_tile_bytes: 8, ..Options::default() };
    let spreading = [5, 16].map(common::spreading_machine);
    let (mut lowered, mut refused) = (0, String::new());
    for path in files() {
        let name = path.file_stem().expect("a file").to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).expect("readable");
        let module = pando_graph::parse(&text, &name).unwrap_or_else(|error| panic!("{error}"));
        let mut funcs: Vec<String> =
            run_lines(&text).expect("readable").into_iter().map(|line| line.func).collect();
        funcs.sort();
        funcs.dedup();
        for func in funcs {
            let case = Case { name: &name, text: &text, func: &func };
            let module = bound(with_main(&module, &func), case);
            match compile(&module, &machine, &options) {
                Err(error) => writeln!(refused, "{name} @{func}: {}", error.message()).expect("a string"),
                Ok(compiled) => {
                    check_values(case, &compiled, &machine);
                    if func == "main" {
                        check_table(&name, &table(&compiled, &machine));
                    }
                    check_spread(case, &module, &spreading);
                    lowered += 1;
                }
            }
        }
    }
    assert!(lowered > 150, "only {lowered} functions were lowered");
    if std::env::var_os("BLESS").is_some() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/unsupported.txt");
        std::fs::write(path, &refused).expect("writable");
    } else {
        assert_eq!(refused, UNSUPPORTED, "the set of operators without a lowering has changed");
    }
}

/// A function of a file that has `run` lines.
#[derive(Clone, Copy)]
struct Case<'a> {
    name: &'a str,
    text: &'a str,
    func: &'a str,
}

/// The module with this function as the one that is compiled.
fn with_main(module: &Module, func: &str) -> Module {
    let mut module = module.clone();
    for (_, other) in module.funcs.iter_mut() {
        match other.name.as_str() {
            name if name == func => other.name = "main".into(),
            "main" => other.name = "main.of.the.file".into(),
            _ => {}
        }
    }
    module
}

fn check_spread(case: Case, module: &Module, machines: &[pando_machine::Machine]) {
    for machine in machines {
        let compiled = compile(module, machine, &Options { min_tile_bytes: 1, ..Options::default() });
        check_values(case, &compiled.expect("lowered before"), machine);
    }
}

/// Named dimensions get the sizes of the first call.
fn bound(module: Module, case: Case) -> Module {
    let lines = run_lines(case.text).expect("readable");
    let main = module.main().expect("named so before");
    let Some(line) = lines.iter().find(|line| line.func == case.func) else { return module };
    let sizes: BTreeMap<String, u64> = module.funcs[main]
        .param_types()
        .iter()
        .zip(&line.args)
        .flat_map(|(ty, arg)| ty.dims.iter().zip(arg.shape().iter()))
        .filter(|(dim, _)| dim.known().is_none())
        .map(|(dim, &size)| (dim.to_string(), size))
        .collect();
    let sizes: Vec<(String, u64)> = sizes.into_iter().collect();
    if sizes.is_empty() { module } else { bind_dims(&module, &sizes).expect("sizes that a call gave") }
}

fn check_values(case: Case, compiled: &Compiled, machine: &pando_machine::Machine) {
    let Case { name, text, func } = case;
    common::assert_sound(compiled, machine, name);
    for line in run_lines(text).unwrap_or_else(|error| panic!("{name}: {error}")) {
        let shapes = line.args.iter().map(|arg| arg.shape().clone());
        let bound =
            compiled.emitted.inputs.iter().map(|&input| compiled.emitted.program.vars[input].shape.clone());
        if line.func != func || !shapes.eq(bound) {
            continue;
        }
        let what = format!("{name} line {}", line.line);
        let actual = common::simulate(compiled, &line.args).unwrap_or_else(|error| panic!("{what}: {error}"));
        let tolerance = allowed(tolerance(text).expect("a number"), &line.expected);
        compare(&actual, &line.expected, tolerance).unwrap_or_else(|error| panic!("{what}: {error}"));
        common::assert_expansion_agrees(compiled, machine, &line.args, &actual, &what);
    }
}

/// Cycles of every step and memory, as a person would check them by hand.
fn table(compiled: &Compiled, machine: &pando_machine::Machine) -> String {
    let program = &compiled.emitted.program;
    let placement = Some(&compiled.placed.placement);
    let profile = pando_sim::profile(program, machine, placement, compiled.fit.clone(), 1);
    let mut out = format!(
        "{:<40} {:>8} {:>9} {:>8} {:>6} {:>10}\n",
        "step", "compute", "exchange", "sync", "host", "live bytes"
    );
    for step in &profile.steps {
        let parts = &step.parts;
        writeln!(
            out,
            "{:<40} {:>8} {:>9} {:>8} {:>6} {:>10}",
            step.name,
            parts.compute + parts.local_copy,
            parts.exchange,
            parts.sync,
            parts.host,
            step.live_bytes_peak
        )
        .expect("a string");
    }
    let memory = &profile.memory;
    writeln!(
        out,
        "\nfullest tile {} of {} bytes: {} used; variables {} always live, {} temporary; code {}, vertex state {}, exchange code {}, host packets {}, stacks {}",
        memory.max_tile,
        memory.tile_bytes,
        memory.max_used,
        memory.fullest.always_live,
        memory.fullest.temporary,
        memory.fullest.code,
        memory.fullest.vertex_state,
        memory.fullest.exchange_code,
        memory.fullest.host_code,
        memory.fullest.stacks
    )
    .expect("a string");
    out
}

fn check_table(name: &str, actual: &str) {
    let path = root().join("tables").join(format!("{name}.tiny4.txt"));
    if std::env::var_os("BLESS").is_some() {
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("writable");
        std::fs::write(&path, actual).expect("writable");
        return;
    }
    let expected =
        std::fs::read_to_string(&path).unwrap_or_else(|_| panic!("{name} has no table: run with BLESS=1"));
    assert_eq!(actual, expected, "{name}: cycles or memory changed; BLESS=1 accepts them");
}
