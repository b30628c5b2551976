//! Goal: the importer's own work (sizes, subgraphs, functions, files, errors) on models of a few nodes.
//! Method: models built from the format's messages; values are worked out by hand or given by an equal
//! model of simpler operators.

mod common;

use common::*;
use pando_base::{DType, Tensor};
use pando_graph::Op;
use pando_onnx::proto::*;
use pando_onnx::{Data, Given, Options, load, parse};
use prost::Message;

fn ops(model: &ModelProto) -> Vec<&'static str> {
    let imported = import(model).unwrap();
    let main = &imported.module.funcs[imported.module.main().unwrap()];
    main.nodes.values().map(|node| node.op.name()).collect()
}

/// Shape, Gather, Concat, Reshape as exporters write them leave a reshape, also of a named batch.
#[test]
fn shape_chains_fold() {
    let weights = [("zero", i64s(&[], &[0])), ("first", i64s(&[1], &[0])), ("rest", i64s(&[1], &[-1]))];
    let nodes = vec![
        node("Shape", &["x"], &["s"], vec![]),
        node("Gather", &["s", "zero"], &["n"], vec![int("axis", 0)]),
        node("Unsqueeze", &["n", "first"], &["n1"], vec![]),
        node("Concat", &["n1", "rest"], &["target"], vec![int("axis", 0)]),
        node("Reshape", &["x", "target"], &["y"], vec![]),
    ];
    let model = model(&["x: f32[batch,3,2]"], &["y"], &weights, nodes);
    assert_eq!(ops(&model), ["reshape"]);
    let imported = import(&model).unwrap();
    let main = &imported.module.funcs[imported.module.main().unwrap()];
    assert_eq!(main.ty(main.results[0]).to_string(), "f32[batch,6]");
    let x = f32s(&[1, 3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    assert_eq!(run(&model, std::slice::from_ref(&x))[0], x.reshaped([1, 6]));
}

/// Slice of a shape, Mul, ConstantOfShape, Equal, Where, Expand: how PyTorch writes expand().
#[test]
fn expand_chains_fold() {
    let weights = [("want", i64s(&[2], &[-1, 4])), ("minus", i64s(&[1], &[-1])), ("two", i64s(&[1], &[2]))];
    let nodes = vec![
        node("Shape", &["x"], &["s"], vec![]),
        node("Equal", &["want", "minus"], &["open"], vec![]),
        node("Where", &["open", "s", "want"], &["target"], vec![]),
        node("Expand", &["x", "target"], &["y"], vec![]),
    ];
    let model = model(&["x: f32[N,1]"], &["y"], &weights, nodes);
    assert_eq!(
        run(&model, &[f32s(&[2, 1], &[1.0, 2.0])])[0].to_f64(),
        [1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0]
    );
    assert!(!ops(&model).contains(&"select"));
}

/// A named size as a number: the mean over a dimension without a size.
#[test]
fn named_sizes_are_counted() {
    let nodes = vec![node("ReduceMean", &["x"], &["y"], vec![int("keepdims", 0)])];
    let model = model(&["x: f32[N]"], &["y"], &[], nodes);
    assert_eq!(run(&model, &[f32s(&[4], &[1.0, 2.0, 3.0, 6.0])])[0].to_f64(), [3.0]);
}

#[test]
fn dims_and_values_can_be_given() {
    let model = model(
        &["x: f32[N,2]", "shape: i64[1]"],
        &["y"],
        &[],
        vec![node("Reshape", &["x", "shape"], &["y"], vec![])],
    );
    assert!(error(&model).contains("Options::sample"), "{}", error(&model));
    let shape = Given::Data(Data::Numbers(i64s(&[1], &[6]), pando_onnx::elem::Elem::INT64));
    let (dims, values) = (vec![("N".into(), 3)], vec![("shape".into(), shape)]);
    let options = Options { dims, values, ..Options::default() };
    let imported = parse(model.encode_to_vec().into(), "m", None, &options).unwrap();
    assert_eq!(imported.inputs.len(), 1);
    assert_eq!(imported.inputs[0].ty.to_string(), "f32[3,2]");
}

#[test]
fn branches_capture_values() {
    let branch = |op: &str| graph(&[], &["r"], &[], vec![node(op, &["x", "w"], &["r"], vec![])]);
    let nodes = vec![node(
        "If",
        &["c"],
        &["y"],
        vec![subgraph("then_branch", branch("Add")), subgraph("else_branch", branch("Mul"))],
    )];
    let model = model(&["c: bool[]", "x: f32[2]"], &["y"], &[("w", f32s(&[2], &[3.0, 4.0]))], nodes);
    let x = f32s(&[2], &[1.0, 2.0]);
    let flag = |value: i128| Tensor::from_ints(DType::Bool, [], &[value]);
    assert_eq!(run(&model, &[flag(1), x.clone()])[0].to_f64(), [4.0, 6.0]);
    assert_eq!(run(&model, &[flag(0), x])[0].to_f64(), [3.0, 8.0]);
}

/// Three iterations known at import become a Repeat; a condition computed by the body a While.
#[test]
fn loops() {
    let body = |condition: Vec<NodeProto>| {
        let mut nodes = condition;
        nodes.push(node("Add", &["a", "x"], &["a2"], vec![]));
        graph(&["i: i64[]", "c: bool[]", "a: f32[2]"], &["c2", "a2"], &[], nodes)
    };
    let yes = ("yes", Tensor::from_ints(DType::Bool, [], &[1]));
    let build = |graph: GraphProto, count: i128| {
        let nodes = vec![node("Loop", &["m", "yes", "x"], &["y"], vec![subgraph("body", graph)])];
        model(
            &["x: f32[2]"],
            &["y"],
            &[("m", i64s(&[], &[count])), yes.clone(), ("limit", f32s(&[], &[10.0]))],
            nodes,
        )
    };
    let counted = build(body(vec![node("Identity", &["c"], &["c2"], vec![])]), 3);
    assert!(ops(&counted).contains(&"repeat"));
    assert_eq!(run(&counted, &[f32s(&[2], &[1.0, 2.0])])[0].to_f64(), [4.0, 8.0]);
    let open = build(
        body(vec![
            node("ReduceSum", &["a"], &["sum"], vec![int("keepdims", 0)]),
            node("Less", &["sum", "limit"], &["c2"], vec![]),
        ]),
        100,
    );
    assert!(ops(&open).contains(&"while"));
    // Sums 3, 6, 9, 12: the iteration that sees 12 is the last.
    assert_eq!(run(&open, &[f32s(&[2], &[1.0, 2.0])])[0].to_f64(), [5.0, 10.0]);
}

#[test]
fn functions_take_attributes() {
    let function = FunctionProto {
        name: "Leaky".into(),
        domain: "own".into(),
        input: vec!["x".into()],
        output: vec!["y".into()],
        attribute: vec!["slope".into()],
        node: vec![node(
            "LeakyRelu",
            &["x"],
            &["y"],
            vec![reference("alpha", "slope", AttributeType::Float)],
        )],
        ..FunctionProto::default()
    };
    let mut model = model(
        &["x: f32[2]"],
        &["y"],
        &[],
        vec![node("own:Leaky", &["x"], &["y"], vec![float("slope", 0.5)])],
    );
    model.functions.push(function.clone());
    assert_eq!(run(&model, &[f32s(&[2], &[-2.0, 2.0])])[0].to_f64(), [-1.0, 2.0]);
    model.functions[0].node = vec![node("own:Leaky", &["x"], &["y"], vec![])];
    assert!(error(&model).contains("calls itself"));
    // Each function calls the next one twice.
    model.functions = (0..40)
        .map(|i| FunctionProto {
            name: if i == 0 { "Leaky".into() } else { format!("F{i}") },
            node: vec![
                node(&format!("own:F{}", i + 1), &["x"], &["h"], vec![]),
                node(&format!("own:F{}", i + 1), &["h"], &["y"], vec![]),
            ],
            ..function.clone()
        })
        .collect();
    assert!(import(&model).is_err());
}

#[test]
fn all_unsupported_operators_are_told() {
    let nodes = vec![
        node("Wobble", &["x"], &["a"], vec![]),
        node("NonZero", &["x"], &["b"], vec![]),
        node("Wibble", &["a"], &["y"], vec![]),
    ];
    let message = error(&model(&["x: f32[2]"], &["y"], &[], nodes));
    for part in [
        "m.onnx: 3 node(s)",
        "'Wobble_a' (Wobble)",
        "'NonZero_b' (NonZero)",
        "'Wibble_y' (Wibble)",
        "Options::sample",
    ] {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn malformed_models() {
    let good = model(
        &["x: f32[2,2]"],
        &["y"],
        &[("w", f32s(&[2, 2], &[1.0; 4]))],
        vec![node("MatMul", &["x", "w"], &["y"], vec![])],
    );
    let bytes = good.encode_to_vec();
    // What follows the graph are versions; without them it is a model still.
    let graph_end = ModelProto { opset_import: vec![], ..good.clone() }.encoded_len();
    for length in 0..graph_end {
        assert!(parse(bytes[..length].to_vec().into(), "m", None, &Options::default()).is_err(), "{length}");
    }
    let check = |change: &dyn Fn(&mut ModelProto), expect: &str| {
        let mut model = good.clone();
        change(&mut model);
        let message = error(&model);
        assert!(message.contains(expect), "{message}\nexpected: {expect}");
    };
    fn graph_of(model: &mut ModelProto) -> &mut GraphProto {
        model.graph.as_mut().unwrap()
    }
    check(&|m| m.graph = None, "holds no graph");
    check(&|m| m.opset_import[0].version = 99, "version 99");
    check(&|m| graph_of(m).initializer[0].dims = vec![2, 3], "does not have 16 bytes");
    check(&|m| graph_of(m).initializer[0].dims = vec![i64::MAX, i64::MAX], "2^60");
    check(&|m| graph_of(m).initializer[0].dims = vec![-2, 2], "negative");
    check(&|m| graph_of(m).initializer[0].data_type = 15, "complex128");
    check(&|m| graph_of(m).node[0].input[1] = "y".into(), "'y' is not defined");
    check(&|m| graph_of(m).node[0].input[1].clear(), "input 1 is missing");
    check(&|m| graph_of(m).input[0] = info("x: f32[2,3]"), "different sizes");
    check(&|m| graph_of(m).input[0] = info("x: i64[2,2]"), "dot (C1)");
    check(&|m| graph_of(m).input[0] = info("x: f32[4611686018427387904]"), "2^60");
    check(&|m| graph_of(m).input[0].r#type = None, "is not stated");
    check(&|m| graph_of(m).output[0].name = "z".into(), "'z' is not defined");
}

#[test]
fn external_data_stays_in_the_folder() {
    let root = std::env::temp_dir().join(format!("pando-onnx-{}", std::process::id()));
    let folder = root.join("model");
    std::fs::create_dir_all(&folder).unwrap();
    let w = f32s(&[2], &[3.0, 4.0]);
    std::fs::write(folder.join("w.bin"), [&[0; 8], w.bytes()].concat()).unwrap();
    std::fs::write(root.join("outside.bin"), w.bytes()).unwrap();
    let build = |location: &str, offset: &str| {
        let mut model = model(
            &["x: f32[2]"],
            &["y"],
            &[("w", w.clone())],
            vec![node("Add", &["x", "w"], &["y"], vec![])],
        );
        let tensor = &mut model.graph.as_mut().unwrap().initializer[0];
        tensor.raw_data = None;
        tensor.data_location = 1;
        let entry = |key: &str, value: &str| StringStringEntryProto { key: key.into(), value: value.into() };
        tensor.external_data = vec![entry("location", location), entry("offset", offset)];
        let path = folder.join("m.onnx");
        std::fs::write(&path, model.encode_to_vec()).unwrap();
        load(&path)
    };
    let imported = build("w.bin", "8").unwrap();
    let result =
        pando_graph::eval(&imported.module, imported.module.main().unwrap(), std::slice::from_ref(&w))
            .unwrap();
    assert_eq!(result[0].to_f64(), [6.0, 8.0]);
    let error = |location: &str, offset: &str| build(location, offset).unwrap_err().to_string();
    assert!(error("w.bin", "12").contains("it ends before byte 20"));
    assert!(error("missing.bin", "0").contains("'missing.bin' cannot be read"));
    assert!(error("../outside.bin", "0").contains("lies outside"));
    assert!(error(&root.join("outside.bin").display().to_string(), "0").contains("lies outside"));
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(root.join("outside.bin"), folder.join("link.bin")).unwrap();
        assert!(error("link.bin", "0").contains("lies outside"));
    }
    std::fs::remove_dir_all(&root).unwrap();
}

/// The fused operators of ONNX Runtime against the standard's.
#[test]
fn fused_operators() {
    let mut random = Random(5);
    let mut draw = |shape: &[u64]| {
        let count: u64 = shape.iter().product();
        let values: Vec<f64> = (0..count).map(|_| random.below(1000) as f64 / 500.0 - 1.0).collect();
        f32s(shape, &values)
    };
    let qkv = [draw(&[1, 3, 8]), draw(&[1, 3, 8]), draw(&[1, 3, 8])];
    let inputs = ["q: f32[1,3,8]", "k: f32[1,3,8]", "v: f32[1,3,8]"];
    let heads = |op: &str, names: [&str; 2]| {
        let attributes =
            vec![int(names[0], 2), int(names[1], 2), int("is_causal", 1), int("unidirectional", 1)];
        model(&inputs, &["y"], &[], vec![node(op, &["q", "k", "v"], &["y"], attributes)])
    };
    let standard = run(&heads("Attention", ["q_num_heads", "kv_num_heads"]), &qkv);
    for op in ["com.microsoft:MultiHeadAttention", "com.microsoft:GroupQueryAttention"] {
        let fused = run(&heads(op, ["num_heads", "kv_num_heads"]), &qkv);
        pando_graph::testing::compare(&fused, &standard, 1e-6).unwrap();
    }
    let (skip, scale, bias) = (draw(&[1, 3, 8]), draw(&[8]), draw(&[8]));
    let weights = [("skip", skip), ("scale", scale), ("bias", bias)];
    let fused =
        vec![node("com.microsoft:SkipLayerNormalization", &["x", "skip", "scale", "bias"], &["y"], vec![])];
    let plain = vec![
        node("Add", &["x", "skip"], &["sum"], vec![]),
        node("LayerNormalization", &["sum", "scale", "bias"], &["y"], vec![float("epsilon", 1e-12)]),
    ];
    let results =
        [fused, plain].map(|nodes| run(&model(&["x: f32[1,3,8]"], &["y"], &weights, nodes), &qkv[..1]));
    pando_graph::testing::compare(&results[0], &results[1], 1e-6).unwrap();
}

/// Two columns of four weights in four bits, the lower ones first: (code - 8) · scale.
#[test]
fn weights_of_four_bits() {
    let bytes = Tensor::from_ints(DType::U8, [2, 1, 2], &[0xa9, 0x78, 0x88, 0x8f]);
    let weights = [("b", bytes), ("scale", f32s(&[2], &[1.0, 0.5]))];
    let attributes = vec![int("K", 4), int("N", 2), int("bits", 4), int("block_size", 4)];
    let model = model(
        &["x: f32[1,4]"],
        &["y"],
        &weights,
        vec![node("com.microsoft:MatMulNBits", &["x", "b", "scale"], &["y"], attributes)],
    );
    // Columns: [1, 2, 0, -1] and [0, 0, 3.5, 0].
    assert_eq!(run(&model, &[f32s(&[1, 4], &[1.0, 1.0, 2.0, 1.0])])[0].to_f64(), [2.0, 7.0]);
}

#[test]
fn sparse_initializers() {
    let mut model = model(&["x: f32[4]"], &["y"], &[], vec![node("Add", &["x", "w"], &["y"], vec![])]);
    let values = weight("w", &f32s(&[2], &[5.0, 6.0]));
    let indices = weight("", &i64s(&[2], &[1, 3]));
    let sparse = SparseTensorProto { values: Some(values), indices: Some(indices), dims: vec![4] };
    model.graph.as_mut().unwrap().sparse_initializer.push(sparse);
    assert_eq!(run(&model, &[f32s(&[4], &[1.0; 4])])[0].to_f64(), [1.0, 6.0, 1.0, 7.0]);
}

/// Softmax, normalisation and attention stay recognisable.
#[test]
fn composites_have_names() {
    let nodes = vec![
        node("LayerNormalization", &["x", "s", "b"], &["n"], vec![]),
        node("Softmax", &["n"], &["p"], vec![]),
        node("Gelu", &["p"], &["y"], vec![]),
    ];
    let weights = [("s", f32s(&[4], &[1.0; 4])), ("b", f32s(&[4], &[0.0; 4]))];
    let imported = import(&model(&["x: f32[2,4]"], &["y"], &weights, nodes)).unwrap();
    let main = &imported.module.funcs[imported.module.main().unwrap()];
    let called = main.nodes.values().filter_map(|node| match node.op {
        Op::Call(func) => imported.module.funcs[func].composite.clone(),
        _ => None,
    });
    assert_eq!(called.collect::<Vec<_>>(), ["layer_norm", "softmax", "gelu"]);
}
