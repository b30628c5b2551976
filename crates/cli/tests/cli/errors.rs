//! Goal: a user's mistake gets one clear sentence and status 1 (2 for wrong usage), never a panic. Method: make
//! the mistakes.

use crate::common::{Run, json, pando, scratch};
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
    expect(&pando(&["run", "absent.graph"]), 1, &["absent.graph", "there is no such file"]);
    expect(&pando(&["run", "models"]), 1, &["models", "must end in .graph"]);
    expect(&pando(&["run", &file("x.graph", b"\xff\xfe\x00")]), 1, &["x.graph", "byte 0"]);
    expect(&pando(&["run", &file("x.pt", b"")]), 1, &["must end in .graph"]);
    expect(&pando(&["run", &file("empty.graph", b"")]), 1, &["empty.graph", "main"]);
    expect(&pando(&["run", &file("empty.tile", b"")]), 1, &["empty.tile:1:1", "program"]);
    expect(&pando(&["run", "zoo:resnet51"]), 1, &["'resnet51'", "resnet50", "bert-large"]);
    expect(&pando(&["run", "zoo:resnet50?depth=3"]), 1, &["zoo:resnet50", "'depth'", "batch, image"]);
    expect(&pando(&["run", "zoo:resnet50", "--dim", "batch=3"]), 1, &["--dim batch=3", "?batch="]);
    expect(&pando(&["zoo", "export", "lstm", &dir.join("lstm.onnx").display().to_string()]), 1, &[".graph"]);
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
    let toml =
        fs::read_to_string(crate::common::root().join("crates/machine/data/systems/m2000.toml")).unwrap();
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
    let profile = ["profile", "models/mlp-small.graph", "--system", "mk2", "--input", "q=1"];
    expect(&pando(&profile), 1, &["--input q", "the model's inputs are"]);
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
    let missing = dir.join("no/such/dir/report").display().to_string();
    for (report, part) in [(&inside_file, "file/out"), (&missing, "no/such/dir")] {
        let run = pando(&["profile", "models/mlp-small.graph", "--system", "mk2", "--report", report]);
        assert_eq!(run.status, 1);
        assert!(run.stderr.contains(part), "{}", run.stderr);
        assert!(run.stdout.contains("latency"), "the answer is given all the same: {}", run.stdout);
    }
    // A device that is always full.
    if fs::metadata("/dev/full").is_ok() {
        let run = crate::common::pando_with(&["system", "list"], |command| {
            command.stdout(fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
        });
        assert_eq!(run.status, 1, "{}", run.stderr);
        assert!(run.stderr.contains("standard output"), "{}", run.stderr);
    }
}

