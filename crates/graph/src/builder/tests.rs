//! What the builder rewrites, and what it must not.

use super::*;
use crate::eval::eval;
use crate::text::print;
use crate::types::Dim;
use crate::validate::validate;
use pando_base::ReduceFn;

fn f32s(dims: &[u64]) -> TensorType {
    TensorType::new(DType::F32, dims.iter().copied())
}

/// Builds a function of one parameter `%x` and checks the lines of its body.
fn check(ty: TensorType, build: impl FnOnce(&mut Builder, ValueId) -> Result<ValueId>, expect: &[&str]) {
    let mut b = Builder::new();
    b.begin("main");
    let x = b.param("x", ty);
    let y = build(&mut b, x).unwrap();
    b.end(&[y]);
    let module = b.finish();
    validate(&module).unwrap();
    let text = print(&module);
    let body = text.lines().filter_map(|line| line.strip_prefix("  "));
    assert_eq!(body.collect::<Vec<_>>(), expect, "{text}");
}

#[test]
fn equal_ops_are_shared() {
    check(
        f32s(&[2]),
        |b, x| {
            let (y, z) = (b.exp(x)?, b.exp(x)?);
            b.add(y, z)
        },
        &["%1 = exp %x : f32[2]", "%2 = add %1, %1 : f32[2]", "return %2"],
    );
}

#[test]
fn constants_are_folded() {
    let build = |b: &mut Builder, x| {
        let half = b.scalar(DType::F32, 0.5);
        let two = b.scalar(DType::F32, 2.0);
        let one = b.mul(half, two)?;
        let ones = b.broadcast(one, b.ty(x).dims.clone(), &[])?;
        b.mul(x, ones)
    };
    check(f32s(&[2]), build, &["return %x"]);
    check(TensorType::new(DType::F32, [Dim::named("N")]), build, &["return %x"]);
}

#[test]
fn identities_vanish() {
    let twice = |b: &mut Builder, x| {
        let y = b.transpose(x, &[1, 0])?;
        let y = b.transpose(y, &[1, 0])?;
        let y = b.neg(y)?;
        let y = b.neg(y)?;
        let y = b.reshape(y, [6u64])?;
        let y = b.reshape(y, [2u64, 3])?;
        b.convert(y, DType::F32)
    };
    check(f32s(&[2, 3]), twice, &["return %x"]);
}

/// x + 0 is not x for x = -0; x · 0 is not 0 for NaN.
#[test]
fn inexact_identities_stay() {
    let plus = |zero| move |b: &mut Builder, x| b.binary_scalar(pando_base::BinaryFn::Add, x, zero);
    check(f32s(&[]), plus(-0.0), &["return %x"]);
    let stays = ["%1 = constant @c0 : f32[]", "%2 = add %x, %1 : f32[]", "return %2"];
    check(f32s(&[]), plus(0.0), &stays);
    check(TensorType::scalar(DType::I32), plus(0.0), &["return %x"]);
}

#[test]
fn composites_are_built_once_per_type() {
    let mut b = Builder::new();
    b.begin("main");
    let x = b.param("x", TensorType::new(DType::F32, [Dim::named("N"), Dim::Known(4)]));
    let y = b.softmax(x, 1).unwrap();
    let y = b.softmax(y, 1).unwrap();
    let y = b.gelu(y).unwrap();
    b.end(&[y]);
    let module = b.finish();
    validate(&module).unwrap();
    let names: Vec<&str> = module.funcs.values().map(|func| func.name.as_str()).collect();
    assert_eq!(names, ["softmax", "gelu", "main"]);
    assert_eq!(module.funcs.values().next().unwrap().composite.as_deref(), Some("softmax"));
}

