//! Goal: every command says what cli.md promises, for people and as JSON. Method: run the binary.

use crate::common::{self, json, pando, pando_with, scratch};
use serde_json::Value;

#[test]
fn run_prints_outputs() {
    let run = pando(&["run", "models/mlp-small.graph"]);
    assert_eq!((run.status, run.stderr.as_str()), (0, ""));
    assert!(run.stdout.contains("classes") && run.stdout.contains("f32[16,10]"), "{}", run.stdout);
    let run = pando(&["run", "models/mlp-small.graph", "--json", "--iterations", "3", "--threads", "1"]);
    let result = json(&run);
    assert_eq!(result["threads"], 1);
    assert_eq!(result["matmul_precision"], "highest");
    let output = &result["outputs"][0];
    assert_eq!((&output["name"], &output["dtype"]), (&Value::from("classes"), &Value::from("f32")));
    assert_eq!(output["shape"], serde_json::json!([16, 10]));
    // Rows of a softmax add up to 1, so ten classes average a tenth.
    assert!((output["mean"].as_f64().unwrap() - 0.1).abs() < 1e-6);
    for quantile in ["median", "p10", "p90"] {
        assert!(result["latency_ms"][quantile].as_f64().unwrap() > 0.0);
    }
}

/// What is used is told, as it may be more than what is asked for.
#[test]
fn run_tells_the_precision_of_products() {
    let run = |asked| json(&pando(&["run", "models/mlp-small.graph", "--json", "--matmul-precision", asked]));
    let (isa, unit) = (pando_cpu::Isa::detect(), pando_cpu::TileUnit::detect());
    for precision in pando_cpu::MatmulPrecision::ALL {
        assert_eq!(run(precision.name())["matmul_precision"], precision.used(isa, unit).name());
    }
    let on_tiles = pando(&["run", "models/mlp-small.graph", "--json", "--system", "tiny4"]);
    assert_eq!(json(&on_tiles).get("matmul_precision"), None);
}

/// A level of instructions can be chosen, and what is used is told.
#[test]
fn run_tells_the_instructions() {
    let run = |more: &[&str]| pando(&[&["run", "models/mlp-small.graph"], more].concat());
    let (isa, unit) = (pando_cpu::Isa::detect(), pando_cpu::TileUnit::detect());
    let best = json(&run(&["--json"]));
    assert_eq!((&best["isa"], &best["tile_unit"]), (&isa.name().into(), &unit.name().into()));
    let without = json(&run(&["--json", "--no-amx"]));
    assert_eq!((&without["isa"], &without["tile_unit"]), (&isa.name().into(), &"none".into()));
    let portable = json(&run(&["--json", "--isa", "portable"]));
    assert_eq!((&portable["isa"], &portable["tile_unit"]), (&"portable".into(), &"none".into()));
    let profile = run(&["--profile-cpu", "--isa", "portable"]).stdout;
    assert!(profile.contains("instructions: portable, matmul precision highest"), "{profile}");
    let unknown = run(&["--isa", "mmx"]);
    assert!(
        unknown.status != 0 && unknown.stderr.contains("no instructions called \"mmx\""),
        "{}",
        unknown.stderr
    );
}

/// The tile-by-tile values of a model are those of the evaluator, whatever the system.
#[test]
fn run_on_a_system_gives_the_same_outputs() {
    let reference = json(&pando(&["run", "models/mlp-small.graph", "--json"]));
    for system in ["tiny4", "mk2", "c2"] {
        let tiles = json(&pando(&["run", "models/mlp-small.graph", "--json", "--system", system]));
        for field in ["min", "max", "mean"] {
            let (a, b) = (&tiles["outputs"][0][field], &reference["outputs"][0][field]);
            assert!((a.as_f64().unwrap() - b.as_f64().unwrap()).abs() < 1e-5, "{system} {field}: {a} {b}");
        }
    }
}