#[test]
fn what_cannot_be_done_yet_is_said() {
    let model = "models/mlp.graph";
    let training =
        |more: &[&str]| pando(&[&["profile", model, "--system", "m2000", "--train"], more].concat());
    expect(&training(&["--replicas", "2"]), 1, &["--train --replicas"]);
    expect(&training(&["--stages", "2"]), 1, &["--train --stages"]);
    expect(&training(&["--gradient-accumulation", "2"]), 1, &["--train --gradient-accumulation"]);
    expect(&training(&["--optimizer", "magic"]), 1, &["magic", "adamw"]);
    for option in [
        &["--train"][..],
        &["--stages", "2"],
        &["--io-tiles", "8", "--iterations", "2"],
        &["--iterations", "2"],
    ] {
        let run =
            pando(&[&["profile", "tests/tile/matvec-10000x1000.tile", "--system", "m2000"], option].concat());
        expect(&run, 1, &["matvec-10000x1000.tile", option[0], "for models"]);
    }
    expect(&pando(&["profile", model, "--system", "mk2", "--stages", "2"]), 1, &["2 stages", "1 chip"]);
    expect(
        &pando(&["profile", model, "--system", "mk2", "--io-tiles", "1472", "--iterations", "2"]),
        1,
        &["--io-tiles 1472", "use fewer"],
    );
    expect(
        &pando(&["profile", model, "--system", "m2000", "--stages", "4", "--replicas", "2"]),
        1,
        &["2 replicas of 4 stages"],
    );
    expect(&pando(&["profile", model, "--system", "m2000", "--stages", "9"]), 1, &["9 stages", "4 chip"]);
    expect(&pando(&["profile", model, "--system", "mk2", "--replicas", "2"]), 1, &["2 replicas", "1 chip"]);
    expect(&pando(&["profile", model, "--system", "mk9"]), 1, &["mk9", "mk2"]);
    expect(&pando(&["profile", model, "--system", "tests/ops/iota.graph"]), 1, &["iota.graph"]);
    expect(
        &pando(&["profile", "tests/ops/binary_f143.graph", "--system", "mk2"]),
        1,
        &["binary_f143.graph", "add", "pando run"],
    );
    expect(&pando(&["profile", "tests/ops/program_names.graph", "--system", "mk2"]), 1, &["N"]);
    let proportion = ["profile", model, "--system", "mk2", "--available-memory-proportion", "7"];
    expect(&pando(&proportion), 2, &["between 0 and 1"]);
    let kept = ["profile", "models/mlp-small.graph", "--system", "tiny4", "--keep-f32", "softmx"];
    expect(&pando(&kept), 2, &["--precision"]);
    let softmax =
        ["profile", "models/mlp-small.graph", "--system", "tiny4", "--precision", "f16", "--keep-f32"];
    assert_eq!(pando(&[&softmax[..], &[" softmax, softmax"]].concat()).status, 0);
    expect(&pando(&[&softmax[..], &["softmax,"]].concat()), 2, &["a name is empty"]);
    expect(&pando(&[&kept[..], &["--precision", "f16"]].concat()), 1, &["'softmx'", "softmax"]);
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

/// What is for the engine for this computer is not silently left out where something else computes.
#[test]
fn options_that_mean_nothing_together_are_refused() {
    let (graph, tile) = ("models/mlp-small.graph", "tests/tile/matvec-10000x1000.tile");
    let of_the_engine = [
        &["--isa", "avx2"][..],
        &["--no-amx"],
        &["--matmul-precision", "highest"],
        &["--profile-cpu"],
        &["--trace", "t.json"],
    ];
    for (way, said) in [
        (&[graph, "--reference"][..], "--reference computes"),
        (&[graph, "--system", "tiny4"], "--system computes"),
        (&[tile], "tile by tile"),
    ] {
        for option in of_the_engine {
            let run = pando(&[&["run"], way, option].concat());
            expect(&run, 2, &[option[0], "engine for this computer", said]);
        }
    }
    expect(&pando(&["run", graph, "--reference", "--threads", "2"]), 2, &["--threads", "--reference"]);
    expect(&pando(&["run", graph, "--system", "mk2", "--reference"]), 2, &["choose one"]);
    expect(&pando(&["run", tile, "--reference"]), 2, &[tile, "--reference"]);
    expect(&pando(&["run", tile, "--system", "tiny4"]), 2, &[tile, "--system"]);
}

/// What has a meaning there is done: the evaluator and tiles can be run often, tiles by several threads.
#[test]
fn options_that_mean_something_are_kept() {
    let graph = "models/mlp-small.graph";
    let reference = json(&pando(&["run", graph, "--reference", "--iterations", "2", "--json"]));
    assert_eq!(reference["threads"], 1);
    let tiles =
        json(&pando(&["run", graph, "--system", "tiny4", "--threads", "2", "--iterations", "2", "--json"]));
    assert_eq!(tiles["threads"], 2);
    assert!(tiles.get("isa").is_none() && reference.get("matmul_precision").is_none());
}

/// Programs without a meaning are refused by every command, with the place.
#[test]
fn unsound_tile_programs() {
    let dir = scratch("unsound");
    let program = |name: &str, vars: &str, rest: &str| {
        let text = format!("program \"p\" tiles=4 replicas=1\n{vars}\n{rest}\n");
        fs::write(dir.join(name), text).unwrap();
        dir.join(name).display().to_string()
    };
    let x = "var %x: f32[8] input on 0 4*1 [a0:8]\nvar %y: f32[8] output on 0 4*1 [a0:8]";
    let race = program(
        "race.tile",
        x,
        "compute @cs0 \"twice\" {\n  unary.neg on 0 4*1 %x[a0:8], %y[a0:8]\n  copy on 0 4*1 %x[a0:8], %y[a0:8]\n}\nmain {\n  host.in %x\n  compute @cs0\n  host.out %y\n}",
    );
    let foreign = program(
        "foreign.tile",
        x,
        "compute @cs0 \"far\" {\n  unary.neg on 0 %x[2..4], %y[0..2]\n}\nmain {\n  host.in %x\n  compute @cs0\n  host.out %y\n}",
    );
    let unwritten = program("unwritten.tile", x, "main {\n  host.in %x\n  host.out %y\n}");
    for (file, parts) in [(&race, ["race", "twice", "%y"]), (&foreign, ["locality", "far", "%x"])] {
        expect(&pando(&["run", file]), 1, &parts);
        expect(&pando(&["profile", file, "--system", "tiny4"]), 1, &parts);
        expect(&pando(&["compile", file, "--system", "tiny4", "--stop-after", "expand"]), 1, &parts);
    }
    expect(&pando(&["run", &unwritten]), 1, &["%y", "never written"]);
    let nine = "program \"p\" tiles=4 replicas=9\nmain {\n}\n";
    fs::write(dir.join("nine.tile"), nine).unwrap();
    expect(
        &pando(&["profile", &dir.join("nine.tile").display().to_string(), "--system", "tiny4"]),
        1,
        &["9 replicas"],
    );
    expect(
        &pando(&["profile", &race, "--system", "tiny4", "--precision", "f16"]),
        1,
        &["not for tile programs"],
    );
}

/// Small texts that ask for a lot.
#[test]
fn sizes_beyond_every_machine() {
    let dir = scratch("sizes");
    let file = |name: &str, text: &str| {
        fs::write(dir.join(name), text).unwrap();
        dir.join(name).display().to_string()
    };
    let huge = file(
        "huge.graph",
        "func @main(%x: f32[4398046511104]) -> f32[4398046511104] {\n  %y = neg %x : f32[4398046511104]\n  return %y\n}\n",
    );
    expect(&pando(&["profile", &huge, "--system", "mk2"]), 1, &["2^40"]);
    expect(&pando(&["run", &huge]), 1, &["huge.graph"]);
    let mut text =
        String::from("func @main(%x: f32[2]) -> f32[2] {\n  %y = call @f0 %x : f32[2]\n  return %y\n}\n");
    for level in 0..40 {
        let callee = if level == 39 { "neg %x".to_string() } else { format!("call @f{} %x", level + 1) };
        let again = callee.replace("%x", "%a");
        text += &format!(
            "func @f{level}(%x: f32[2]) -> f32[2] {{\n  %a = {callee} : f32[2]\n  %b = {again} : f32[2]\n  return %b\n}}\n"
        );
    }
    let calls = file("calls.graph", &text);
    expect(&pando(&["profile", &calls, "--system", "mk2"]), 1, &["more than 1000000 operations"]);
    expect(&pando(&["run", &calls]), 1, &["more than 1000000 operations"]);
    let long = file("long.graph", &"x".repeat(1 << 20));
    let run = pando(&["run", &long]);
    expect(&run, 1, &["long.graph:1:1"]);
    assert!(run.stderr.len() < 400, "a long word is cut");
}
