//! Goal: operators that can be split in several ways are split in the way that suits their sizes, and every
//! way gives the right values. Method: functions whose sizes call for one way; the printed plan must say so,
//! and the values computed tile by tile must be the evaluator's.

mod common;

use pando_base::{BinaryFn, DType, Tensor};
use pando_graph::testing::compare;
use pando_graph::{Builder, Cell, Dot, Layer, Pattern, TensorType};
use pando_lower::{Options, compile, print_plan};
use pando_tile::Step;

/// Compiles a function, looks for `way` in its plan (in a line of its own), and compares values.
fn check(text: &str, tiles: u32, way: &str) -> String {
    check_within(text, tiles, Options::default().available_memory_proportion, way)
}

/// As [`check`], where an operation may take this share of a tile's memory.
fn check_within(text: &str, tiles: u32, available_memory_proportion: f64, way: &str) -> String {
    let module = pando_graph::parse(text, "test").unwrap_or_else(|error| panic!("{error}"));
    let machine = common::spreading_machine(tiles);
    let options = Options { min_tile_bytes: 1, available_memory_proportion, ..Options::default() };
    let compiled = compile(&module, &machine, &options).unwrap_or_else(|error| panic!("{error}"));
    let plan = print_plan(&compiled.module, &compiled.plan);
    assert!(plan.lines().any(|line| line.contains(way)), "no '{way}' in\n{plan}");
    common::assert_sound(&compiled, &machine, text);
    let main = module.main().expect("there is a main");
    let args: Vec<Tensor> = module.funcs[main]
        .param_types()
        .iter()
        .enumerate()
        .map(|(index, ty)| values(index as u64, ty.dtype, ty.shape().expect("known")))
        .collect();
    let expected = pando_graph::eval(&module, main, &args).expect("valid programs evaluate");
    let actual = common::simulate(&compiled, &args).unwrap_or_else(|error| panic!("{error}\n{plan}"));
    let half = expected.iter().any(|tensor| tensor.dtype() == DType::F16);
    let tolerance = if half { 1e-2 } else { 1e-5 };
    compare(&actual, &expected, tolerance).unwrap_or_else(|error| panic!("{error}\n{plan}"));
    common::assert_expansion_agrees(&compiled, &machine, &args, &actual, text);
    plan
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

/// A chain of functions with one user each is one vertex; broadcasts into it are not stored.
#[test]
fn chains_are_one_vertex() {
    let text = "const @one: f16[] = splat(1)

func @main(%x: f16[16,24], %row: f16[24], %column: f16[16]) -> f16[16,24], f16[16,24] {
  %one = constant @one : f16[]
  %ones = broadcast %one axes=[] : f16[16,24]
  %rows = broadcast %row axes=[1] : f16[16,24]
  %columns = broadcast %column axes=[0] : f16[16,24]
  %a = mul %x, %rows : f16[16,24]
  %b = add %a, %columns : f16[16,24]
  %c = add %b, %ones : f16[16,24]
  %d = tanh %c : f16[16,24]
  %e = mul %c, %rows : f16[16,24]
  return %d, %e
}";
    // `c` has two users and stays; `a`, `b` and all broadcasts go.
    for way in ["%a = mul : f16[16,24]", "%b = add : f16[16,24]", "%rows = broadcast", "%ones = broadcast"] {
        let fused = |line: &str| line.contains(way) && line.ends_with("fused");
        let plan = check(text, 8, way);
        assert!(plan.lines().any(fused), "{way} in\n{plan}");
    }
    let module = pando_graph::parse(text, "test").expect("it was parsed above");
    let machine = common::spreading_machine(8);
    let compiled = compile(&module, &machine, &Options::default()).expect("it was compiled above");
    let steps = pando_tile::print(&compiled.emitted.program);
    assert!(steps.contains("binary.mul:f16[0,1]") && steps.contains("fill:f16=1"), "{steps}");
    assert_eq!(compiled.emitted.program.compute_sets.len(), 3, "{steps}");
}

/// What follows a broadcast of few elements is computed on those; what nothing needs is not computed.
/// However they are written: the builder's composites, `x / √2`, `x · (½ · …)`, a cube as a power.
#[test]
fn gelus_are_one_function() {
    let erf = "%g = mul %x, %c : f32[40]\n  %e = erf %g : f32[40]";
    let divided = "%g = div %x, %r : f32[40]\n  %e = erf %g : f32[40]";
    let tanh = "%p = pow %x, %three : f32[40]
  %q = mul %p, %small : f32[40]
  %s = add %x, %q : f32[40]
  %t = mul %s, %k : f32[40]
  %e = tanh %t : f32[40]";
    let halved = "%h = mul %x, %half : f32[40]\n  %y = mul %h, %o : f32[40]";
    let last = "%h = mul %x, %o : f32[40]\n  %y = mul %half, %h : f32[40]";
    let inner = "%h = mul %o, %half : f32[40]\n  %y = mul %x, %h : f32[40]";
    for (smooth, end, name) in [
        (erf, halved, "gelu"),
        (erf, last, "gelu"),
        (divided, inner, "gelu"),
        (tanh, halved, "gelu_tanh"),
        (tanh, last, "gelu_tanh"),
    ] {
        let numbers = [("c", 0.5f64.sqrt()), ("r", 2f64.sqrt()), ("three", 3.0), ("small", 0.044715)];
        let numbers = numbers.into_iter().chain([("k", 0.7978845608028654), ("half", 0.5), ("one", 1.0)]);
        let (consts, uses): (Vec<_>, Vec<_>) = numbers
            .map(|(name, value)| {
                let tensor = format!("const @{name}: f32[40] = splat({value})");
                (tensor, format!("  %{name} = constant @{name} : f32[40]"))
            })
            .unzip();
        let text = format!(
            "{}\n\nfunc @main(%x: f32[40]) -> f32[40] {{\n{}
  {smooth}
  %o = add %e, %one : f32[40]
  {end}
  return %y
}}",
            consts.join("\n"),
            uses.join("\n")
        );
        check(&text, 4, "%y = mul");
        let module = pando_graph::parse(&text, "test").expect("it parses");
        let machine = common::spreading_machine(4);
        let compiled = compile(&module, &machine, &Options::default()).expect("it compiles");
        let program = pando_tile::print(&compiled.emitted.program);
        assert!(program.contains(&format!("map{{[0] {name}:f32[0]}}")), "{program}");
    }
}

