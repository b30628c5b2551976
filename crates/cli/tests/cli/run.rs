//! Goal: `pando run` reads what NumPy writes and tells where the time goes. Method: run the binary.

use crate::common::{json, pando, scratch};
use serde_json::Value;
use std::io::Write;
use std::path::Path;
use zip::write::SimpleFileOptions;

/// An f32 array as numpy.save writes it.
fn npy(shape: &str, values: &[f32]) -> Vec<u8> {
    let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}");
    let mut bytes = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
    bytes.extend_from_slice(format!("{header:<117}\n").as_bytes());
    values.iter().for_each(|value| bytes.extend_from_slice(&value.to_le_bytes()));
    bytes
}

/// As numpy.savez (stored) and numpy.savez_compressed write it.
fn npz(path: &Path, method: zip::CompressionMethod, arrays: &[(&str, Vec<u8>)]) -> String {
    let mut archive = zip::ZipWriter::new(std::fs::File::create(path).unwrap());
    for (name, bytes) in arrays {
        let options = SimpleFileOptions::default().compression_method(method);
        archive.start_file(format!("{name}.npy"), options).unwrap();
        archive.write_all(bytes).unwrap();
    }
    archive.finish().unwrap();
    path.display().to_string()
}

const DIFFERENCE: &str = "\
func @main(%a: f32[N], %b: f32[N]) -> f32[N] {
  %y = sub %a, %b : f32[N]
  return %y
}
";

#[test]
fn archives_hold_inputs_by_name() {
    let dir = scratch("npz");
    let model = dir.join("difference.graph").display().to_string();
    std::fs::write(&model, DIFFERENCE).unwrap();
    let (a, b) = (npy("(2,)", &[5.0, 7.0]), npy("(2,)", &[1.0, 2.0]));
    let arrays = [("b", b.clone()), ("a", a.clone())];
    for (name, method) in
        [("s.npz", zip::CompressionMethod::Stored), ("d.npz", zip::CompressionMethod::Deflated)]
    {
        let both = npz(&dir.join(name), method, &arrays);
        let run = pando(&["run", &model, "--input", &both, "--json"]);
        assert_eq!(run.status, 0, "{}", run.stderr);
        let output = &json(&run)["outputs"][0];
        assert_eq!((&output["min"], &output["max"]), (&Value::from(4.0), &Value::from(5.0)));
    }
    // A later option wins; an archive of one array needs no matching name.
    let both = dir.join("s.npz").display().to_string();
    let one = npz(&dir.join("one.npz"), zip::CompressionMethod::Stored, &[("arr_0", a)]);
    let run = pando(&["run", &model, "--input", &both, "--input", &format!("b={one}"), "--json"]);
    assert_eq!(json(&run)["outputs"][0]["max"], 0.0);
}

#[test]
fn mistakes_with_archives_are_explained() {
    let dir = scratch("npz-wrong");
    let model = dir.join("difference.graph").display().to_string();
    std::fs::write(&model, DIFFERENCE).unwrap();
    let (two, three) = (npy("(2,)", &[5.0, 7.0]), npy("(3,)", &[1.0, 2.0, 3.0]));
    let stored = zip::CompressionMethod::Stored;
    let expect = |input: &str, parts: &[&str]| {
        let run = pando(&["run", &model, "--input", input]);
        assert_eq!(run.status, 1, "{input}");
        parts.iter().for_each(|part| assert!(run.stderr.contains(part), "{part}: {}", run.stderr));
    };
    expect(&npz(&dir.join("c.npz"), stored, &[("c", two.clone())]), &["--input c", "a: f32[N], b: f32[N]"]);
    let sizes = npz(&dir.join("sizes.npz"), stored, &[("a", two.clone()), ("b", three)]);
    expect(&sizes, &["sizes.npz", "[3]", "N is 2 in another input"]);
    let junk = npz(&dir.join("junk.npz"), stored, &[("a", b"junk".to_vec())]);
    expect(&junk, &["junk.npz", "array 'a'", "not a .npy"]);
    std::fs::write(dir.join("text.npz"), "hello").unwrap();
    expect(&dir.join("text.npz").display().to_string(), &["text.npz", "not a .npz file"]);
    std::fs::write(dir.join("x.npy"), &two).unwrap();
    let nameless = dir.join("x.npy").display().to_string();
    expect(&nameless, &["which input", "as NAME=", "a: f32[N], b: f32[N]"]);
    let several = npz(&dir.join("several.npz"), stored, &[("p", two.clone()), ("q", two)]);
    expect(&format!("a={several}"), &["several.npz", "no array 'a'", "p, q"]);
}