#[test]
fn run_reads_and_writes_npy() {
    let dir = scratch("npy");
    let path = |name: &str| dir.join(name).display().to_string();
    let model = path("double.graph");
    std::fs::write(
        &model,
        "func @main(%x: f32[2,3]) -> f32[2,3] {\n  %y = add %x, %x : f32[2,3]\n  return %y\n}\n",
    )
    .unwrap();
    // As numpy.save writes it.
    let mut bytes = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
    let mut header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }".to_string();
    header.push_str(&" ".repeat(117 - header.len()));
    bytes.extend_from_slice(header.as_bytes());
    bytes.push(b'\n');
    for value in [1.0f32, 2.0, 3.0, 4.0, 5.0, -6.5] {
        bytes.extend_from_slice(&value.to_le_bytes());
    }
    std::fs::write(path("x.npy"), &bytes).unwrap();
    let input = format!("x={}", path("x.npy"));
    let run = pando(&["run", &model, "--input", &input, "--output", &path("out"), "--json"]);
    assert_eq!(run.status, 0, "{}", run.stderr);
    assert_eq!(json(&run)["outputs"][0]["min"], -13.0);
    let written = std::fs::read(dir.join("out/y.npy")).unwrap();
    let values: Vec<f32> =
        written[written.len() - 24..].chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
    assert_eq!(values, [2.0, 4.0, 6.0, 8.0, 10.0, -13.0]);
    // What was written reads back as an input.
    let again = pando(&["run", &model, "--input", &format!("x={}", path("out/y.npy")), "--json"]);
    assert_eq!(json(&again)["outputs"][0]["max"], 20.0);
}

#[test]
fn tile_programs_run_and_are_profiled() {
    let run = pando(&["run", "tests/tile/matvec-10000x1000.tile", "--json"]);
    assert_eq!(json(&run)["outputs"][0]["shape"], serde_json::json!([210, 48]));
    let run = pando(&["profile", "tests/tile/matvec-10000x1000.tile", "--system", "mk2", "--json"]);
    assert_eq!((run.status, json(&run)["fits"].clone()), (0, Value::Bool(true)));
}

/// One group is enough to see the fields; crates/validate's tests look at all rows.
#[test]
fn validate_has_every_promised_field() {
    let run = pando(&["validate", "--group", "kernel", "--json"]);
    assert_eq!(run.status, 0, "{}", run.stderr);
    let result = json(&run);
    assert!(result["median_abs_error"].is_f64() && result["max_abs_error"].is_f64());
    let rows = result["rows"].as_array().unwrap();
    assert!(!rows.is_empty());
    for field in ["id", "what", "config", "measured", "predicted", "error", "source", "range"] {
        assert!(rows.iter().all(|row| !row[field].is_null()), "{field} is missing");
    }
    let run = pando(&["validate", "--row", "heat"]);
    assert!(run.stdout.contains("heat3d-360") && run.stdout.contains("worst error"), "{}", run.stdout);
    let run = pando(&["validate", "--row", "nothing-like-it"]);
    assert_eq!((run.status, run.stdout.as_str()), (1, ""));
    assert!(run.stderr.contains("nothing-like-it"), "{}", run.stderr);
}

#[test]
fn profile_has_every_promised_field() {
    let run = pando(&["profile", "models/mlp.graph", "--system", "m2000", "--json", "--precision", "f16"]);
    assert_eq!(run.status, 0, "{}", run.stderr);
    let result = json(&run);
    for field in [
        "system",
        "chips",
        "fits",
        "throughput_per_s",
        "latency_ms",
        "cycles_per_step",
        "compile_s",
        "flops",
        "utilisation",
        "energy_j_per_item",
        "price_usd",
        "price_usd_per_million",
    ] {
        assert!(!result[field].is_null(), "{field} is missing");
    }
    for field in ["compute", "exchange", "sync", "links", "host"] {
        assert!(result["breakdown"][field].is_u64(), "breakdown.{field}");
    }
    for field in ["tile_bytes", "max_used", "mean_used", "always_live", "code"] {
        assert!(result["memory"][field].is_number(), "memory.{field}");
    }
    assert!(result["trust"].get("range").is_some() && result["trust"].get("error").is_some());
    // Three products of 256×4096×4096, two operations a multiply–add, and the additions and maxima.
    let flops = result["flops"].as_f64().unwrap();
    assert!((flops / (3.0 * 2.0 * 256.0 * 4096.0 * 4096.0) - 1.0).abs() < 0.01, "{flops}");
    let sum: u64 = result["breakdown"].as_object().unwrap().values().map(|v| v.as_u64().unwrap()).sum();
    assert_eq!(sum, result["cycles_per_step"].as_u64().unwrap());
}