/// A softmax's division is one of inverses; what looks like one but is over other axes stays a division, since its sums
/// may be small.
#[test]
fn softmax_has_inverses_over_its_own_axes_only() {
    for (max, kept, sums, divides) in [(1, 0, 1, false), (0, 1, 1, true), (1, 1, 1, true), (1, 0, 0, true)] {
        let text = format!(
            "func @main(%x: f32[6,6]) -> f32[6,6] {{
  %max = reduce %x func=max axes=[{max}] : f32[6]
  %maxes = broadcast %max axes=[{kept}] : f32[6,6]
  %far = sub %x, %maxes : f32[6,6]
  %powers = exp %far : f32[6,6]
  %sum = reduce %powers func=sum axes=[{sums}] : f32[6]
  %all = broadcast %sum axes=[{}] : f32[6,6]
  %y = div %powers, %all : f32[6,6]
  return %y
}}",
            1 - sums
        );
        let plan = check(&text, 4, "%y = ");
        assert_eq!(plan.contains("%y = div"), divides, "{plan}");
    }
}

#[test]
fn functions_run_before_their_operand_is_repeated() {
    let text = "const @eps: f32[] = splat(0.5)

func @main(%x: f32[16,24]) -> f32[16,24] {
  %sum = reduce %x func=sum axes=[1] : f32[16]
  %wide = broadcast %sum axes=[0] : f32[16,24]
  %eps = constant @eps : f32[]
  %epsilons = broadcast %eps axes=[] : f32[16,24]
  %raised = add %wide, %epsilons : f32[16,24]
  %size = abs %raised : f32[16,24]
  %root = sqrt %size : f32[16,24]
  %y = div %x, %root : f32[16,24]
  return %y
}";
    let plan = check(text, 8, "= sqrt : f32[16] ");
    assert!(plan.contains("= add : f32[16] ") && !plan.contains("%wide = "), "{plan}");
}

