//! Goal: every op computes what NumPy computes. Method: the files under tests/ops at the workspace root,
//! at every level of instructions. Where a file states no tolerance, floats that are not exact here (f32
//! sums and functions) may differ by 1e-5.

mod common;

use common::{options, run};
use pando_cpu::Isa;
use pando_graph::parse;
use pando_graph::testing::{compare, run_lines, tolerance};
use std::path::PathBuf;

fn files() -> Vec<(String, String)> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/ops");
    let entries = std::fs::read_dir(&root).unwrap_or_else(|error| panic!("{}: {error}", root.display()));
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|e| e == "graph")).collect();
    paths.sort();
    let read = |path: PathBuf| {
        (path.file_name().unwrap().to_string_lossy().into(), std::fs::read_to_string(&path).unwrap())
    };
    paths.into_iter().map(read).collect()
}

fn failures(name: &str, text: &str, isa: Isa) -> Vec<String> {
    let module = parse(text, name).unwrap();
    let tolerance = tolerance(text).unwrap().max(1e-5);
    let mut failures = Vec::new();
    for line in run_lines(text).unwrap() {
        let mut module = module.clone();
        // Models start at @main; a file may run others.
        let (main, func) = (module.main(), module.func_named(&line.func).unwrap());
        if let Some(main) = main.filter(|&main| main != func) {
            module.funcs[main].name = "not.main".into();
        }
        module.funcs[func].name = "main".into();
        let actual = run(&module, &line.args, &options(isa, 2, true));
        let result = compare(&actual, &line.expected, tolerance);
        failures.extend(result.err().map(|error| format!("{name}:{} ({isa:?}): {error}", line.line)));
    }
    failures
}

#[test]
fn values_are_those_of_numpy() {
    let files = files();
    assert!(files.len() > 80, "only {} files", files.len());
    for isa in Isa::available() {
        let failures: Vec<String> = files.iter().flat_map(|(name, text)| failures(name, text, isa)).collect();
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    }
}