/// 64,000 replicas cost no more to predict than one, and the machine is 64,000 times as fast but for shared
/// host links.
#[test]
fn pod64k_is_a_small_object() {
    let one =
        json(&pando(&["profile", "models/mlp.graph", "--system", "pod64k", "--replicas", "1", "--json"]));
    let all = json(&pando(&["profile", "models/mlp.graph", "--system", "pod64k", "--json"]));
    assert_eq!(all["replicas"], 64_000);
    assert_eq!(one["breakdown"]["compute"], all["breakdown"]["compute"]);
    let ratio = all["throughput_per_s"].as_f64().unwrap() / one["throughput_per_s"].as_f64().unwrap();
    assert!((16_000.0..=64_000.0).contains(&ratio), "{ratio}");
}

#[test]
fn not_fitting_is_an_answer() {
    let dir = scratch("not-fitting");
    let text = std::fs::read_to_string(crate::common::root().join("models/mlp.graph")).unwrap();
    let model = dir.join("big.graph");
    std::fs::write(&model, text.replace("4096", "16384")).unwrap();
    let model = model.display().to_string();
    let run = pando_with(&["profile", &model, "--system", "mk2"], |command| {
        command.current_dir(&dir);
    });
    assert_eq!(run.status, 1);
    for part in
        ["DOES NOT FIT", "tile ", "too much", "dot/", "x.at", "w1", "largest variables", "weights alone"]
    {
        assert!(run.stdout.contains(part), "{part}: {}", run.stdout);
    }
    let written: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(written, ["big.graph"], "nothing is written that nobody asked for");
    let run = pando(&[
        "profile",
        &model,
        "--system",
        "mk2",
        "--json",
        "--report",
        &dir.join("r").display().to_string(),
    ]);
    let result = json(&run);
    assert_eq!((run.status, &result["fits"]), (1, &Value::Bool(false)));
    let largest = result["fit"]["largest"].as_array().unwrap();
    assert!((1..=10).contains(&largest.len()), "{largest:?}");
    assert!(largest.is_sorted_by_key(|var| std::cmp::Reverse(var["bytes"].as_u64())), "{largest:?}");
    assert!(!result["suggestions"].as_array().unwrap().is_empty());
    assert!(result["fit"]["over_bytes"].as_u64().unwrap() > 0);
    assert!(!result["fit"]["remedy"].as_str().unwrap().is_empty());
    assert!(dir.join("r").exists(), "the report is written all the same");
}

#[test]
fn compile_stops_after_each_pass() {
    for (pass, part) in [
        ("graph", "dot %x, %w"),
        ("inline", "func @main"),
        ("plan", "split inner="),
        ("tile", "matmul{"),
        ("place", "fixed memory"),
        ("expand", "%y.t1"),
    ] {
        let run = pando(&["compile", "models/matmul.graph", "--system", "tiny4", "--stop-after", pass]);
        assert_eq!(run.status, 0, "{pass}: {}", run.stderr);
        assert!(run.stdout.contains(part), "{pass}: {}", run.stdout);
    }
    // What a pass prints is a model again.
    let dir = scratch("passes");
    let tile =
        pando(&["compile", "models/mlp-small.graph", "--system", "tiny4", "--stop-after", "tile"]).stdout;
    let file = dir.join("mlp.tile");
    std::fs::write(&file, &tile).unwrap();
    let printed =
        pando(&["compile", &file.display().to_string(), "--system", "tiny4", "--stop-after", "tile"]).stdout;
    assert_eq!(printed, tile);
}

