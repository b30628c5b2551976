//! Goal: exported models compute what the graph does. Method: random programs (PANDO_SEEDS sets how many),
//! exported, imported again and evaluated; a few written by hand. With PANDO_ONNX_EXPORTED the models are written
//! to that folder, for `check_exports.py` to judge them by the standard's checker and ONNX Runtime.

mod common;

use bytes::Bytes;
use common::f32s;
use pando_base::{DType, Tensor};
use pando_graph::generate::{GenerateOptions, Program, Source, generate};
use pando_graph::{Builder, Module, TensorType, eval, print, testing};
use pando_onnx::elem::Elem;
use pando_onnx::proto::TensorProto;
use pando_onnx::{Options, export, export_model, parse};
use prost::Message;
use std::path::Path;

fn program(seed: u64, options: &GenerateOptions) -> Program {
    let bytes = Source::seeded_bytes(seed, 64 + seed as usize % 512);
    generate(&mut Source::new(&bytes), options)
}

/// What several operators in place of one may differ by, each rounding to the type.
fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 4e-3,
        DType::BF16 => 3e-2,
        _ => 1e-5,
    }
}

fn differs(a: &Tensor, b: &Tensor) -> Option<String> {
    if (a.dtype(), a.shape()) != (b.dtype(), b.shape()) {
        return Some(format!("{}{} and {}{}", a.dtype(), a.shape(), b.dtype(), b.shape()));
    }
    let tolerance = tolerance(a.dtype());
    let close = |a: f64, b: f64| {
        a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= tolerance * a.abs().max(b.abs()).max(1e-3)
    };
    let mut pairs = a.to_f64().into_iter().zip(b.to_f64()).enumerate();
    pairs.find(|&(_, (a, b))| !close(a, b)).map(|(at, (a, b))| format!("element {at}: {a} and {b}"))
}

#[test]
fn random_programs_come_back() {
    let seeds: u64 = std::env::var("PANDO_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(600);
    let types =
        [DType::F32, DType::F32, DType::F16, DType::I32, DType::BF16, DType::Bool, DType::U8, DType::I64];
    let options = GenerateOptions { dtypes: types.to_vec(), special_values: false, ..Default::default() };
    let mut exported = 0;
    for seed in 0..seeds {
        let Program { module, inputs } = program(seed, &options);
        let bytes = match export(&module) {
            Ok(bytes) => bytes,
            Err(error) => {
                assert!(error.to_string().contains("ONNX"), "seed {seed}: {error}");
                continue;
            }
        };
        let fail = |what: String| -> ! { panic!("seed {seed}: {what}\n{}", print(&module)) };
        let imported = match parse(bytes.clone().into(), "exported", None, &Options::default()) {
            Ok(imported) => imported,
            Err(error) => fail(error.to_string()),
        };
        let main = |module: &Module| module.main().unwrap();
        let expected = eval(&module, main(&module), &inputs).unwrap();
        // An input that nothing uses is an input still.
        let found = match eval(&imported.module, main(&imported.module), &inputs) {
            Ok(found) => found,
            Err(error) => fail(error.to_string()),
        };
        for (position, (a, b)) in expected.iter().zip(&found).enumerate() {
            if let Some(difference) = differs(a, b) {
                fail(format!("result {position}, {difference}"));
            }
        }
        exported += 1;
        write(seed, &bytes, &inputs, &expected);
    }
    println!("{exported} of {seeds} programs have ONNX operators");
    assert!(2 * exported > seeds, "most programs can be exported, not {exported} of {seeds}");
}

/// Every `; run:` line of tests/ops gives the values that stand there, also by way of a file.
#[test]
fn operators_come_back() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/ops");
    let (mut exported, mut left) = (0, 0);
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "graph") {
            continue;
        }
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        let module = pando_graph::parse(&text, &name).unwrap();
        // What is several operators in ONNX is rounded several times.
        let tolerance = testing::tolerance(&text).unwrap().max(2e-3);
        for line in testing::run_lines(&text).unwrap() {
            let Ok(bytes) = export(&with_main(&module, &line.func)) else {
                left += 1;
                continue;
            };
            let found = parse(bytes.into(), &name, None, &Options::default())
                .and_then(|imported| eval(&imported.module, imported.module.main().unwrap(), &line.args))
                .and_then(|found| testing::compare(&found, &line.expected, tolerance));
            if let Err(error) = found {
                panic!("{name}, line {}: {error}", line.line);
            }
            exported += 1;
        }
    }
    println!("{exported} lines come back, {left} have no ONNX operator");
    assert!(exported > left);
}

