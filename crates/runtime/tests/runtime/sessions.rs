//! Programs over state: what runs, and what is refused.

use crate::network::*;
use pando_base::{DType, Tensor};
use pando_graph::{Module, TensorType, parse};
use pando_runtime::{Program, Session};
use pando_transform::train::Training;
use pando_transform::{Accumulation, Optimizer};

/// `main(a, b, x)` to `(a + x, b · x, x - b)`, in f32[2].
fn module() -> Module {
    let text = "func @main(%a: f32[2], %b: f32[2], %x: f32[2]) -> f32[2], f32[2], f32[2] {
  %sum = add %a, %x : f32[2]
  %product = mul %b, %x : f32[2]
  %rest = sub %x, %b : f32[2]
  return %sum, %product, %rest
}";
    parse(text, "sum.graph").unwrap()
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| name.to_string()).collect()
}

fn program(reads: &[&str], writes: &[&str], inputs: &[&str], outputs: &[&str]) -> Program {
    let [reads, writes, inputs, outputs] = [reads, writes, inputs, outputs].map(names);
    Program { module: module(), reads, writes, inputs, outputs }
}

fn pair(a: f64, b: f64) -> Tensor {
    Tensor::from_f64(DType::F32, [2], &[a, b])
}

fn state() -> Vec<(String, Tensor)> {
    vec![("a".into(), pair(1.0, 2.0)), ("b".into(), pair(3.0, 4.0)), ("c".into(), pair(0.0, 0.0))]
}

/// State is written in the order of the results, whether it was read or not.
#[test]
fn programs_share_state() {
    let programs = vec![
        ("both".into(), program(&["a", "b"], &["b", "a"], &["x"], &["rest"])),
        ("fresh".into(), program(&["b", "a"], &["c", "a"], &["x"], &["rest"])),
    ];
    let mut session = Session::new(programs, state(), &options()).unwrap();
    let x = pair(10.0, 100.0);
    let values = |session: &Session, name: &str| session.state(name).unwrap().to_f64();
    // b = a + x, a = b · x
    assert_eq!(session.run("both", &[(&x).into()]).unwrap(), [pair(7.0, 96.0)]);
    assert_eq!((values(&session, "b"), values(&session, "a")), (vec![11.0, 102.0], vec![30.0, 400.0]));
    // c = b + x, a = a · x
    assert_eq!(session.run("fresh", &[(&x).into()]).unwrap(), [pair(-20.0, -300.0)]);
    assert_eq!((values(&session, "c"), values(&session, "a")), (vec![21.0, 202.0], vec![300.0, 40000.0]));
    assert_eq!(values(&session, "b"), [11.0, 102.0]);
}

/// Tensors that somebody took before a run do not change with it.
#[test]
fn state_that_was_taken_stays() {
    let programs = vec![("p".into(), program(&["a", "b"], &["a", "b"], &["x"], &["rest"]))];
    let mut session = Session::new(programs, state(), &options()).unwrap();
    let taken = session.state("a").unwrap();
    session.run("p", &[(&taken).into()]).unwrap();
    assert_eq!(taken, pair(1.0, 2.0));
    assert_eq!(session.state("a").unwrap(), pair(2.0, 4.0));
}

#[test]
fn bad_programs_are_refused() {
    let check = |program: Program, state: Vec<(String, Tensor)>, expect: &str| {
        let error = Session::new(vec![("p".into(), program)], state, &options()).map(|_| ()).unwrap_err();
        assert_eq!(error.to_string(), expect);
    };
    let whole = || program(&["a", "b"], &["a", "b"], &["x"], &["rest"]);
    check(
        program(&["a"], &["a"], &["x"], &["y", "z"]),
        state(),
        "program 'p' names 2 parameters, its main has 3",
    );
    check(
        program(&["a", "b"], &["a"], &["x"], &["y"]),
        state(),
        "program 'p' names 2 results, its main has 3",
    );
    check(
        program(&["a", "d"], &["a"], &["x"], &["y", "z"]),
        state(),
        "program 'p': there is no state 'd'; `state_names` lists what there is",
    );
    check(
        program(&["a", "a"], &["a"], &["x"], &["y", "z"]),
        state(),
        "program 'p': the read state 'a' is there twice; a name stands for one",
    );
    check(
        program(&["a", "b"], &["a", "a"], &["x"], &["z"]),
        state(),
        "program 'p': the written state 'a' is there twice; a name stands for one",
    );
    let mut wide = state();
    wide[1].1 = Tensor::zeros(DType::F32, [3]);
    check(whole(), wide, "program 'p': state 'b' is f32[3], not f32[2]");
    let mut twice = state();
    twice[1].0 = "a".into();
    check(whole(), twice, "the state 'a' is there twice; a name stands for one");
    let reserved = vec![("__metadata__".into(), pair(0.0, 0.0))];
    check(whole(), reserved, "state cannot be called '__metadata__'; give it another name");
    check(
        Program { module: Module::default(), ..whole() },
        state(),
        "the module of program 'p' has no function @main",
    );
    let mut broken = whole();
    let main = broken.module.main().unwrap();
    let param = broken.module.funcs[main].params[0];
    broken.module.funcs[main].values[param].ty = TensorType::scalar(DType::F32);
    let error = Session::new(vec![("p".into(), broken)], state(), &options()).map(|_| ()).unwrap_err();
    assert!(error.to_string().starts_with("program 'p': func @main, n0 (%sum = add): "), "{error}");
    let two = vec![("p".into(), whole()), ("p".into(), whole())];
    let error = Session::new(two, state(), &options()).map(|_| ()).unwrap_err();
    assert_eq!(error.to_string(), "the program 'p' is there twice; a name stands for one");
}

