//! Goal: models whose sizes depend on what they compute give the right outputs for any inputs.
//! Method: one session, inputs that lead to other sizes each time, on both ways to run a graph.

mod common;

use common::*;
use pando_base::{DType, Result, Tensor};
use pando_graph::Module;
use pando_onnx::elem::Elem;
use pando_onnx::proto::{AttributeProto, ModelProto};
use pando_onnx::{Data, Engine, Given, Options, Sample, parse};
use prost::Message;
use std::sync::{Arc, Mutex};

fn given(tensor: Tensor) -> Given {
    let elem = Elem::of(tensor.dtype());
    Given::Data(Data::Numbers(tensor, elem))
}

/// A compiled graph.
type Run = Box<dyn Fn(&[Tensor]) -> Result<Vec<Tensor>> + Send + Sync>;
type Compile = dyn Fn(Module) -> Result<Run> + Send + Sync;
type Session = pando_onnx::Session<Run>;

fn session(name: &str, model: &ModelProto, compile: Box<Compile>) -> Session {
    attempt(name, model, compile).unwrap()
}

fn attempt(name: &str, model: &ModelProto, compile: Box<Compile>) -> Result<Session> {
    let engine = Engine { compile, run: |run, args| run(args) };
    let path = std::env::temp_dir().join(format!("pando-{}-{name}.onnx", std::process::id()));
    std::fs::write(&path, model.encode_to_vec()).unwrap();
    let session = Session::open(&path, Options::default(), engine);
    std::fs::remove_file(&path).unwrap();
    session
}

fn outputs(session: &Session, inputs: &[(&str, Tensor)]) -> Result<Vec<Vec<f64>>> {
    let inputs: Vec<_> =
        inputs.iter().map(|(name, tensor)| (name.to_string(), given(tensor.clone()))).collect();
    let number = |given: Given| match given {
        Given::Data(Data::Numbers(tensor, _)) => tensor.to_f64(),
        other => panic!("{other:?}"),
    };
    Ok(session.run(&inputs)?.into_iter().map(|(_, given)| number(given)).collect())
}

fn evaluated(module: Module) -> Result<Run> {
    Ok(Box::new(move |args| pando_graph::eval(&module, module.main().unwrap(), args)))
}

fn on_engine(module: Module) -> Result<Run> {
    let options = pando_cpu::CompileOptions { threads: 1, ..Default::default() };
    let compiled = pando_cpu::compile_owned(module, &options)?;
    Ok(Box::new(move |args| compiled.run(args)))
}

/// The elements of `x·2` above 1, and how many there are.
fn above_one() -> ModelProto {
    let flat = ints("axes", &[0]);
    let nodes = vec![
        node("Mul", &["x", "two"], &["h"], vec![]),
        node("Greater", &["h", "one"], &["g"], vec![]),
        node("Compress", &["h", "g"], &["y"], vec![int("axis", 0)]),
        node("Shape", &["y"], &["n"], vec![]),
        node("Identity", &["n"], &["count"], vec![flat]),
    ];
    let weights = [("two", f32s(&[], &[2.0])), ("one", f32s(&[], &[1.0]))];
    model(&["x: f32[N]"], &["y", "count"], &weights, nodes)
}

#[test]
fn other_values_give_other_sizes() {
    for compile in [Box::new(evaluated) as Box<Compile>, Box::new(on_engine)] {
        let session = session("sizes", &above_one(), compile);
        let run = |x: &[f64]| outputs(&session, &[("x", f32s(&[x.len() as u64], x))]).unwrap();
        assert_eq!(run(&[1.0, 0.0, 2.0]), [vec![2.0, 4.0], vec![2.0]]);
        assert_eq!(run(&[1.0, 0.0, 3.0]), [vec![2.0, 6.0], vec![2.0]]);
        assert_eq!(run(&[0.0, 0.0, 3.0]), [vec![6.0], vec![1.0]]);
        assert_eq!(run(&[0.0, 0.0, 3.0, 1.0]), [vec![6.0, 2.0], vec![2.0]]);
    }
}

