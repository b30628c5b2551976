//! What files under tests/ops cannot say: limits, errors, and speed that is not absurd.

use super::*;
use crate::text::parse;

fn run(text: &str, args: &[Tensor], options: &EvalOptions) -> Result<Vec<Tensor>> {
    let module = parse(text, "t").unwrap();
    eval_with(&module, module.main().unwrap(), args, options)
}

fn check_error(text: &str, args: &[Tensor], options: &EvalOptions, expect: &str) {
    assert_eq!(run(text, args, options).unwrap_err().to_string(), expect);
}

const FOREVER: &str = "
const @yes: bool[] = [true]
func @main(%x: f32[2]) -> f32[2] {
  %y = while %x cond=@always body=@same : f32[2]
  return %y
}
func @always(%x: f32[2]) -> bool[] {
  %yes = constant @yes : bool[]
  return %yes
}
func @same(%x: f32[2]) -> f32[2] {
  return %x
}
";

#[test]
fn steps_are_limited() {
    let x = Tensor::zeros(DType::F32, [2]);
    let options = EvalOptions { max_steps: 100, ..EvalOptions::default() };
    let expect = "func @main, n0 (%y = while): func @always, n0 (%yes = constant): stopped after 100 operations (max_steps)";
    check_error(FOREVER, &[x], &options, expect);
}

#[test]
fn bytes_are_limited() {
    let text = "
const @one: f32[] = [1]
func @main() -> f32[1048576,1048576] {
  %one = constant @one : f32[]
  %y = broadcast %one axes=[] : f32[1048576,1048576]
  return %y
}
";
    let expect = "func @main, n1 (%y = broadcast): needs 17592186044436 bytes in all, more than the limit of \
                  17179869184 (max_bytes)";
    check_error(text, &[], &EvalOptions::default(), expect);
    let text = "
const @big: f32[1048576,1048576] = splat(1)
func @main() -> f32[] {
  %big = constant @big : f32[1048576,1048576]
  %y = reduce %big func=sum axes=[0,1] : f32[]
  return %y
}
";
    let error = run(text, &[], &EvalOptions::default()).unwrap_err().to_string();
    assert!(error.starts_with("func @main, n0 (%big = constant): needs"), "{error}");
}

#[test]
fn arguments_are_checked() {
    let text = "func @main(%x: f32[N], %y: f32[N]) -> f32[N] { return %x }";
    let options = EvalOptions::default();
    let zeros = |size: u64| Tensor::zeros(DType::F32, [size]);
    check_error(text, &[zeros(2)], &options, "func @main: takes 2 argument(s), found 1");
    check_error(text, &[zeros(2), zeros(3)], &options, "func @main: the dimension 'N' would be both 2 and 3");
    let half = Tensor::zeros(DType::F16, [2]);
    check_error(
        text,
        &[zeros(2), half],
        &options,
        "func @main: argument 1 is f16[2], the parameter's type is f32[2]",
    );
}

/// An absurd window over a small operand costs no more than the operand.
#[test]
fn large_windows_are_cheap() {
    let text = "
func @main(%x: f32[3]) -> f32[2] {
  %y = reduce_window %x func=sum window=[4611686018427387904] padding=[4611686018427387902:0] : f32[2]
  return %y
}
";
    let x = Tensor::from_f64(DType::F32, [3], &[1.0, 2.0, 4.0]);
    let results = run(text, &[x], &EvalOptions::default()).unwrap();
    assert_eq!(results[0].to_f64(), [3.0, 7.0]);
}

/// Steps that are never taken may be as large as they like.
#[test]
fn large_steps_are_harmless() {
    let text = "
func @main(%x: f32[3,2]) -> f32[1,2] {
  %y = slice %x begin=[1,0] end=[3,2] step=[18446744073709551615,1] : f32[1,2]
  return %y
}
";
    let x = Tensor::from_f64(DType::F32, [3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    assert_eq!(run(text, &[x], &EvalOptions::default()).unwrap()[0].to_f64(), [3.0, 4.0]);
}

#[test]
fn a_layer_sized_dot_takes_a_moment() {
    let text = "
const @x: f32[256,1024] = normal(seed=1, mean=0, std=1)
const @w: f32[1024,1024] = normal(seed=2, mean=0, std=1)
func @main() -> f32[256,1024] {
  %x = constant @x : f32[256,1024]
  %w = constant @w : f32[1024,1024]
  %y = dot %x, %w contract=[1:0] : f32[256,1024]
  return %y
}
";
    let start = std::time::Instant::now();
    run(text, &[], &EvalOptions::default()).unwrap();
    assert!(start.elapsed().as_secs() < 15, "{:?}", start.elapsed());
}

/// The deepest chain of calls that the validator lets pass fits a test thread's stack.
#[test]
fn deep_calls_fit_the_stack() {
    let call = |i: usize| {
        format!("func @f{i}(%x: f32[]) -> f32[] {{ %y = call @f{} %x : f32[] return %y }}\n", i + 1)
    };
    let last = crate::validate::MAX_CALL_DEPTH - 1;
    let mut text: String = (0..last).map(call).collect();
    text += &format!("func @f{last}(%x: f32[]) -> f32[] {{ %y = neg %x : f32[] return %y }}");
    let module = parse(&text, "t").unwrap();
    let x = Tensor::scalar(DType::F32, 2.0);
    assert_eq!(eval(&module, module.func_named("f0").unwrap(), &[x]).unwrap()[0].to_f64(), [-2.0]);
}