/// The shift and scale of a batch norm come down to two constants; a large matrix is not computed with.
#[test]
fn what_depends_on_small_constants_is_computed_while_compiling() {
    let text = "
const @scale: f32[64] = uniform(seed=1, low=1, high=2)
const @variance: f32[64] = uniform(seed=2, low=1, high=2)
const @w: f32[300,300] = uniform(seed=3, low=-1, high=1)
func @main(%x: f32[8,64], %y: f32[300,300]) -> f32[8,64], f32[300,300] {
  %scale = constant @scale : f32[64]
  %variance = constant @variance : f32[64]
  %root = sqrt %variance : f32[64]
  %factor = div %scale, %root : f32[64]
  %factors = broadcast %factor axes=[1] : f32[8,64]
  %a = mul %x, %factors : f32[8,64]
  %w = constant @w : f32[300,300]
  %negated = neg %w : f32[300,300]
  %b = add %y, %negated : f32[300,300]
  return %a, %b
}";
    let plan = check(text, 4, "%factor = constant");
    assert!(!plan.contains("%root") && plan.contains("%negated = neg"), "{plan}");
}

/// A step's gates are one vertex, which keeps the memory; nothing moves between tiles but the state and partial sums.
#[test]
fn lstms_stay_where_they_are() {
    let text = recurrent(Cell::Lstm);
    let plan = check(&text, 16, "fused, kept");
    assert!(plan.contains("  view"), "{plan}");
    let module = pando_graph::parse(&text, "test").unwrap();
    let machine = common::spreading_machine(16);
    let options = Options { min_tile_bytes: 1, ..Options::default() };
    let program = compile(&module, &machine, &options).unwrap().emitted.program;
    let body = program.body.iter().find_map(|step| match step {
        Step::Repeat { body, .. } => Some(body),
        _ => None,
    });
    let kernels: Vec<String> = body
        .unwrap()
        .iter()
        .filter_map(|step| match step {
            Step::Compute(id) => Some(program.compute_sets[*id].groups[0].kernel.name()),
            _ => None,
        })
        .collect();
    let others = ["reduce.sum"];
    let kernels: Vec<&str> =
        kernels.iter().map(String::as_str).filter(|name| !others.contains(name)).collect();
    assert_eq!(kernels, ["matmul", "gather", "map", "update", "count"]);
}

#[test]
fn grus_and_plain_cells_have_the_evaluators_values() {
    for cell in [Cell::Gru, Cell::Tanh, Cell::Relu] {
        check(&recurrent(cell), 16, "  view");
    }
}

/// What finds no room at once is computed in slices, in the dimension that suits the operands' sizes.
#[test]
fn products_without_room_are_loops_over_slices() {
    // 624 KiB a tile; 3.1 KiB for an operation.
    let within = |text: &str, way: &str| check_within(text, 8, 0.005, way);
    let dot = |m: u64, k: u64, n: u64| {
        format!(
            "const @w: f16[{k},{n}] = uniform(seed=3, low=-1, high=1)
func @main(%x: f16[{m},{k}]) -> f16[{m},{n}] {{
  %w = constant @w : f16[{k},{n}]
  %y = dot %x, %w contract=[1:0] : f16[{m},{n}]
  return %y
}}"
        )
    };
    within(&dot(8, 4000, 8), "slices of inner");
    within(&dot(8, 40, 1200), "slices of columns");
    within(&dot(1200, 20, 8), "slices of rows");
    let batch = "func @main(%x: f32[24,30,10], %y: f32[24,10,30]) -> f32[24,30,30] {
  %z = dot %x, %y batch=[0:0] contract=[2:1] : f32[24,30,30]
  return %z
}";
    within(batch, "slices of ");
    let conv = |batch: u64, channels: u64, outputs: u64| {
        format!(
            "func @main(%x: f16[{batch},{channels},9,9], %w: f16[{outputs},{channels},3,3]) -> f16[{batch},{outputs},9,9] {{
  %y = conv %x, %w padding=[1:1,1:1] : f16[{batch},{outputs},9,9]
  return %y
}}"
        )
    };
    within(&conv(1, 480, 4), "slices of input channels");
    within(&conv(1, 4, 480), "slices of output channels");
    within(&conv(48, 4, 2), "slices of batch");
}

/// Three steps of a batch of two with three inputs and eight units.
fn recurrent(cell: Cell) -> String {
    let f32s = |dims: &[u64]| TensorType::new(DType::F32, dims.iter().copied());
    let mut b = Builder::new();
    b.begin("main");
    let rows = cell.gates() * 8;
    let [x, w_input, w_state, b_input, b_state, hidden] =
        [&[3, 2, 3][..], &[rows, 3], &[rows, 8], &[rows], &[rows], &[2, 8]]
            .map(|dims| b.param("", f32s(dims)));
    let mut states = vec![hidden];
    if cell == Cell::Lstm {
        states.push(b.param("", f32s(&[2, 8])));
    }
    let layer = Layer { x, w_input, w_state, b_input, b_state, states, order: cell.order() };
    let (stack, last) = b.recurrent(cell, &layer).unwrap();
    b.end(&[vec![stack], last].concat());
    pando_graph::print(&b.finish())
}

