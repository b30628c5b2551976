//! Goal: a large model is in memory once at a time: while it is loaded and packed, and when another is loaded after
//! it has been dropped. Method: the process's own peak of resident memory around two loads of an ONNX file of 400 MB.
//! A test program of its own: nothing else may allocate meanwhile.

#![cfg(target_os = "linux")]

use pando_base::{DType, Shape, Tensor};
use pando_cpu::{CompileOptions, compile_owned};
use pando_graph::{Builder, ConstData, Dot, TensorType};
use std::path::Path;

const WEIGHTS: u64 = 25;
const SIDE: u64 = 2048;
const MODEL_BYTES: u64 = WEIGHTS * SIDE * SIDE * 4;

/// A chain of products with weights.
fn write_model(path: &Path) {
    let mut builder = Builder::new();
    builder.begin("main");
    let mut x = builder.param("x", TensorType::new(DType::F32, [4, SIDE]));
    for index in 0..WEIGHTS {
        let mut weight = Tensor::zeros(DType::F32, [SIDE, SIDE]);
        let numbers = weight.bytes_mut().chunks_exact_mut(4).enumerate();
        numbers.for_each(|(i, x)| x.copy_from_slice(&((i % 13) as f32 / 1024.0).to_le_bytes()));
        let shape = Shape::new(&[SIDE, SIDE]);
        let weight = builder.weight(&format!("w{index}"), DType::F32, shape, ConstData::Dense(weight));
        x = builder.dot(x, weight, Dot { contract: vec![(1, 0)], ..Dot::default() }).unwrap();
    }
    builder.end(&[x]);
    std::fs::write(path, pando_onnx::export(&builder.finish()).unwrap()).unwrap();
}

/// Bytes of a line of the process's status.
fn status(key: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches("kB").trim().parse::<u64>().unwrap() * 1024
}

/// Loads, compiles and runs the model; the peak of resident memory meanwhile.
fn peak_of_load(path: &Path) -> u64 {
    std::fs::write("/proc/self/clear_refs", "5").unwrap(); // Begins a new peak.
    let model = compile_owned(pando_onnx::load(path).unwrap().module, &CompileOptions::default()).unwrap();
    let input = Tensor::from_f64(DType::F32, [4, SIDE], &vec![0.5; 4 * SIDE as usize]);
    let results = model.run(&[input]).unwrap();
    assert!(results[0].to_f64().iter().all(|x| x.is_finite()));
    status("VmHWM")
}

#[test]
fn a_model_is_in_memory_once_at_a_time() {
    let path = std::env::temp_dir().join(format!("pando-memory-{}.onnx", std::process::id()));
    write_model(&path);
    let before = status("VmRSS");
    let peaks = [peak_of_load(&path), peak_of_load(&path)];
    std::fs::remove_file(&path).unwrap();
    let mib = |bytes: u64| bytes >> 20;
    let text = format!("before {} MiB, peaks {} and {}", mib(before), mib(peaks[0]), mib(peaks[1]));
    println!("{text}");
    // Weights are packed one by one, and let go as they are.
    assert!(peaks[0] < before + MODEL_BYTES * 5 / 4, "{text}");
    assert!(peaks[1] < peaks[0] + MODEL_BYTES / 10, "{text}");
}