#[test]
fn systems_are_listed_shown_and_checked() {
    let list = pando(&["system", "list"]).stdout;
    for name in [
        "c2",
        "mk2",
        "m2000",
        "pod4",
        "pod16",
        "pod64",
        "pod128",
        "pod256",
        "bow",
        "bow2000",
        "bow-pod16",
        "bow-pod64",
        "bow-pod128",
        "bow-pod256",
        "c600",
        "pod64k",
        "tiny4",
    ] {
        assert!(list.lines().any(|line| line.split_whitespace().next() == Some(name)), "{name}");
        assert_eq!(pando(&["system", "show", name]).status, 0, "{name}");
        assert!(json(&pando(&["system", "show", name, "--json"]))["chip"]["tiles"].as_u64().unwrap() > 0);
    }
    let run = pando(&["system", "check", "crates/machine/data/systems/m2000.toml"]);
    assert_eq!(run.status, 0, "{}", run.stderr);
}

/// A user's own machine file works wherever a built-in name does.
#[test]
fn a_users_machine_works_everywhere() {
    let dir = scratch("own-machine");
    let text = std::fs::read_to_string(crate::common::root().join("crates/machine/data/systems/m2000.toml"))
        .unwrap();
    let file = dir.join("mine.toml");
    std::fs::write(&file, text.replace("\"m2000\"", "\"mine\"")).unwrap();
    let file = file.display().to_string();
    let own = json(&pando(&["profile", "models/mlp-small.graph", "--system", &file, "--json"]));
    let built_in = json(&pando(&["profile", "models/mlp-small.graph", "--system", "m2000", "--json"]));
    assert_eq!(own["cycles_per_step"], built_in["cycles_per_step"]);
    assert_eq!(own["system"], "mine");
    assert_eq!(pando(&["run", "models/mlp-small.graph", "--system", &file]).status, 0);
    assert_eq!(
        pando(&["compile", "models/mlp-small.graph", "--system", &file, "--stop-after", "plan"]).status,
        0
    );
}

/// Everything but the time it took is byte for byte the same, whatever the number of threads.
#[test]
fn output_is_deterministic() {
    let dir = scratch("deterministic");
    let commands: [&[&str]; 4] = [
        &["compile", "models/mlp.graph", "--system", "mk2", "--stop-after", "tile"],
        &["compile", "models/mlp-small.graph", "--system", "tiny4", "--stop-after", "expand"],
        &["profile", "models/mlp.graph", "--system", "pod64k"],
        &["run", "models/mlp-small.graph", "--system", "mk2", "--output"],
    ];
    for arguments in commands {
        let mut seen: Option<(String, Vec<Vec<u8>>)> = None;
        for threads in ["1", "2", "2"] {
            let out = dir.join(format!("out{threads}"));
            let out_text = out.display().to_string();
            let mut arguments = arguments.to_vec();
            match arguments[0] {
                "run" => arguments.push(&out_text),
                "profile" => arguments.extend(["--report", &out_text]),
                _ => {}
            }
            let run = pando_with(&arguments, |command| {
                command.env("RAYON_NUM_THREADS", threads);
            });
            assert_eq!(run.status, 0, "{}", run.stderr);
            let timed = |line: &&str| {
                line.contains(" ms (p10 ") && arguments[0] == "run" || line.starts_with("compiled in")
            };
            let text: Vec<&str> = run.stdout.lines().filter(|line| !timed(line)).collect();
            let files = [out.clone(), out.join("classes.npy")];
            let files = files.iter().filter_map(|path| std::fs::read(path).ok()).collect::<Vec<_>>();
            let now = (text.join("\n"), files);
            if let Some(before) = &seen {
                assert!(*before == now, "{arguments:?} differs with {threads} threads");
            }
            seen = Some(now);
            let _ = std::fs::remove_file(&out);
            let _ = std::fs::remove_dir_all(&out);
        }
    }
}

/// The evaluator, the engine for this computer and the tiles agree.
#[test]
fn engines_agree() {
    for model in ["models/mlp-small.graph", "models/matmul.graph"] {
        let native = json(&pando(&["run", model, "--json"]));
        let reference = json(&pando(&["run", model, "--json", "--reference"]));
        for field in ["min", "max", "mean"] {
            let (a, b) = (&native["outputs"][0][field], &reference["outputs"][0][field]);
            assert!((a.as_f64().unwrap() - b.as_f64().unwrap()).abs() < 1e-5, "{model} {field}: {a} {b}");
        }
    }
    let exact = json(&pando(&["profile", "models/mlp-small.graph", "--system", "mk2", "--exact", "--json"]));
    assert_eq!(exact["exact"][0]["name"], "classes");
    assert!(exact["exact"][0]["difference"].as_f64().unwrap() < 1e-5);
}