#[test]
fn bad_calls_change_nothing() {
    let programs = vec![("p".into(), program(&["a", "b"], &["a", "b"], &["x"], &["rest"]))];
    let mut session = Session::new(programs, state(), &options()).unwrap();
    let before = snapshot(&session);
    let mut error = |name: &str, inputs: &[Tensor]| {
        let inputs: Vec<pando_runtime::Input> = inputs.iter().map(Into::into).collect();
        session.run(name, &inputs).unwrap_err().to_string()
    };
    let x = pair(1.0, 1.0);
    assert_eq!(error("q", std::slice::from_ref(&x)), "there is no program 'q'; there are: 'p'");
    assert_eq!(error("p", &[]), "program 'p' takes the inputs 'x', found 0");
    assert_eq!(
        error("p", &[Tensor::zeros(DType::F32, [3])]),
        "program 'p': the input 'x' is f32[3], expected f32[2]"
    );
    assert_eq!(
        error("p", &[Tensor::zeros(DType::F16, [2])]),
        "program 'p': the input 'x' is f16[2], expected f32[2]"
    );
    assert_eq!(
        session.set_state("a", Tensor::zeros(DType::F32, [3])).unwrap_err().to_string(),
        "state 'a' is f32[2], not f32[3]"
    );
    let unknown = session.state("z").unwrap_err().to_string();
    assert_eq!(unknown, "there is no state 'z'; `state_names` lists what there is");
    let error = session.train(&[&[(&x).into()]]).unwrap_err().to_string();
    assert_eq!(error, "training needs a program 'step', or 'accumulate' and 'update'; there are: 'p'");
    assert_eq!(snapshot(&session), before);
}

#[test]
fn training_takes_as_many_micro_batches_as_agreed() {
    let accumulation = Accumulation { micro_batches: 2, replicas: 2, ..Accumulation::default() };
    let base = Training::new(Optimizer::named("sgd", &[]).unwrap());
    let mut four = session(&Training { accumulation, ..base.clone() });
    let inputs = batch(0);
    let inputs = inputs.each_ref().map(pando_runtime::Input::from);
    let before = snapshot(&four);
    let error = four.train(&[&inputs, &inputs]).unwrap_err().to_string();
    assert_eq!(error, "a training step takes 4 micro-batch(es), found 2");
    assert_eq!(snapshot(&four), before);
    let error = session(&base).train(&[]).unwrap_err().to_string();
    assert_eq!(error, "a training step takes 1 micro-batch(es), found 0");
}

/// Weights may be read by several programs and written by one: what is prepared of them follows.
#[test]
fn evaluation_sees_new_weights() {
    let mut session = session(&Training::new(Optimizer::named("sgd", &[("lr", 0.5)]).unwrap()));
    let inputs = batch(0);
    let inputs = inputs.each_ref().map(pando_runtime::Input::from);
    let mut last = session.evaluate(&inputs).unwrap()[0].get_f64(0);
    for _ in 0..5 {
        session.train(&[&inputs]).unwrap();
        let loss = session.evaluate(&inputs).unwrap()[0].get_f64(0);
        assert!(loss < last);
        last = loss;
    }
    for (name, tensor) in network().weights {
        session.set_state(&name, tensor).unwrap();
    }
    let first = session.run("step", &inputs).unwrap()[0].clone();
    for (name, tensor) in network().weights {
        session.set_state(&name, tensor).unwrap();
    }
    let again = session.evaluate(&inputs).unwrap()[0].get_f64(0);
    assert!((first.get_f64(0) - again).abs() < 1e-6);
}