/// Inputs that decide the same need no second translation, and only what decides is computed in advance.
#[test]
fn a_translation_is_used_again() {
    let compiled = Arc::new(Mutex::new(Vec::new()));
    let seen = compiled.clone();
    let compile = move |module: Module| {
        let nodes = module.funcs.values().flat_map(|func| func.nodes.values());
        seen.lock().unwrap().push(nodes.map(|node| node.op.name()).collect::<Vec<_>>());
        evaluated(module)
    };
    let session = session("again", &above_one(), Box::new(compile));
    let run = |x: &[f64]| outputs(&session, &[("x", f32s(&[3], x))]).unwrap()[0].clone();
    let count = || compiled.lock().unwrap().len();
    assert_eq!(run(&[1.0, 0.0, 2.0]), [2.0, 4.0]);
    {
        let modules = compiled.lock().unwrap();
        let [condition, whole] = &modules[..] else { panic!("{modules:?}") };
        assert!(condition.contains(&"gt") && !condition.contains(&"gather"), "{condition:?}");
        assert!(whole.contains(&"gather"), "{whole:?}");
    }
    assert_eq!(run(&[5.0, 0.25, 3.0]), [10.0, 6.0]);
    assert_eq!(count(), 2);
    assert_eq!(run(&[0.0, 0.0, 3.0]), [6.0]);
    assert_eq!(count(), 4);
}

/// The body doubles `a` and stops above 10; each value on the way is stacked.
#[test]
fn loops_end_where_the_data_says() {
    let body = graph(
        &["i: i64[]", "c: bool[]", "a: f32[]"],
        &["c2", "a2", "a2"],
        &[],
        vec![node("Add", &["a", "a"], &["a2"], vec![]), node("Less", &["a2", "ten"], &["c2"], vec![])],
    );
    let nodes = vec![node("Loop", &["", "yes", "x"], &["last", "all"], vec![subgraph("body", body)])];
    let weights = [("ten", f32s(&[], &[10.0])), ("yes", Tensor::from_ints(DType::Bool, [], &[1]))];
    let session =
        session("loop", &model(&["x: f32[]"], &["last", "all"], &weights, nodes), Box::new(on_engine));
    let run = |x: f64| outputs(&session, &[("x", f32s(&[], &[x]))]).unwrap();
    assert_eq!(run(3.0), [vec![12.0], vec![6.0, 12.0]]);
    assert_eq!(run(1.0), [vec![16.0], vec![2.0, 4.0, 8.0, 16.0]]);
}

/// A file stays to be translated only where inputs may say more.
#[test]
fn what_no_inputs_help_is_an_error_at_once() {
    let failure = |nodes| {
        let model = model(&["x: f32[2,3]"], &["y"], &[], nodes);
        attempt("at-once", &model, Box::new(on_engine)).err().map(|error| error.to_string())
    };
    let nonzero = || node("NonZero", &["x"], &["y"], vec![]);
    assert_eq!(failure(vec![nonzero()]), None);
    let unknown = failure(vec![nonzero(), node("Frobnicate", &["x"], &["z"], vec![])]).unwrap();
    assert!(unknown.contains("no translation of Frobnicate"), "{unknown}");
    let wrong = failure(vec![node("Transpose", &["x"], &["y"], vec![ints("perm", &[0, 0])])]).unwrap();
    assert!(wrong.contains("Transpose"), "{wrong}");
}

#[test]
fn a_sample_must_fit_the_declared_inputs() {
    let attempt = |inputs: &[(&str, Tensor)]| {
        let inputs = inputs.iter().map(|(name, tensor)| (name.to_string(), tensor.clone())).collect();
        let options = Options { sample: Some(Sample::new(inputs)), ..Options::default() };
        let nodes = vec![node("Add", &["x", "y"], &["z"], Vec::<AttributeProto>::new())];
        let model = model(&["x: f32[N,2]", "y: f32[N,1]"], &["z"], &[], nodes);
        parse(model.encode_to_vec().into(), "m", None, &options)
            .map(|imported| imported.inputs[0].ty.to_string())
    };
    let x = f32s(&[3, 2], &[0.0; 6]);
    assert_eq!(attempt(&[("x", x.clone())]).unwrap(), "f32[3,2]");
    let message = |inputs: &[(&str, Tensor)]| attempt(inputs).unwrap_err().to_string();
    assert!(message(&[("x", x.clone()), ("y", f32s(&[4, 1], &[0.0; 4]))]).contains("two sizes, 3 and 4"));
    assert!(message(&[("x", f32s(&[3, 3], &[0.0; 9]))]).contains("declares float[3,2]"));
    assert!(message(&[("z", x)]).contains("has no input 'z'"));
}