/// Patterns that are known are dealt to buckets; others come in them.
#[test]
fn sparse_products_are_split_into_bands() {
    for side in [1u64, 4] {
        let blocks = 8u64;
        let places: Vec<(u32, u32)> =
            (0..64u32).filter(|at| (at * 7) % 5 < 2).map(|at| (at / 8, at % 8)).collect();
        let pattern = Pattern { rows: blocks * side, columns: blocks * side, block: side, places };
        let count = pattern.places.len() as u64;
        let f32s = |dims: &[u64]| TensorType::new(DType::F32, dims.iter().copied());
        let mut b = Builder::new();
        b.begin("main");
        let x = b.param("x", f32s(&[6, pattern.columns]));
        let weights = values(1, DType::F32, [count, side, side].into());
        let weights = b.constant(weights);
        let y = b.sparse_matmul(x, weights, &pattern).unwrap();
        b.end(&[y]);
        let fixed = pando_graph::print(&b.finish());
        check(&fixed, 16, "call : f32[6,");
        check(&fixed, 1, "split columns=1 batch=1 rows=1");
        let buckets = pattern.buckets(2, 4, None).unwrap();
        let mut b = Builder::new();
        b.begin("main");
        let x = b.param("x", f32s(&[6, pattern.columns]));
        let weights = b.param("w", f32s(&[2, 4, buckets.shape[2], side, side]));
        let [rows, columns] = [&buckets.rows, &buckets.columns].map(|tensor| b.constant(tensor.clone()));
        let y = b.sparse_matmul_at(x, weights, rows, columns, pattern.rows).unwrap();
        b.end(&[y]);
        check(&pando_graph::print(&b.finish()), 16, "split columns=4 batch=2 rows=2");
    }
}

/// Products rounded stochastically: the very values of the composite's body, one vertex a tile.
#[test]
fn stochastic_rounding_is_the_composites() {
    let mut b = Builder::new();
    b.begin("main");
    let x = b.param("x", TensorType::new(DType::F16, [6u64, 8]));
    let w = b.param("w", TensorType::new(DType::F16, [8u64, 40]));
    let dot = Dot { contract: vec![(1, 0)], dtype: Some(DType::F32), ..Dot::default() };
    let product = b.dot(x, w, dot).unwrap();
    let third = b.binary_scalar(BinaryFn::Div, product, 3.0).unwrap();
    let seed = b.constant(Tensor::from_f64(DType::U32, [2], &[7.0, 1.0]));
    let rounded = [DType::F16, DType::BF16].map(|dtype| b.round_stochastically(third, dtype, seed).unwrap());
    let main = b.end(&rounded);
    let module = b.finish();
    let machine = common::spreading_machine(8);
    let options = Options { min_tile_bytes: 1, ..Options::default() };
    let compiled = compile(&module, &machine, &options).unwrap();
    common::assert_sound(&compiled, &machine, "rounding");
    let sets = compiled.emitted.program.compute_sets.values();
    let kernels: Vec<String> = sets.map(|set| set.groups[0].kernel.name()).collect();
    assert_eq!(kernels.iter().filter(|name| *name == "round").count(), 2, "{kernels:?}");
    assert!(kernels.iter().all(|name| !name.starts_with("random")), "{kernels:?}");
    let args = [values(0, DType::F16, [6, 8].into()), values(1, DType::F16, [8, 40].into())];
    let expected = pando_graph::eval(&module, main, &args).unwrap();
    let actual = common::simulate(&compiled, &args).unwrap();
    assert!(actual == expected, "every bit");
}

#[test]
fn kernel_gradients_split_the_field() {
    // Channels are the batch, which is one image; the field is the kernel.
    let text = "func @main(%x: f32[8,1,16,16], %g: f32[4,1,14,14]) -> f32[8,4,3,3] {
  %y = conv %x, %g : f32[8,4,3,3]
  return %y
}";
    let plan = check(text, 23, "unfolded by");
    assert!(!plan.contains("kernel=1 "), "the kernel is not split in\n{plan}");
    let one = "func @main(%x: f32[8,1,14,14], %g: f32[4,1,14,14]) -> f32[8,4,1,1] {
  %y = conv %x, %g : f32[8,4,1,1]
  return %y
}";
    check(one, 23, "product by");
}
