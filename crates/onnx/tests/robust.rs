//! Goal: no input panics, hangs or takes much memory; it gives a graph or an error.
//! Method: (1) every operator with random ranks, types and attributes, with its inputs open and as a sample, and what
//! comes of it exported; (2) mutated bytes of small models.
//! Both are seeded and run for a fixed number of rounds; PANDO_ONNX_FUZZ multiplies the rounds.
//!
//! Memory is bounded by the file (see `proto.rs`), by what is computed while importing (256 MiB, and
//! vectors of at most 2^24 elements built by the translations), by 2^26 elements of a sparse tensor and by
//! 2^20 nodes however functions and loops are unrolled.

mod common;

use common::*;
use pando_base::{DType, Tensor};
use pando_onnx::proto::*;
use pando_onnx::{Options, Sample, export, parse};
use prost::Message;

fn rounds(base: u64) -> u64 {
    base * std::env::var("PANDO_ONNX_FUZZ").ok().and_then(|factor| factor.parse().ok()).unwrap_or(1)
}

#[test]
fn every_operator_takes_any_operands() {
    let mut random = Random(7);
    let mut panics = Vec::new();
    for round in 0..rounds(40) {
        for (domain, name) in pando_onnx::operators() {
            let op = if domain.is_empty() { name.to_string() } else { format!("{domain}:{name}") };
            let (model, inputs) = any_call(&op, &mut random);
            let sample = Options { sample: Some(Sample::new(inputs)), ..Options::default() };
            let attempt = || {
                let known = parse(model.encode_to_vec().into(), "m.onnx", None, &sample);
                let open = import(&model);
                open.or(known).map(|imported| {
                    // What cannot be exported is an error.
                    let _ = export(&imported.module);
                    pando_graph::validate(&imported.module)
                })
            };
            match std::panic::catch_unwind(std::panic::AssertUnwindSafe(attempt)) {
                Ok(Ok(valid)) => assert!(valid.is_ok(), "round {round}, {op}: {valid:?}\n{model:?}"),
                Ok(Err(_)) => {}
                Err(_) => panics.push(format!("round {round}: {op}")),
            }
        }
    }
    assert!(panics.is_empty(), "{panics:?}");
}

const TYPES: [DType; 7] =
    [DType::F32, DType::F32, DType::F16, DType::I64, DType::I32, DType::U8, DType::Bool];

fn any_tensor(random: &mut Random) -> Tensor {
    let rank = *random.pick(&[0, 1, 1, 2, 3, 4, 4, 5]);
    let shape: Vec<u64> = (0..rank).map(|_| *random.pick(&[0, 1, 1, 2, 2, 3, 4, 6])).collect();
    let count = shape.iter().product::<u64>();
    let dtype = *random.pick(&TYPES);
    let values: Vec<f64> = (0..count).map(|_| random.below(9) as f64 - 3.0).collect();
    Tensor::from_f64(dtype, shape, &values)
}

/// A model of one node, and values for its inputs.
fn any_call(op: &str, random: &mut Random) -> (ModelProto, Vec<(String, Tensor)>) {
    let (mut inputs, mut weights, mut names) = (Vec::new(), Vec::new(), Vec::new());
    let mut sample = Vec::new();
    let like = any_tensor(random);
    for position in 0..random.below(8) {
        let name = format!("x{position}");
        let tensor = if random.below(2) == 0 { like.clone() } else { any_tensor(random) };
        match random.below(5) {
            0 => names.push(String::new()),
            1 | 2 => {
                weights.push((name.clone(), tensor));
                names.push(name);
            }
            _ => {
                let dims: Vec<String> = tensor
                    .shape()
                    .iter()
                    .map(|size| if random.below(5) == 0 { format!("n{size}") } else { size.to_string() })
                    .collect();
                inputs.push(format!("{name}: {}[{}]", tensor.dtype(), dims.join(",")));
                sample.push((name.clone(), tensor));
                names.push(name);
            }
        }
    }
    let attributes = (0..random.below(5)).map(|_| any_attribute(random)).collect();
    let outputs: Vec<String> = (0..1 + random.below(4)).map(|i| format!("y{i}")).collect();
    fn refs(names: &[String]) -> Vec<&str> {
        names.iter().map(String::as_str).collect()
    }
    let node = node(op, &refs(&names), &refs(&outputs), attributes);
    let weights: Vec<(&str, Tensor)> =
        weights.iter().map(|(name, tensor)| (name.as_str(), tensor.clone())).collect();
    let mut model = model(&refs(&inputs), &["y0"], &weights, vec![node]);
    model.opset_import[0].version = 7 + random.below(22) as i64;
    (model, sample)
}