/// A model's work is the model's, however a machine splits it.
#[test]
fn flops_do_not_depend_on_the_system() {
    let flops = |system| {
        json(&pando(&["profile", "models/mlp.graph", "--system", system, "--json"]))["flops"].clone()
    };
    assert_eq!(flops("mk2"), flops("c2"));
}

/// Links are followed, pipes and devices are written to, and a model is never overwritten.
#[test]
#[cfg(unix)]
fn reports_do_not_destroy_what_is_there() {
    let dir = scratch("destroy");
    let path = |name: &str| dir.join(name).display().to_string();
    std::fs::copy(common::root().join("models/matmul.graph"), dir.join("m.graph")).unwrap();
    std::fs::write(dir.join("target"), "old").unwrap();
    std::os::unix::fs::symlink(dir.join("target"), dir.join("link")).unwrap();
    let report = |file: &str| {
        pando(&["profile", &path("m.graph"), "--system", "tiny4", "--report", &path(file), "--json"])
    };
    assert_eq!(report("link").status, 0);
    assert!(std::fs::symlink_metadata(dir.join("link")).unwrap().is_symlink());
    assert!(std::fs::read(dir.join("target")).unwrap().starts_with(b"PANDO"));
    let model = report("m.graph");
    assert_eq!(model.status, 1);
    assert!(model.stderr.contains("is the model itself"), "{}", model.stderr);
    assert!(std::fs::read_to_string(dir.join("m.graph")).unwrap().contains("dot"));
    let null = pando(&["profile", &path("m.graph"), "--system", "tiny4", "--report", "/dev/null"]);
    assert_eq!(null.status, 0, "{}", null.stderr);
    assert!(!std::fs::metadata("/dev/null").unwrap().is_file());
}

/// The size of the output is that of the input's elements above a half, doubled.
#[test]
fn sizes_may_depend_on_the_inputs_values() {
    let dir = scratch("above");
    for (values, expect) in
        [(&[1.0f32, 0.25, 3.0][..], [2.0, 6.0]), (&[0.0, 5.0, 0.5, 0.75, 9.0], [1.5, 18.0])]
    {
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        let shape = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({},), }}", values.len());
        let header = format!("{shape:<117}\n");
        bytes.extend_from_slice(&(header.len() as u16).to_le_bytes());
        bytes.extend_from_slice(header.as_bytes());
        values.iter().for_each(|value| bytes.extend_from_slice(&value.to_le_bytes()));
        std::fs::write(dir.join("x.npy"), bytes).unwrap();
        let input = format!("x={}", dir.join("x.npy").display());
        let count = values.iter().filter(|&&value| value > 0.5).count();
        for engine in [&[][..], &["--reference"]] {
            let run = pando(&[&["run", "models/above.onnx", "--input", &input, "--json"], engine].concat());
            assert_eq!(run.status, 0, "{engine:?}: {}", run.stderr);
            let output = json(&run)["outputs"][0].clone();
            assert_eq!(output["shape"], serde_json::json!([count]));
            assert_eq!((output["min"].as_f64(), output["max"].as_f64()), (Some(expect[0]), Some(expect[1])));
        }
    }
    let of = |value: &str| {
        let args =
            ["profile", "models/above.onnx", "--system", "tiny4", "--dim", "N=6", "--input", value, "--json"];
        pando(&args)
    };
    assert_eq!(json(&of("x=0.75"))["decided_by_inputs"], true);
    // None is above a half: an output without elements has no layout.
    let none = of("x=0.25");
    assert_eq!(none.status, 1);
    assert!(none.stderr.contains("and with these inputs"), "{}", none.stderr);
    let run = pando(&["run", "models/above.onnx"]);
    assert_eq!(run.status, 1);
    assert!(run.stderr.contains("--dim N="), "{}", run.stderr);
}

