//! Goal: what stands around products is absorbed by them, whichever way it is written, and gradients of windows are one
//! step. Method: functions compiled for machines of several sizes; the plan has or lacks what it should, checkers accept,
//! and values computed tile by tile are the evaluator's.

mod common;

use pando_base::{DType, ReduceFn, Tensor};
use pando_graph::testing::compare;
use pando_graph::{Builder, Module, ReduceWindow, TensorType};
use pando_lower::{Options, compile, print_plan};

fn parsed(text: &str) -> Module {
    pando_graph::parse(text, "test").unwrap_or_else(|error| panic!("{error}"))
}

/// Compiles for several machines, compares values, and returns the last plan.
fn check(module: &Module, tolerance: f64) -> String {
    let text = pando_graph::print(module);
    let main = module.main().expect("there is a main");
    let types = module.funcs[main].param_types();
    let args: Vec<Tensor> = types
        .iter()
        .enumerate()
        .map(|(index, ty)| values(index as u64, ty.dtype, ty.shape().expect("known")))
        .collect();
    let expected = pando_graph::eval(module, main, &args).expect("valid programs evaluate");
    let mut plan = String::new();
    for (tiles, proportion) in [(1, 0.6), (5, 0.6), (16, 0.0001), (23, 0.6)] {
        let machine = common::spreading_machine(tiles);
        let options =
            Options { min_tile_bytes: 1, available_memory_proportion: proportion, ..Options::default() };
        let compiled = compile(module, &machine, &options).unwrap_or_else(|error| panic!("{error}\n{text}"));
        plan = print_plan(&compiled.module, &compiled.plan);
        common::assert_sound(&compiled, &machine, &plan);
        let actual = common::simulate(&compiled, &args).unwrap_or_else(|error| panic!("{error}\n{plan}"));
        compare(&actual, &expected, tolerance).unwrap_or_else(|error| panic!("{error}\n{plan}"));
        common::assert_expansion_agrees(&compiled, &machine, &args, &actual, &plan);
    }
    plan
}

/// Small numbers, many of them equal.
fn values(seed: u64, dtype: DType, shape: pando_base::Shape) -> Tensor {
    let count = shape.num_elements();
    let values: Vec<f64> =
        (0..count).map(|i| (pando_base::random::bits(seed, i) % 64) as f64 / 16.0 - 2.0).collect();
    Tensor::from_f64(dtype, shape, &values)
}

fn count(plan: &str, op: &str) -> usize {
    plan.lines().filter(|line| line.contains(&format!(" = {op} : ")) && !line.ends_with("view")).count()
}

/// Two items of three heads: split, scaled, multiplied, and joined again. Neither reshapes nor transposes remain, but
/// for the values, whose sum runs over their rows.
#[test]
fn attention_has_no_rearrangement() {
    let text = "
const @wq: f32[12,12] = normal(seed=1, mean=0, std=0.2)
const @wk: f32[12,12] = normal(seed=2, mean=0, std=0.2)
const @wv: f32[12,12] = normal(seed=3, mean=0, std=0.2)
const @wo: f32[10,12] = normal(seed=4, mean=0, std=0.2)
const @bias: f32[12] = normal(seed=5, mean=0, std=0.2)
const @scale: f32[] = splat(0.5)

func @main(%x: f32[2,5,12]) -> f32[2,5,10] {
  %wq = constant @wq : f32[12,12]
  %wk = constant @wk : f32[12,12]
  %wv = constant @wv : f32[12,12]
  %wo = constant @wo : f32[10,12]
  %bias = constant @bias : f32[12]
  %biases = broadcast %bias axes=[2] : f32[2,5,12]
  %q0 = dot %x, %wq contract=[2:1] : f32[2,5,12]
  %k0 = dot %x, %wk contract=[2:1] : f32[2,5,12]
  %v0 = dot %x, %wv contract=[2:1] : f32[2,5,12]
  %q1 = add %q0, %biases : f32[2,5,12]
  %q2 = reshape %q1 : f32[2,5,3,4]
  %k2 = reshape %k0 : f32[2,5,3,4]
  %v2 = reshape %v0 : f32[2,5,3,4]
  %q3 = transpose %q2 perm=[0,2,1,3] : f32[2,3,5,4]
  %k3 = transpose %k2 perm=[0,2,1,3] : f32[2,3,5,4]
  %v3 = transpose %v2 perm=[0,2,1,3] : f32[2,3,5,4]
  %scale = constant @scale : f32[]
  %scales = broadcast %scale axes=[] : f32[2,3,5,4]
  %q = mul %q3, %scales : f32[2,3,5,4]
  %scores = dot %q, %k3 batch=[0:0,1:1] contract=[3:3] : f32[2,3,5,5]
  %attended = dot %scores, %v3 batch=[0:0,1:1] contract=[3:2] : f32[2,3,5,4]
  %moved = transpose %attended perm=[0,2,1,3] : f32[2,5,3,4]
  %joined = reshape %moved : f32[2,5,12]
  %y = dot %joined, %wo contract=[2:1] : f32[2,5,10]
  return %y
}";
    let plan = check(&parsed(text), 1e-4);
    assert_eq!((count(&plan, "reshape"), count(&plan, "transpose")), (0, 1), "{plan}");
}

