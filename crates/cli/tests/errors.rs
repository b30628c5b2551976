//! Goal: a user's mistake gets one clear sentence and status 1 (2 for wrong usage), never a panic. Method: make
//! the mistakes.

mod common;

use common::{Run, json, pando, scratch};
use std::fs;

fn expect(run: &Run, status: i32, parts: &[&str]) {
    assert_eq!(run.status, status, "{}", run.stderr);
    for part in parts {
        assert!(run.stderr.contains(part), "{part:?} is not in: {}", run.stderr);
    }
    assert!(run.stdout.is_empty(), "{}", run.stdout);
    if status == 1 {
        assert!(run.stderr.lines().count() <= 3, "one short paragraph: {}", run.stderr);
    }
}

#[test]
fn files_that_are_no_models() {
    let dir = scratch("no-models");
    let file = |name: &str, bytes: &[u8]| {
        fs::write(dir.join(name), bytes).unwrap();
        dir.join(name).display().to_string()
    };
    expect(&pando(&["run", "absent.graph"]), 1, &["absent.graph", "No such file"]);
    expect(&pando(&["run", "models"]), 1, &["models", ".graph or .tile"]);
    expect(&pando(&["run", &file("x.graph", b"\xff\xfe\x00")]), 1, &["x.graph", "byte 0"]);
    expect(&pando(&["run", &file("x.pt", b"")]), 1, &[".graph or .tile"]);
    expect(&pando(&["run", &file("empty.graph", b"")]), 1, &["empty.graph", "main"]);
    expect(&pando(&["run", &file("empty.tile", b"")]), 1, &["empty.tile:1:1", "program"]);
    expect(&pando(&["run", "zoo:resnet50"]), 1, &["zoo:resnet50"]);
    fs::create_dir_all(dir.join("d.graph")).unwrap();
    expect(&pando(&["run", &dir.join("d.graph").display().to_string()]), 1, &["d.graph", "directory"]);
}

#[test]
fn positions_in_texts() {
    let dir = scratch("positions");
    let file = |name: &str, text: &str| {
        fs::write(dir.join(name), text).unwrap();
        dir.join(name).display().to_string()
    };
    let graph = "func @main(%x: f32[2]) -> f32[2] {\n  %y = addd %x, %x : f32[2]\n  return %y\n}\n";
    expect(&pando(&["run", &file("a.graph", graph)]), 1, &["a.graph:2:8", "did you mean 'add'"]);
    let wrong =
        graph.replace("addd %x, %x : f32[2]", "add %x, %x : f32[3]").replace("return %y", "return %x");
    expect(&pando(&["run", &file("b.graph", &wrong)]), 1, &["b.graph:2", "f32[2]"]);
    let tile = "program \"p\" tiles=4 replicas=1\nvar %x: f32[8] temp on 3 2*1 [a0:8]\nmain {\n}\n";
    expect(&pando(&["run", &file("c.tile", tile)]), 1, &["c.tile:2:5", "tile 4"]);
    let toml = fs::read_to_string(common::root().join("crates/machine/data/systems/m2000.toml")).unwrap();
    let toml = format!("colour = \"blue\"\n{toml}");
    expect(&pando(&["system", "check", &file("d.toml", &toml)]), 1, &["d.toml:1:1", "colour"]);
    expect(
        &pando(&["profile", "models/mlp.graph", "--system", &dir.join("d.toml").display().to_string()]),
        1,
        &["d.toml:1:1"],
    );
}