/// Values of the composites, against the formulas.
#[test]
fn composites_compute_their_formulas() {
    let x = [-1.0, 0.5, 2.0];
    let check = |build: &dyn Fn(&mut Builder, ValueId) -> Result<ValueId>, expect: &dyn Fn(f64) -> f64| {
        let mut b = Builder::new();
        b.begin("main");
        let param = b.param("x", f32s(&[3]));
        let y = build(&mut b, param).unwrap();
        let main = b.end(&[y]);
        let result = eval(&b.finish(), main, &[Tensor::from_f64(DType::F32, [3], &x)]).unwrap();
        for (actual, x) in result[0].to_f64().into_iter().zip(x) {
            assert!((actual - expect(x)).abs() < 1e-6, "{actual} instead of {}", expect(x));
        }
    };
    let sum: f64 = x.iter().map(|x| x.exp()).sum();
    let mean = x.iter().sum::<f64>() / 3.0;
    let variance = x.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / 3.0;
    let mean_square = x.iter().map(|x| x * x).sum::<f64>() / 3.0;
    check(&|b, x| b.relu(x), &|x| x.max(0.0));
    check(&|b, x| b.relu6(x), &|x| x.clamp(0.0, 6.0));
    check(&|b, x| b.sigmoid(x), &|x| 1.0 / (1.0 + (-x).exp()));
    check(&|b, x| b.silu(x), &|x| x / (1.0 + (-x).exp()));
    check(&|b, x| b.gelu(x), &|x| x / 2.0 * (1.0 + libm::erf(x / 2f64.sqrt())));
    check(&|b, x| b.gelu_tanh(x), &|x| x / 2.0 * (1.0 + (0.7978845608 * (x + 0.044715 * x.powi(3))).tanh()));
    check(&|b, x| b.softmax(x, 0), &|x| x.exp() / sum);
    check(&|b, x| b.log_softmax(x, 0), &|x| x - sum.ln());
    let ones = |b: &mut Builder| b.splat(&f32s(&[3]), 1.0).unwrap();
    let norm = |b: &mut Builder, x| {
        let scale = ones(b);
        b.layer_norm(x, scale, scale, 1e-5)
    };
    check(&norm, &|x| (x - mean) / (variance + 1e-5).sqrt() + 1.0);
    let rms = |b: &mut Builder, x| {
        let scale = ones(b);
        b.rms_norm(x, scale, 1e-5)
    };
    check(&rms, &|x| x / (mean_square + 1e-5).sqrt());
}

/// A matrix of 2 x 3 blocks of 2 x 2, half of them there, against the dense product; in any buckets.
#[test]
fn sparse_products_are_dense_ones() {
    let places = vec![(0, 2), (1, 0), (1, 1)];
    let pattern = Pattern { rows: 4, columns: 6, block: 2, places };
    let values = Tensor::from_f64(DType::F32, [3, 2, 2], &(1..=12).map(f64::from).collect::<Vec<_>>());
    let x: Vec<f64> = (0..12).map(|i| f64::from(i % 5) - 2.0).collect();
    let mut dense = [0.0; 24];
    for (number, &(row, column)) in pattern.places.iter().enumerate() {
        for (i, j) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            dense[(row as usize * 2 + i) * 6 + column as usize * 2 + j] = (number * 4 + i * 2 + j + 1) as f64;
        }
    }
    let product = |n: usize, m: usize| (0..6).map(|k| x[n * 6 + k] * dense[m * 6 + k]).sum::<f64>();
    let expected: Vec<f64> = (0..8).map(|at| product(at / 4, at % 4)).collect();
    let run = |build: &dyn Fn(&mut Builder, ValueId) -> Result<ValueId>| {
        let mut b = Builder::new();
        b.begin("main");
        let param = b.param("x", f32s(&[2, 6]));
        let y = build(&mut b, param).unwrap();
        let main = b.end(&[y]);
        let module = b.finish();
        assert!(module.funcs.values().any(|func| is_sparse_matmul(&module, func)));
        eval(&module, main, &[Tensor::from_f64(DType::F32, [2, 6], &x)]).unwrap()[0].to_f64()
    };
    let fixed = |b: &mut Builder, x: ValueId| {
        let values = b.constant(values.clone());
        b.sparse_matmul(x, values, &pattern)
    };
    assert_eq!(run(&fixed), expected);
    for (rows, columns) in [(1, 1), (2, 1), (2, 3)] {
        let buckets = pattern.buckets(rows, columns, Some(3)).unwrap();
        let bucketed = |b: &mut Builder, x: ValueId| {
            let args = [buckets.values(&values), buckets.rows.clone(), buckets.columns.clone()];
            let [values, rows, columns] = args.map(|tensor| b.constant(tensor));
            b.sparse_matmul_at(x, values, rows, columns, 4)
        };
        assert_eq!(run(&bucketed), expected);
    }
    let error = pattern.buckets(2, 1, Some(1)).unwrap_err();
    assert!(error.message().contains("needs 2 slots and has 1"), "{error}");
}