/// A transposed product is one with its batch in another order, or with exchanged operands.
#[test]
fn transposed_results_are_products() {
    for (perm, dims, left) in
        [("[1,0,2,3]", "2,3,4,5", 0), ("[0,1,3,2]", "3,2,5,4", 0), ("[0,2,1,3]", "3,4,2,5", 1)]
    {
        let text = format!(
            "func @main(%a: f32[3,2,4,6], %b: f32[3,2,5,6]) -> f32[{dims}] {{
  %product = dot %a, %b batch=[0:0,1:1] contract=[3:3] : f32[3,2,4,5]
  %y = transpose %product perm={perm} : f32[{dims}]
  return %y
}}"
        );
        let plan = check(&parsed(&text), 1e-4);
        assert_eq!(count(&plan, "transpose"), left, "{perm}\n{plan}");
    }
}

/// Operands that are computed with another dimension last than the one that is summed over are transposed, those that
/// are stored are not, unless two products want them differently.
/// What is repeated beside a transposed value is transposed itself where its dimensions would change places.
#[test]
fn functions_of_transposed_and_repeated_values() {
    for (of, axes) in [("f32[2,3]", "[0,1]"), ("f32[3]", "[1]"), ("f32[1,3]", "[0,1]"), ("f32[2]", "[0]")] {
        let text = format!(
            "func @main(%a: {of}, %b: f32[3,2]) -> f32[2,3] {{
  %t = transpose %b perm=[1,0] : f32[2,3]
  %c = broadcast %a axes={axes} : f32[2,3]
  %o = sub %c, %t : f32[2,3]
  return %o
}}"
        );
        check(&parsed(&text), 1e-6);
    }
}

/// Numbers of half a word that lie on tiles by rows come to lie in columns: the new rows are not divided within words,
/// which no exchange could move.
#[test]
fn transposes_leave_words_whole() {
    let text = "func @main(%a: f16[23,8]) -> f16[8,23] {
  %e = exp %a : f16[23,8]
  %t = transpose %e perm=[1,0] : f16[8,23]
  return %t
}";
    let plan = check(&parsed(text), 1e-2);
    let layout =
        |name: &str| plan.lines().find(|line| line.contains(name)).expect("it is planned").to_string();
    assert!(layout("exp").contains("a0:23,"), "{plan}");
    assert!(layout("transpose").contains(":23/4]"), "{plan}");
}

#[test]
fn operands_lie_as_the_unit_reads_them() {
    let of = |operand: &str, other: &str| {
        let text = format!(
            "func @main(%a: f32[6,4], %b: f32[6,5], %c: f32[4,7]) -> f32[4,5], f32[6,7] {{
  %e = exp %a : f32[6,4]
  %y = dot {operand}, %b contract=[0:0] : f32[4,5]
  %z = dot {other}, %c contract=[1:0] : f32[6,7]
  return %y, %z
}}"
        );
        count(&check(&parsed(&text), 1e-4), "transpose")
    };
    assert_eq!(of("%a", "%e"), 0);
    assert_eq!(of("%e", "%a"), 1);
    assert_eq!(of("%a", "%a"), 1);
}

