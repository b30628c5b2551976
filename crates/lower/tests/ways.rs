//! Goal: operators that can be split in several ways are split in the way that suits their sizes, and every
//! way gives the right values. Method: functions whose sizes call for one way; the printed plan must say so,
//! and the values computed tile by tile must be the evaluator's.

mod common;

use pando_base::{DType, Tensor};
use pando_graph::testing::compare;
use pando_lower::{Options, compile, print_plan};

/// Compiles a function, looks for `way` in its plan (in a line of its own), and compares values.
fn check(text: &str, tiles: u32, way: &str) {
    let module = pando_graph::parse(text, "test").unwrap_or_else(|error| panic!("{error}"));
    let machine = common::spreading_machine(tiles);
    let options = Options { min_tile_bytes: 1, ..Options::default() };
    let compiled = compile(&module, &machine, &options).unwrap_or_else(|error| panic!("{error}"));
    let plan = print_plan(&compiled.module, &compiled.plan);
    assert!(plan.lines().any(|line| line.contains(way)), "no '{way}' in\n{plan}");
    common::assert_sound(&compiled, text);
    let main = module.main().expect("there is a main");
    let args: Vec<Tensor> = module.funcs[main]
        .param_types()
        .iter()
        .enumerate()
        .map(|(index, ty)| values(index as u64, ty.dtype, ty.shape().expect("known")))
        .collect();
    let expected = pando_graph::eval(&module, main, &args).expect("valid programs evaluate");
    let actual = common::simulate(&compiled, &args).unwrap_or_else(|error| panic!("{error}\n{plan}"));
    compare(&actual, &expected, 1e-5).unwrap_or_else(|error| panic!("{error}\n{plan}"));
    common::assert_expansion_agrees(&compiled, &machine, &args, &actual, text);
}

/// Small numbers, many of them equal.
fn values(seed: u64, dtype: DType, shape: pando_base::Shape) -> Tensor {
    let count = shape.num_elements();
    let values: Vec<f64> =
        (0..count).map(|i| (pando_base::random::bits(seed, i) % 64) as f64 / 2.0 - 8.0).collect();
    Tensor::from_f64(dtype, shape, &values)
}

#[test]
fn pooling_follows_its_operand() {
    // Rows of the field stay where they are; only the overlap of two rows moves.
    let text = "func @main(%x: f32[16,64]) -> f32[16,64] {
  %y = exp %x : f32[16,64]
  %z = reduce_window %y func=max window=[3,1] strides=[1,1] padding=[1:1,0:0] dilation=[1,1] : f32[16,64]
  return %z
}";
    check(text, 8, "%z = reduce_window");
}

#[test]
fn scans_stay_on_lines_or_are_split() {
    let lines = "func @main(%x: f32[64,20]) -> f32[64,20] {
  %y = scan %x func=sum axis=1 exclusive=false reverse=false : f32[64,20]
  return %y
}";
    check(lines, 16, "%y = scan : f32[64,20]  on 0 16*1 [a0:64, 0..20]");
    for (exclusive, reverse) in [(false, false), (true, true)] {
        let line = format!(
            "func @main(%x: f32[2000]) -> f32[2000] {{
  %y = scan %x func=sum axis=0 exclusive={exclusive} reverse={reverse} : f32[2000]
  return %y
}}"
        );
        check(&line, 16, "%y = scan : f32[2000]  on 0 16*1 [a0:2000/2]");
    }
}

#[test]
fn scatters_split_updates_or_rows() {
    let histogram = "func @main(%d: f32[8], %i: i32[4000], %u: f32[4000]) -> f32[8] {
  %y = scatter %d, %i, %u axis=0 combine=sum : f32[8]
  return %y
}";
    check(histogram, 16, "split updates=16 rows=1 width=1");
    let table = "func @main(%d: f32[400,8], %i: i32[5], %u: f32[5,8]) -> f32[400,8] {
  %y = scatter %d, %i, %u axis=0 : f32[400,8]
  return %y
}";
    check(table, 16, "split updates=1 rows=");
}

#[test]
fn sorts_merge_blocks_of_long_lines() {
    let keys = "func @main(%x: f32[3000]) -> f32[3000] {
  %y = sort %x axis=0 descending=false stable=false : f32[3000]
  return %y
}";
    check(keys, 16, "split line=16");
    let pairs =
        "func @main(%x: i32[500,3], %p: f32[500,3], %q: u8[500,3]) -> i32[500,3], f32[500,3], u8[500,3] {
  %y, %a, %b = sort %x, %p, %q axis=0 descending=true stable=true : i32[500,3], f32[500,3], u8[500,3]
  return %y, %a, %b
}";
    check(pairs, 27, "split line=8");
    let rows = "func @main(%x: f16[32,40]) -> f16[32,40] {
  %y = sort %x axis=1 descending=false stable=true : f16[32,40]
  return %y
}";
    check(rows, 16, "split line=1");
}