/// `models/make_onnx.py` writes the model and prints what ones give: 0.02297737 and 0.97702265.
#[test]
fn onnx_models_run_and_are_profiled() {
    let dir = scratch("onnx");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    let header = format!("{:<117}\n", "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 4), }");
    bytes.extend_from_slice(&(header.len() as u16).to_le_bytes());
    bytes.extend_from_slice(header.as_bytes());
    (0..4).for_each(|_| bytes.extend_from_slice(&1.0f32.to_le_bytes()));
    std::fs::write(dir.join("x.npy"), bytes).unwrap();
    let input = format!("x={}", dir.join("x.npy").display());
    // The file gives N its size.
    for engine in [&[][..], &["--reference"], &["--dim", "N=1", "--system", "tiny4"]] {
        let run = pando(&[&["run", "models/tiny.onnx", "--input", &input, "--json"], engine].concat());
        assert_eq!(run.status, 0, "{engine:?}: {}", run.stderr);
        let output = json(&run)["outputs"][0].clone();
        assert_eq!(output["name"], "y");
        assert!((output["min"].as_f64().unwrap() - 0.022_977_37).abs() < 1e-6, "{engine:?}: {output}");
        assert!((output["max"].as_f64().unwrap() - 0.977_022_65).abs() < 1e-6, "{engine:?}: {output}");
    }
    let run = pando(&["run", "models/tiny.onnx"]);
    assert_eq!(run.status, 1);
    assert!(run.stderr.contains("--dim N="), "{}", run.stderr);
    let run = pando(&["profile", "models/tiny.onnx", "--system", "m2000", "--micro-batch", "64", "--json"]);
    assert_eq!((run.status, json(&run)["fits"].clone()), (0, Value::Bool(true)), "{}", run.stderr);
}

#[test]
fn zoo_models_are_listed_exported_and_profiled() {
    let run = pando(&["zoo", "list"]);
    assert!(run.stdout.contains("resnet50") && run.stdout.contains("25557032"), "{}", run.stdout);
    let list = json(&pando(&["zoo", "list", "--json"]));
    let bert = list["models"].as_array().unwrap().iter().find(|model| model["name"] == "bert-base").unwrap();
    assert_eq!((&bert["parameters"], &bert["sizes"]["sequence"]), (&109_482_240.into(), &128.into()));
    // What is exported is what the name builds.
    let file = scratch("zoo").join("sparse.graph").display().to_string();
    let spec = "sparse-fc?features=64&block=4&blocks=4&batch=2&seed=3";
    assert_eq!(pando(&["zoo", "export", spec, &file]).status, 0);
    let [from_name, from_file] =
        [&format!("zoo:{spec}"), &file].map(|model| json(&pando(&["run", model, "--json"])));
    assert_eq!(from_name["outputs"], from_file["outputs"]);
    assert_eq!(from_name["outputs"][0]["shape"], serde_json::json!([2, 64]));
    // --micro-batch is the batch of a model whose name gives none.
    let profile =
        |model| json(&pando(&["profile", model, "--system", "mk2", "--micro-batch", "8", "--json"]));
    let text = "zoo:bert-3-layer?sequence=16";
    assert_eq!(profile(text)["flops"], profile(&format!("{text}&batch=8"))["flops"]);
}

