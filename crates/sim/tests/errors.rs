//! Goal: what is wrong with a run is said, never a panic and never a wrong number.
//! Method: small programs, each with one fault, and the exact message.

use pando_base::{DType, Tensor};
use pando_sim::{RunOptions, run};
use pando_tile::{Program, VarId, parse};

const HEAD: &str = "program \"p\" tiles=4 replicas=1
var %x: f32[4] input on 0 2*1 [a0:4]
var %t: f32[4] temp on 0 2*1 [a0:4]
var %z: f32[4] output on 0 2*1 [a0:4]
compute @cs0 \"work\" {
  copy on 0 2*1 %x[a0:4], %t[a0:4]
}
exchange @ex0 \"move\" {
  copy %z <- %t
}
";

fn program(main: &str) -> Program {
    parse(&format!("{HEAD}main {{ {main} }}"), "p").unwrap()
}

fn message(program: &Program, options: &RunOptions, input: Option<Tensor>) -> String {
    run(program, |_: VarId| input.clone(), options).unwrap_err().to_string()
}

fn strict() -> RunOptions {
    RunOptions { strict: true, ..RunOptions::default() }
}

fn values() -> Option<Tensor> {
    Some(Tensor::from_f64(DType::F32, [4], &[1.0, 2.0, 3.0, 4.0]))
}

#[test]
fn inputs() {
    let whole = program("host.in %x compute @cs0 exchange @ex0 host.out %z");
    assert_eq!(message(&whole, &strict(), None), "there is no value for %x: give a f32[4]");
    let shape = Some(Tensor::zeros(DType::F32, [5]));
    assert_eq!(message(&whole, &strict(), shape), "%x is f32[4], the value given for it is f32[5]");
    let dtype = Some(Tensor::zeros(DType::F16, [4]));
    assert_eq!(message(&whole, &strict(), dtype), "%x is f32[4], the value given for it is f16[4]");
    let outputs = run(&whole, |_| values(), &strict()).unwrap();
    assert_eq!(outputs.vars.values().next().unwrap().tensor(), values().unwrap());
}

#[test]
fn unwritten_elements() {
    let early = program("compute @cs0 exchange @ex0 host.out %z");
    let expected = "copy in \"work\" reads part of %x on tile 0 that was never written";
    assert_eq!(message(&early, &strict(), values()), expected);
    let no_work = program("host.in %x exchange @ex0 host.out %z");
    let expected = "the exchange \"move\" reads part of %t on tile 0 that was never written";
    assert_eq!(message(&no_work, &strict(), values()), expected);
    let no_move = program("host.in %x compute @cs0 host.out %z");
    let expected = "the host reads part of %z on tile 0 that was never written";
    assert_eq!(message(&no_move, &strict(), values()), expected);
    // Without strictness they are zero.
    let outputs = run(&no_move, |_| values(), &RunOptions::default()).unwrap();
    assert_eq!(outputs.vars.values().next().unwrap().tensor(), Tensor::zeros(DType::F32, [4]));
}

#[test]
fn foreign_elements() {
    let mut program = program("host.in %x compute @cs0 exchange @ex0 host.out %z");
    let group = &mut program.compute_sets.iter_mut().next().unwrap().1.groups[0];
    group.grid.base = 1;
    let expected = "copy in \"work\" touches part of %x that tile 1 does not hold";
    assert_eq!(message(&program, &strict(), values()), expected);
}

#[test]
fn narrow_windows() {
    let text = "program \"p\" tiles=2 replicas=1
var %x: f32[1,1,4] const splat(1) on 0 2*1 [0..1, 0..1, a0:4]
var %w: f32[1,1,3] const splat(1) on 0 2*1 [0..1, 0..1, 0..3]
var %y: f32[1,1,4] temp on 0 2*1 [0..1, 0..1, a0:4]
compute @cs0 \"conv\" {
  conv{strides=[1] padding=[1] dilation=[1] groups=1 partials=f32} on 0 2*1 \
      %x[0..1, 0..1, a0:4], %w[0..1, 0..1, 0..3], %y[0..1, 0..1, a0:4]
}
main { compute @cs0 }";
    let program = parse(text, "p").unwrap();
    let expected = "conv in \"conv\" on tile 0 needs inputs outside of its input operand; widen that operand's region \
                    to the window of its outputs";
    assert_eq!(message(&program, &strict(), None), expected);
}

#[test]
fn too_large() {
    let whole = program("host.in %x compute @cs0 exchange @ex0 host.out %z");
    let options = RunOptions { max_bytes: 1000, ..RunOptions::default() };
    let expected = "computing the values of all tiles takes about 1 MiB, more than the limit of 1 MiB";
    assert!(message(&whole, &options, values()).starts_with(expected));
    let huge = "program \"p\" tiles=16777216 replicas=1
var %x: i64[1099511627776] temp on 0 16777216*1 [0..1099511627776]
main { }";
    let huge = parse(huge, "p").unwrap();
    assert!(
        message(&huge, &RunOptions::default(), None)
            .starts_with("computing the values of all tiles takes about")
    );
}

#[test]
fn invalid_programs_are_refused() {
    let mut program = program("host.in %x compute @cs0 exchange @ex0 host.out %z");
    program.replicas = 0;
    assert!(message(&program, &strict(), values()).contains("(T7)"));
}

/// Without an exchange tiles may have different flags; no tile could know.
#[test]
fn branches_on_different_values() {
    let text = "program \"p\" tiles=2 replicas=1
var %a: bool[1] const splat(1) on 0 [0..1]
var %b: bool[1] const splat(0) on 1 [0..1]
main { if %a, %b { } else { } }";
    let program = parse(text, "p").unwrap();
    let expected =
        "tiles branch on different values of %a; exchange one value to all of them before the branch";
    assert_eq!(message(&program, &strict(), None), expected);
    let one = text.replace("if %a, %b", "if %a");
    let error = parse(&one, "p").unwrap_err().to_string();
    assert!(error.contains("(T7) the flag %a is not on each of 2 tiles once"), "{error}");
}