#[test]
fn wrong_inputs() {
    let dir = scratch("wrong-inputs");
    let file = |name: &str, bytes: &[u8]| {
        fs::write(dir.join(name), bytes).unwrap();
        format!("x={}", dir.join(name).display())
    };
    let model = "models/mlp-small.graph";
    expect(&pando(&["run", model, "--input", "q=x.npy"]), 1, &["--input q", "x"]);
    expect(&pando(&["run", model, "--input", "x=absent.npy"]), 1, &["absent.npy"]);
    expect(&pando(&["run", model, "--input", &file("a.npy", b"hello")]), 1, &["a.npy", ".npy"]);
    let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (16, 64), }";
    let npy = |header: &str, data: usize| {
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        let text = format!("{header:<117}\n");
        bytes.extend_from_slice(&(text.len() as u16).to_le_bytes());
        bytes.extend_from_slice(text.as_bytes());
        bytes.resize(bytes.len() + data, 0);
        bytes
    };
    expect(
        &pando(&["run", model, "--input", &file("short.npy", &npy(header, 100))]),
        1,
        &["short.npy", "cut short"],
    );
    let wide = header.replace("(16, 64)", "(16, 65)");
    expect(
        &pando(&["run", model, "--input", &file("wide.npy", &npy(&wide, 16 * 65 * 4))]),
        1,
        &["[16,65]", "[16,64]"],
    );
    let huge = header.replace("(16, 64)", "(4611686018427387904, 16)");
    expect(&pando(&["run", model, "--input", &file("huge.npy", &npy(&huge, 64))]), 1, &["huge.npy"]);
    let fortran = header.replace("False", "True");
    expect(&pando(&["run", model, "--input", &file("f.npy", &npy(&fortran, 16 * 64 * 4))]), 1, &["Fortran"]);
}

#[test]
fn outputs_that_cannot_be_written() {
    let dir = scratch("unwritable");
    fs::write(dir.join("file"), b"").unwrap();
    let inside_file = dir.join("file/out").display().to_string();
    expect(&pando(&["run", "models/mlp-small.graph", "--output", &inside_file]), 1, &["file/out"]);
    let run = pando(&["profile", "models/mlp-small.graph", "--system", "mk2", "--report", &inside_file]);
    expect(&run, 1, &["file/out"]);
    let missing = dir.join("no/such/dir/report").display().to_string();
    expect(
        &pando(&["profile", "models/mlp-small.graph", "--system", "mk2", "--report", &missing]),
        1,
        &["no/such/dir"],
    );
    // A device that is always full.
    if fs::metadata("/dev/full").is_ok() {
        let run = common::pando_with(&["system", "list"], |command| {
            command.stdout(fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
        });
        assert_eq!(run.status, 1, "{}", run.stderr);
        assert!(run.stderr.contains("standard output"), "{}", run.stderr);
    }
}

#[test]
fn what_cannot_be_done_yet_is_said() {
    let model = "models/mlp.graph";
    expect(&pando(&["profile", model, "--system", "mk2", "--train"]), 1, &["--train"]);
    expect(&pando(&["profile", model, "--system", "mk2", "--stages", "2"]), 1, &["--stages 2"]);
    expect(&pando(&["profile", model, "--system", "mk2", "--replicas", "2"]), 1, &["--replicas 2", "1 chip"]);
    expect(&pando(&["profile", model, "--system", "mk9"]), 1, &["mk9", "mk2"]);
    expect(&pando(&["profile", model, "--system", "tests/ops/iota.graph"]), 1, &["iota.graph"]);
    expect(
        &pando(&["profile", "tests/ops/sort.graph", "--system", "mk2"]),
        1,
        &["sort.graph", "sort", "pando run"],
    );
    expect(&pando(&["profile", "tests/ops/program_names.graph", "--system", "mk2"]), 1, &["N"]);
    let proportion = ["profile", model, "--system", "mk2", "--available-memory-proportion", "7"];
    expect(&pando(&proportion), 1, &["between 0 and 1"]);
}

/// Named dimensions are set by `--dim` and `--micro-batch`.
#[test]
fn named_dimensions() {
    let model = "tests/ops/program_names.graph";
    let cycles = |option: &str, value: &str| {
        let run = pando(&["profile", model, "--system", "mk2", option, value, "--json"]);
        assert_eq!(run.status, 0, "{}", run.stderr);
        json(&run)["cycles_per_step"].clone()
    };
    assert_eq!(cycles("--dim", "N=8"), cycles("--micro-batch", "8"));
    expect(&pando(&["run", model, "--dim", "Q=8"]), 1, &["Q"]);
}

#[test]
fn wrong_usage_is_status_2() {
    for arguments in [
        &["fly"][..],
        &["run"],
        &["profile", "x.graph"],
        &["run", "x.graph", "--dim", "N"],
        &["run", "x.graph", "--dim", "N=-1"],
        &["run", "x.graph", "--threads", "0"],
        &["compile", "x.graph", "--system", "mk2", "--stop-after", "lunch"],
    ] {
        assert_eq!(pando(arguments).status, 2, "{arguments:?}");
    }
}