/// Few rows of computed operands and many columns: rather the other way round.
#[test]
fn operands_are_exchanged_where_that_is_cheaper() {
    let text = "func @main(%a: f16[64,16,64], %b: f16[64,512,64]) -> f16[64,16,512] {
  %x = exp %a : f16[64,16,64]
  %w = tanh %b : f16[64,512,64]
  %y = dot %x, %w batch=[0:0] contract=[2:2] : f16[64,16,512]
  return %y
}";
    let module = parsed(text);
    let machine = pando_machine::load("mk2").expect("built in");
    let compiled = compile(&module, &machine, &Options::default()).expect("it fits");
    let plan = print_plan(&compiled.module, &compiled.plan);
    assert!(plan.contains("swapped split"), "{plan}");
    let args = [values(0, DType::F16, [64, 16, 64].into()), values(1, DType::F16, [64, 512, 64].into())];
    let args = args.map(|tensor| {
        Tensor::from_f64(
            DType::F16,
            tensor.shape().clone(),
            &tensor.to_f64().iter().map(|x| x / 4.0).collect::<Vec<f64>>(),
        )
    });
    let main = module.main().expect("there is a main");
    let expected = pando_graph::eval(&module, main, &args).expect("valid programs evaluate");
    let actual = common::simulate(&compiled, &args).unwrap_or_else(|error| panic!("{error}\n{plan}"));
    compare(&actual, &expected, 1e-2).unwrap_or_else(|error| panic!("{error}\n{plan}"));
}

/// Overlapping windows, windows apart, padding, dilation, cropped operands.
#[test]
fn gradients_of_windows_are_one_step() {
    type Case = (ReduceFn, [u64; 2], [u64; 2], [(i64, i64); 2], [u64; 2]);
    let cases: [Case; 6] = [
        (ReduceFn::Max, [3, 3], [2, 2], [(1, 1); 2], [1, 1]),
        (ReduceFn::Max, [2, 2], [2, 2], [(0, 0); 2], [1, 1]),
        (ReduceFn::Min, [3, 2], [1, 3], [(0, 2), (1, 0)], [1, 2]),
        (ReduceFn::Max, [1, 4], [3, 1], [(0, 0), (3, 3)], [1, 1]),
        (ReduceFn::Max, [2, 3], [2, 1], [(-1, 0), (-2, -1)], [2, 1]),
        (ReduceFn::Min, [5, 1], [4, 2], [(2, 2), (0, 1)], [1, 1]),
    ];
    for (func, window, strides, padding, dilation) in cases {
        let window = ReduceWindow {
            func,
            window: [&[1, 1], &window[..]].concat(),
            strides: [&[1, 1], &strides[..]].concat(),
            padding: [&[(0, 0); 2], &padding[..]].concat(),
            dilation: [&[1, 1], &dilation[..]].concat(),
        };
        let mut b = Builder::new();
        b.begin("main");
        let x = b.param("x", TensorType::new(DType::F32, [2u64, 3, 9, 11]));
        let pooled = b.reduce_window(x, window.clone()).unwrap();
        let gradient = b.param("g", b.ty(pooled).clone());
        let result = b.reduce_window_grad(x, gradient, &window).unwrap();
        b.end(&[result]);
        let plan = check(&b.finish(), 1e-5);
        assert_eq!(
            (count(&plan, "scatter"), count(&plan, "gather"), count(&plan, "call")),
            (0, 0, 1),
            "{plan}"
        );
    }
}

