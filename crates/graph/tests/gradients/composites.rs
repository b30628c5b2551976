//! The standard composites: their own rules are as right as their bodies'.

use super::differences::{Differentiated, Outcome};
use pando_base::{DType, Result};
use pando_graph::{Builder, TensorType, ValueId, parse, print};

fn check(types: &[&[u64]], build: impl Fn(&mut Builder, &[ValueId]) -> Result<Vec<ValueId>>) {
    for seed in 0..20 {
        let mut b = Builder::new();
        b.begin("main");
        let params: Vec<ValueId> = types
            .iter()
            .map(|&sizes| b.param("", TensorType::new(DType::F32, sizes.iter().copied())))
            .collect();
        let outputs = build(&mut b, &params).unwrap();
        let made = Differentiated::new(b, &params, &outputs, &[]).unwrap();
        assert_eq!(made.check(seed, &[]), Outcome::Right);
    }
}

#[test]
fn activations() {
    let x: &[&[u64]] = &[&[3, 5]];
    check(x, |b, args| Ok(vec![b.sigmoid(args[0])?]));
    check(x, |b, args| Ok(vec![b.silu(args[0])?]));
    check(x, |b, args| Ok(vec![b.gelu(args[0])?]));
    check(x, |b, args| Ok(vec![b.gelu_tanh(args[0])?]));
    check(x, |b, args| Ok(vec![b.softmax(args[0], 1)?]));
    check(x, |b, args| Ok(vec![b.softmax(args[0], 0)?]));
    check(x, |b, args| Ok(vec![b.log_softmax(args[0], 1)?]));
    check(x, |b, args| Ok(vec![b.relu(args[0])?, b.relu6(args[0])?]));
}

#[test]
fn norms() {
    check(&[&[2, 3, 5], &[5], &[5]], |b, args| Ok(vec![b.layer_norm(args[0], args[1], args[2], 1e-3)?]));
    check(&[&[3, 5], &[1], &[5]], |b, args| Ok(vec![b.layer_norm(args[0], args[1], args[2], 1e-3)?]));
    check(&[&[2, 3, 5], &[5]], |b, args| Ok(vec![b.rms_norm(args[0], args[1], 1e-3)?]));
}

#[test]
fn batch_norm() {
    let types: &[&[u64]] = &[&[4, 3, 2, 5], &[3], &[3]];
    let all = |b: &mut Builder, args: &[ValueId]| b.batch_norm_training(args[0], args[1], args[2], 1e-3);
    check(types, |b, args| Ok(all(b, args)?.to_vec()));
    check(types, |b, args| Ok(vec![all(b, args)?[0]]));
    check(types, |b, args| Ok(vec![all(b, args)?[2]]));
    check(&[&[4, 3], &[3], &[3]], |b, args| Ok(vec![all(b, args)?[0]]));
}

/// The rules hold for composites of a module that was read, too, and only for true ones.
#[test]
fn recognised_in_text() {
    let check = |change: &dyn Fn(String) -> String, expect: &str| {
        let mut b = Builder::new();
        b.begin("main");
        let x = b.param("x", TensorType::new(DType::F32, [3u64, 5]));
        let scale = b.param("", TensorType::new(DType::F32, [5u64]));
        let y = b.layer_norm(x, scale, scale, 1e-3).unwrap();
        b.end(&[y]);
        let text = change(print(&b.finish()));
        let (mut b, params, results) = Builder::reopen(&parse(&text, "t").unwrap()).unwrap();
        let gradients = b.gradients(&[(results[0], params[0])], &params).unwrap();
        b.end(&gradients.into_iter().flatten().collect::<Vec<_>>());
        let text = print(&b.finish());
        assert!(text.contains(expect), "{text}");
    };
    check(&|text| text, "func @layer_norm.grad(%0: f32[3,5], %1: f32[5], %2: f32[3,5])");
    let other = |text: String| text.replace("= sqrt ", "= exp ");
    check(&other, "func @layer_norm.grad(%0: f32[3,5], %1: f32[5], %2: f32[5], %3: f32[3,5])");
}