/// The module with another function as `main`.
fn with_main(module: &Module, name: &str) -> Module {
    let mut module = module.clone();
    let func = module.func_named(name).unwrap();
    if let Some(main) = module.main() {
        module.funcs[main].name = "other".into();
    }
    module.funcs[func].name = "main".into();
    module
}

fn write(seed: u64, model: &[u8], inputs: &[Tensor], outputs: &[Tensor]) {
    let Some(folder) = std::env::var_os("PANDO_ONNX_EXPORTED") else { return };
    let data = Path::new(&folder).join(format!("{seed:05}")).join("data_0");
    std::fs::create_dir_all(&data).unwrap();
    std::fs::write(data.with_file_name("model.onnx"), model).unwrap();
    for (what, tensors) in [("input", inputs), ("output", outputs)] {
        for (position, tensor) in tensors.iter().enumerate() {
            let proto = TensorProto {
                dims: tensor.shape().iter().map(|&size| size as i64).collect(),
                data_type: Elem::of(tensor.dtype()).0,
                raw_data: Some(Bytes::copy_from_slice(tensor.bytes())),
                ..TensorProto::default()
            };
            std::fs::write(data.join(format!("{what}_{position}.pb")), proto.encode_to_vec()).unwrap();
        }
    }
}

#[test]
fn names_stay_and_stay_apart() {
    let mut b = Builder::new();
    b.begin("main");
    let x = b.param("x", TensorType::new(DType::F32, [2u64]));
    let y = b.exp(x).unwrap();
    b.name(y, "y");
    b.end(&[y, x, y]);
    let model = export_model(&b.finish()).unwrap();
    let graph = model.graph.unwrap();
    let names = |infos: &[pando_onnx::proto::ValueInfoProto]| -> Vec<String> {
        infos.iter().map(|info| info.name.clone()).collect()
    };
    assert_eq!(names(&graph.input), ["x"]);
    assert_eq!(names(&graph.output), ["y", "x_", "y_"]);
}

#[test]
fn what_onnx_lacks_is_told() {
    let error = |ty: &str, op: &str| {
        let text = format!("func @main(%x: {ty}) -> {ty} {{\n  %y = {op} : {ty}\n  return %y\n}}\n");
        export(&pando_graph::parse(&text, "t").unwrap()).unwrap_err().to_string()
    };
    assert!(error("f32[N]", "exp %x").contains("N"));
    assert!(error("f143[2]", "neg %x").contains("ONNX"));
    assert!(error("i32[4]", "scan %x func=max axis=0").contains("ONNX has no operator for scan"));
}

/// Loops of both kinds and branches, on values captured from outside.
#[test]
fn control_flow() {
    let text = "
func @double(%i: i32[], %x: f32[2]) -> f32[2] {
  %y = add %x, %x : f32[2]
  return %y
}
func @small(%x: f32[2]) -> bool[] {
  %m = reduce %x func=max axes=[0] : f32[]
  %c = constant @limit : f32[]
  %s = lt %m, %c : bool[]
  return %s
}
func @grow(%x: f32[2]) -> f32[2] {
  %y = add %x, %x : f32[2]
  return %y
}
func @same(%x: f32[2]) -> f32[2] {
  return %x
}
const @limit: f32[] = [100]
func @main(%x: f32[2]) -> f32[2], f32[2], f32[2] {
  %a = repeat %x count=3 body=@double : f32[2]
  %b = while %x cond=@small body=@grow : f32[2]
  %c = call @small %x : bool[]
  %d = if %c, %x then=@grow else=@same : f32[2]
  return %a, %b, %d
}
";
    let module = match pando_graph::parse(text, "t") {
        Ok(module) => module,
        Err(error) => panic!("{error}"),
    };
    let bytes = export(&module).unwrap();
    let imported = parse(bytes.into(), "exported", None, &Options::default()).unwrap();
    for x in [f32s(&[2], &[1.0, -3.0]), f32s(&[2], &[200.0, 0.0])] {
        let run = |module: &Module| eval(module, module.main().unwrap(), std::slice::from_ref(&x)).unwrap();
        assert_eq!(run(&module), run(&imported.module));
    }
}