/// Each of a call's iterations has its own inputs; with I/O tiles transfers hide behind the work, also in the first and
/// last stage of a pipeline, and a call costs once what starting it takes.
#[test]
fn iterations_hide_their_transfers() {
    let run = |more: &[&str]| {
        let args =
            ["profile", "models/mlp-small.graph", "--system", "m2000", "--no-tries", "--exact", "--json"];
        let result = json(&pando(&[&args, more].concat()));
        assert!(result["exact"][0]["difference"].as_f64().unwrap() < 1e-5, "{more:?}");
        let io = result["host_io"].clone();
        (result, move |key: &str| io[key].as_u64().unwrap())
    };
    // A host that has 100 batches ready is never late.
    let (plain, io) = run(&["--replicas", "1", "--iterations", "5", "--prefetch", "100"]);
    assert_eq!(io("period_cycles"), io("host_cycles") + io("chip_cycles"));
    assert_eq!(plain["cycles_per_step"].as_u64().unwrap(), 5 * io("period_cycles"));
    let seconds = (5 * io("period_cycles") + io("call_cycles")) as f64 / 1.325e9;
    let items = plain["throughput_per_s"].as_f64().unwrap() * seconds;
    assert!(
        (items / items.round() - 1.0).abs() < 1e-9 && (items.round() as u64).is_multiple_of(5),
        "{items}"
    );
    let (streamed, io) =
        run(&["--replicas", "1", "--iterations", "5", "--io-tiles", "4", "--prefetch", "100"]);
    assert!(io("period_cycles") < io("host_cycles") + io("chip_cycles"), "{streamed}");
    assert_eq!(
        streamed["bound_by"], "call",
        "five iterations of microseconds are shorter than starting them"
    );
    let (waited, io) = run(&["--replicas", "1", "--iterations", "5", "--prefetch", "0"]);
    assert!(io("host_cycles") > 2 * 164_000, "{waited}");
    let (piped, io) = run(&["--stages", "2", "--replicas", "1", "--iterations", "5", "--io-tiles", "4"]);
    assert_eq!(piped["stages"].as_array().unwrap().len(), 2);
    let first = io("host_cycles") + io("chip_cycles");
    assert_eq!(piped["cycles_per_step"].as_u64().unwrap(), first + 4 * io("period_cycles"));
}

#[test]
fn a_model_in_stages_gives_the_same_values() {
    let args =
        ["profile", "models/mlp-small.graph", "--system", "m2000", "--stages", "2", "--exact", "--json"];
    let run = pando(&args);
    assert_eq!(run.status, 0, "{}", run.stderr);
    let result = json(&run);
    assert_eq!(result["replicas"], 2);
    let stages = result["stages"].as_array().unwrap();
    assert_eq!(stages.len(), 2);
    let cycles: Vec<u64> = stages.iter().map(|stage| stage["cycles"].as_u64().unwrap()).collect();
    // Two replicas handle 16 items each as often as the slowest stage is done.
    let expected = 2.0 * 16.0 * 1.325e9 / *cycles.iter().max().unwrap() as f64;
    assert!((result["throughput_per_s"].as_f64().unwrap() / expected - 1.0).abs() < 1e-9);
    assert!(result["breakdown"]["links"].as_u64().unwrap() > 0);
    assert!(result["exact"][0]["difference"].as_f64().unwrap() < 1e-5);
}

/// Weights and the optimizer's state stay on the chip: nothing of them crosses to the host, and what they become tile
/// by tile is what the evaluator says.
#[test]
fn a_training_step_updates_its_state_in_place() {
    let args = ["profile", "models/mlp-small.graph", "--system", "m2000", "--json"];
    let inference = json(&pando(&args));
    let run = pando(&[&args[..], &["--train", "--exact"]].concat());
    assert_eq!(run.status, 0, "{}", run.stderr);
    let training = json(&run);
    let flops = |result: &serde_json::Value| result["flops"].as_f64().unwrap();
    let ratio = flops(&training) / flops(&inference);
    // Backward is two products where forward is one, but for the first layer's input.
    assert!((2.0..4.0).contains(&ratio), "{ratio}");
    assert_eq!(training["replicas"], 1);
    // State is spread over other tiles than code: all of them together hold more.
    let mean_used = |result: &serde_json::Value| result["memory"]["mean_used"].as_f64().unwrap();
    assert!(mean_used(&training) > mean_used(&inference));
    let exact = training["exact"].as_array().unwrap();
    // One output; four weights with two moments each; one count of steps.
    assert_eq!(exact.len(), 1 + 4 * 3 + 1);
    let is_exact = |row: &serde_json::Value| row["difference"].as_f64().unwrap() < 1e-5;
    assert!(exact.iter().all(is_exact), "{exact:?}");
    // Several steps a call, fed as they go: state is what the last one leaves.
    for more in [&["--iterations", "3"][..], &["--iterations", "2", "--io-tiles", "8"]] {
        let run = pando(&[&args[..], &["--train", "--exact"], more].concat());
        assert_eq!(run.status, 0, "{}", run.stderr);
        let steps = json(&run);
        let exact = steps["exact"].as_array().unwrap();
        assert!(exact.len() == 1 + 4 * 3 + 1 && exact.iter().all(is_exact), "{exact:?}");
    }
}