fn any_attribute(random: &mut Random) -> AttributeProto {
    const NAMES: [&str; 46] = [
        "axis",
        "axes",
        "kernel_shape",
        "strides",
        "pads",
        "dilations",
        "group",
        "perm",
        "shape",
        "split",
        "starts",
        "ends",
        "keepdims",
        "num_heads",
        "kv_num_heads",
        "q_num_heads",
        "block_size",
        "K",
        "N",
        "bits",
        "mode",
        "equation",
        "k",
        "blocksize",
        "batch_dims",
        "num_groups",
        "direction",
        "layout",
        "size",
        "to",
        "dtype",
        "output_height",
        "sampling_ratio",
        "num_scan_inputs",
        "body",
        "then_branch",
        "value",
        "output_shape",
        "output_padding",
        "batch_axis",
        "time_axis",
        "scales",
        "num_outputs",
        "hidden_size",
        "value_ints",
        "auto_pad",
    ];
    const STRINGS: [&str; 8] =
        ["SAME_UPPER", "reflect", "ij,jk->ik", "ii->i", "reverse", "CRD", "cubic", "..."];
    let name = *random.pick(&NAMES);
    let small = |random: &mut Random| {
        *random.pick(&[-3i64, -1, -1, 0, 1, 1, 2, 2, 3, 4, 7, i64::MIN, i64::MAX, 1 << 40])
    };
    match random.below(6) {
        0 | 1 => int(name, small(random)),
        2 | 3 => {
            let values: Vec<i64> = (0..random.below(5)).map(|_| small(random)).collect();
            ints(name, &values)
        }
        4 => float(name, random.below(7) as f32 - 2.5),
        _ => string(name, random.pick::<&str>(&STRINGS)),
    }
}

fn models() -> Vec<ModelProto> {
    let body = graph(
        &["i: i64[]", "c: bool[]", "a: f32[2]"],
        &["c2", "a2"],
        &[],
        vec![node("Identity", &["c"], &["c2"], vec![]), node("Add", &["a", "x"], &["a2"], vec![])],
    );
    vec![
        model(
            &["x: f32[N,2]"],
            &["y"],
            &[("w", f32s(&[2, 3], &[1.0; 6]))],
            vec![node("MatMul", &["x", "w"], &["y"], vec![])],
        ),
        model(
            &["x: f32[1,2,5,5]"],
            &["y"],
            &[("w", f32s(&[4, 2, 3, 3], &[0.5; 72]))],
            vec![
                node(
                    "Conv",
                    &["x", "w"],
                    &["h"],
                    vec![ints("pads", &[1, 1, 1, 1]), ints("strides", &[2, 2])],
                ),
                node("Relu", &["h"], &["y"], vec![]),
            ],
        ),
        model(
            &["x: f32[2]", "n: i64[]"],
            &["y"],
            &[("m", i64s(&[], &[3])), ("yes", Tensor::from_ints(DType::Bool, [], &[1]))],
            vec![node("Loop", &["m", "yes", "x"], &["y"], vec![subgraph("body", body)])],
        ),
        model(
            &["x: f32[N,3,4]"],
            &["y"],
            &[("i", i64s(&[1], &[0])), ("t", i64s(&[1], &[-1]))],
            vec![
                node("Shape", &["x"], &["s"], vec![]),
                node("Gather", &["s", "i"], &["n"], vec![]),
                node("Concat", &["n", "t"], &["d"], vec![int("axis", 0)]),
                node("Reshape", &["x", "d"], &["y"], vec![]),
            ],
        ),
    ]
}

#[test]
fn mutated_files_give_errors() {
    let mut seeds: Vec<Vec<u8>> = models().iter().map(Message::encode_to_vec).collect();
    if let Some(folder) = std::env::var_os("PANDO_ONNX_NODE_TESTS") {
        let cases = std::fs::read_dir(folder).unwrap().map(|case| case.unwrap().path().join("model.onnx"));
        seeds.extend(cases.map(|path| std::fs::read(path).unwrap()));
    }
    let mut random = Random(3);
    for _ in 0..rounds(4000) {
        let mut bytes = random.pick(&seeds).clone();
        for _ in 0..1 + random.below(4) {
            mutate(&mut bytes, &mut random);
        }
        let copy = bytes.clone();
        let result = std::panic::catch_unwind(move || {
            parse(bytes.into(), "m.onnx", None, &Options::default())
                .map(|imported| pando_graph::validate(&imported.module))
        });
        match result {
            Ok(Ok(valid)) => assert!(valid.is_ok(), "{valid:?}: {copy:?}"),
            Ok(Err(_)) => {}
            Err(_) => panic!("panics on {copy:?}"),
        }
    }
}

fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    if bytes.is_empty() {
        return;
    }
    let at = random.below(bytes.len() as u64) as usize;
    match random.below(5) {
        0 => bytes[at] = random.next() as u8,
        1 => bytes[at] ^= 1 << random.below(8),
        2 => bytes.truncate(at),
        3 => drop(bytes.remove(at)),
        _ => {
            let end = (at + random.below(12) as usize).min(bytes.len());
            let copied = bytes[at..end].to_vec();
            let to = random.below(bytes.len() as u64) as usize;
            bytes.splice(to..to, copied);
        }
    }
}