/// Outputs of a convolution over an input with holes, as the gradient of a strided convolution's input is, are classes of
/// dense convolutions: as many as there are residues, without zeros between the input's elements.
#[test]
fn holes_of_convolutions_are_not_multiplied() {
    // Input, kernel, attributes, result, classes.
    let cases = [
        ("2,8,8,8", "8,8,3,3", "padding=[1:2,1:2] input_dilation=[2,2]", "2,8,16,16", 4),
        ("2,8,8,9", "8,8,3,4", "padding=[1:1,2:3] input_dilation=[2,2]", "2,8,15,19", 4),
        ("2,8,6,40", "8,8,5,3", "padding=[3:2,1:1] input_dilation=[3,1]", "2,8,17,40", 3),
        ("2,8,9,16", "8,4,3,3", "padding=[0:0,-1:0] input_dilation=[2,2] groups=2", "2,8,15,28", 4),
        (
            "2,8,10,10",
            "8,8,3,3",
            "padding=[2:2,2:2] input_dilation=[2,2] kernel_dilation=[3,1]",
            "2,8,17,21",
            4,
        ),
    ];
    for (input, kernel, attributes, result, classes) in cases {
        let text = format!(
            "func @main(%x: f32[{input}], %w: f32[{kernel}]) -> f32[{result}] {{
  %y = conv %x, %w {attributes} : f32[{result}]
  return %y
}}"
        );
        let plan = check(&parsed(&text), 1e-4);
        assert_eq!((count(&plan, "conv"), count(&plan, "pad")), (classes, 0), "{attributes}\n{plan}");
    }
}

/// Forward, backward and the gradient of the weights, which are state: where two of the products leave them is cheaper
/// than where one likes them best.
#[test]
fn weights_lie_as_suits_all_their_products() {
    let text = "func @main(%x: f16[2,1024], %w: f16[1024,1024]) -> f16[1024,1024], f16[2,1024] {
  %y = dot %x, %w contract=[1:1] : f16[2,1024]
  %t = tanh %y : f16[2,1024]
  %dx = dot %t, %w contract=[1:0] : f16[2,1024]
  %dw = dot %t, %x contract=[0:0] : f16[1024,1024]
  %new = sub %w, %dw : f16[1024,1024]
  return %new, %dx
}";
    let module = parsed(text);
    let main = module.main().expect("there is a main");
    let args =
        [values(0, DType::F16, [2, 1024].into()), values(1, DType::F16, [1024, 1024].into())].map(|tensor| {
            Tensor::from_f64(
                DType::F16,
                tensor.shape().clone(),
                &tensor.to_f64().iter().map(|x| x / 64.0).collect::<Vec<f64>>(),
            )
        });
    let expected = pando_graph::eval(&module, main, &args).expect("valid programs evaluate");
    let machine = pando_machine::load("mk2").expect("built in");
    let options = Options { state: vec![(1, 0)], ..Options::default() };
    let compiled = compile(&module, &machine, &options).expect("it fits");
    let plan = print_plan(&compiled.module, &compiled.plan);
    assert_eq!(plan.matches("weights=stay").count(), 2, "{plan}");
    common::assert_sound(&compiled, &machine, &plan);
    let actual = common::simulate(&compiled, &args).unwrap_or_else(|error| panic!("{error}\n{plan}"));
    compare(&actual, &expected, 1e-2).unwrap_or_else(|error| panic!("{error}\n{plan}"));
}

/// A word's embedding: one row of a table of 45 MB, which no tile could hold a column of whole.
#[test]
fn a_single_row_of_a_large_table_fits() {
    let text = "
const @t: f16[30522,768] = normal(seed=1, mean=0, std=0.02)
func @main(%i: i32[1,1]) -> f16[1,1,768] {
  %t = constant @t : f16[30522,768]
  %y = gather %t, %i axis=0 : f16[1,1,768]
  return %y
}";
    let module = pando_graph::parse(text, "test").unwrap();
    let machine = pando_machine::load("mk2").expect("built in");
    let compiled = compile(&module, &machine, &Options::default()).unwrap();
    assert!(compiled.fit.fits, "{:?}", compiled.fit);
    assert!(compiled.fit.used_bytes < 64 << 10, "{:?}", compiled.fit);
}