#[test]
fn the_only_input_needs_no_name() {
    let dir = scratch("only-input");
    std::fs::write(dir.join("x.npy"), npy("(16, 64)", &[0.0; 16 * 64])).unwrap();
    let input = dir.join("x.npy").display().to_string();
    let run = pando(&["run", "models/mlp-small.graph", "--input", &input]);
    assert_eq!(run.status, 0, "{}", run.stderr);
}

#[test]
fn profiles_name_operations_and_count_their_work() {
    let words = ["run", "models/mlp-small.graph", "--profile-cpu", "--iterations", "3", "--threads", "1"];
    let run = pando(&words);
    assert_eq!(run.status, 0, "{}", run.stderr);
    for part in ["kind", "operation", "calls", "GFLOP/s", "gemm h", "softmax classes"] {
        assert!(run.stdout.contains(part), "{part}: {}", run.stdout);
    }
    let profile = json(&pando(&[&words[..], &["--json"]].concat()))["profile"].clone();
    let operations = profile["operations"].as_array().unwrap();
    let milliseconds: Vec<f64> = operations.iter().map(|row| row["ms"].as_f64().unwrap()).collect();
    assert!(milliseconds.is_sorted_by(|a, b| a >= b), "{milliseconds:?}");
    let total: f64 = milliseconds.iter().sum();
    assert!((total - profile["total_ms"].as_f64().unwrap()).abs() < 1e-9);
    let gemm = profile["kinds"].as_array().unwrap().iter().find(|row| row["kind"] == "gemm").unwrap();
    // 16 samples through 64 x 128 and 128 x 10 weights.
    assert_eq!((&gemm["calls"], &gemm["flops"]), (&Value::from(2), &Value::from(2 * 16 * (64 * 128 + 1280))));
}

#[test]
fn traces_are_trace_events() {
    let path = scratch("trace").join("trace.json");
    let run = pando(&["run", "models/mlp-small.graph", "--trace", &path.display().to_string()]);
    assert_eq!(run.status, 0, "{}", run.stderr);
    let trace: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let mut end = 0.0;
    for event in events.iter().filter(|event| event["ph"] == "X") {
        let (start, duration) = (event["ts"].as_f64().unwrap(), event["dur"].as_f64().unwrap());
        assert!(start >= end, "steps follow one another: {events:?}");
        end = start + duration;
    }
    assert!(events.iter().any(|event| event["name"] == "h" && event["args"]["flops"] == 2 * 16 * 64 * 128));
}

#[test]
fn traces_that_cannot_be_written_are_said() {
    let run = pando(&["run", "models/mlp-small.graph", "--trace", "no/such/folder/t.json"]);
    assert_eq!(run.status, 1);
    assert!(run.stderr.contains("no/such/folder/t.json: cannot be written"), "{}", run.stderr);
}

#[test]
fn numbers_for_unknown_dimensions_are_refused() {
    let run = pando(&["run", "models/tiny.onnx", "--dim", "Q=2"]);
    assert_eq!(run.status, 1);
    assert!(run.stderr.contains("no named dimension 'Q'") && run.stderr.contains("N"), "{}", run.stderr);
}