/// An LSTM of one unit, two steps: by the formulas.
#[test]
fn an_lstm_computes_its_formulas() {
    let mut b = Builder::new();
    b.begin("main");
    let x = b.param("x", f32s(&[2, 1, 1]));
    let column = |b: &mut Builder, values: &[f64]| b.constant(Tensor::from_f64(DType::F32, [4, 1], values));
    let bias = |b: &mut Builder, values: &[f64]| b.constant(Tensor::from_f64(DType::F32, [4], values));
    let (w_input, w_state) =
        (column(&mut b, &[0.5, -0.25, 1.0, 0.75]), column(&mut b, &[0.125, 0.5, -1.0, 0.25]));
    let (b_input, b_state) = (bias(&mut b, &[0.0, 0.5, 0.25, 0.0]), bias(&mut b, &[0.25, 0.0, 0.0, 0.5]));
    let state = b.splat(&f32s(&[1, 1]), 0.0).unwrap();
    let order = Cell::Lstm.order();
    let layer = Layer { x, w_input, w_state, b_input, b_state, states: vec![state, state], order };
    let (stack, last) = b.recurrent(Cell::Lstm, &layer).unwrap();
    let main = b.end(&[stack, last[0], last[1]]);
    let results = eval(&b.finish(), main, &[Tensor::from_f64(DType::F32, [2, 1, 1], &[1.0, -0.5])]).unwrap();
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let (mut hidden, mut memory, mut states) = (0.0f64, 0.0f64, vec![]);
    for x in [1.0, -0.5] {
        let enter = sigmoid(0.5 * x + 0.125 * hidden + 0.25);
        let forget = sigmoid(-0.25 * x + 0.5 * hidden + 0.5);
        let new = (x - hidden + 0.25f64).tanh();
        let leave = sigmoid(0.75 * x + 0.25 * hidden + 0.5);
        memory = forget * memory + enter * new;
        hidden = leave * memory.tanh();
        states.push(hidden);
    }
    let close = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-6);
    assert!(close(&results[0].to_f64(), &states) && close(&results[1].to_f64(), &[hidden]));
    assert!(close(&results[2].to_f64(), &[memory]));
}

#[test]
fn a_failed_composite_leaves_the_builder_whole() {
    let mut b = Builder::new();
    b.begin("main");
    let x = b.param("x", TensorType::new(DType::I32, [2u64]));
    let error = b.gelu(x).unwrap_err().to_string();
    assert_eq!(error, "erf (C1): does not exist for i32");
    let y = b.reduce(ReduceFn::Sum, x, &[0]).unwrap();
    b.end(&[y]);
    validate(&b.finish()).unwrap();
}

#[test]
fn unneeded_nodes_and_constants_are_dropped() {
    check(f32s(&[2]), |b, x| b.splat_like(x, 3.0).and_then(|y| b.exp(y)).map(|_| x), &["return %x"]);
}
