//! Goal: gradients of functions of rows, and loops that fill and read stacks, compute what the evaluator computes, the same
//! bits for any number of threads. Method: forms of many sizes, random numbers, with what is fused around them.

mod common;

use common::{options, run};
use pando_base::{BinaryFn, DType, ReduceFn, Result, Shape, Tensor};
use pando_cpu::{Isa, compile};
use pando_graph::testing::compare;
use pando_graph::{Builder, Dot, Module, Op, TensorType, ValueId, eval, random};

fn normal(seed: u64, shape: &[u64]) -> Tensor {
    let count: u64 = shape.iter().product();
    let values: Vec<f64> = (0..count).map(|index| random::normal(seed, index)).collect();
    Tensor::from_f64(DType::F32, Shape::new(shape), &values)
}

fn module(shapes: &[&[u64]], build: impl Fn(&mut Builder, &[ValueId]) -> Result<Vec<ValueId>>) -> Module {
    let mut b = Builder::new();
    b.begin("main");
    let ty = |shape: &[u64]| TensorType::new(DType::F32, shape.iter().copied());
    let params: Vec<ValueId> = shapes.iter().map(|shape| b.param("", ty(shape))).collect();
    let results = build(&mut b, &params).unwrap();
    b.end(&results);
    b.finish()
}

/// Near the evaluator's at every level; the same bits for one thread and three.
fn check(module: &Module, shapes: &[&[u64]], what: &str) {
    let inputs: Vec<Tensor> = (1..).zip(shapes).map(|(seed, shape)| normal(seed, shape)).collect();
    let expected = eval(module, module.main().unwrap(), &inputs).unwrap();
    for isa in Isa::available() {
        let actual = run(module, &inputs, &options(isa, 1, true));
        compare(&actual, &expected, 1e-4).unwrap_or_else(|error| panic!("{what}, {isa:?}: {error}"));
        assert_eq!(run(module, &inputs, &options(isa, 3, true)), actual, "{what}, {isa:?}");
    }
}

fn kinds(module: &Module, shapes: &[&[u64]]) -> Vec<&'static str> {
    let inputs: Vec<Tensor> = (1..).zip(shapes).map(|(seed, shape)| normal(seed, shape)).collect();
    let model = compile(module, &options(Isa::available().last().unwrap(), 2, true)).unwrap();
    model.profile(&inputs).unwrap().1.into_iter().map(|step| step.kind).collect()
}

const SIZES: [[u64; 2]; 7] = [[1, 1], [3, 7], [5, 32], [70, 33], [2, 1000], [130, 768], [3, 100_000]];

#[test]
fn gradients_of_softmax() {
    for size in SIZES {
        let shapes: [&[u64]; 2] = [&size, &size];
        let softmax = module(&shapes, |b, x| {
            let y = b.softmax(x[0], 1)?;
            let gradient = b.binary_scalar(BinaryFn::Mul, x[1], 3.0)?;
            let dx = b.softmax_grad(y, gradient)?;
            Ok(vec![b.binary_scalar(BinaryFn::Mul, dx, 0.5)?])
        });
        check(&softmax, &shapes, "softmax");
        let found = kinds(&softmax, &shapes);
        assert_eq!(
            found,
            ["softmax", "softmax gradient"],
            "what makes and what follows the gradient is fused"
        );
        let log_softmax = module(&shapes, |b, x| {
            let y = b.log_softmax(x[0], 1)?;
            Ok(vec![b.log_softmax_grad(y, x[1])?])
        });
        check(&log_softmax, &shapes, "log_softmax");
    }
}

#[test]
fn gradients_of_norms() {
    for [rows, length] in SIZES {
        let shapes: [&[u64]; 4] = [&[rows, length], &[length], &[rows, length], &[rows, length]];
        let layer_norm = module(&shapes, |b, x| {
            let gradient = b.add(x[2], x[3])?;
            Ok(b.layer_norm_grad(x[0], x[1], gradient, 1e-5)?.to_vec())
        });
        check(&layer_norm, &shapes, "layer_norm");
        let rms_norm = module(&shapes[..3], |b, x| Ok(b.rms_norm_grad(x[0], x[1], x[2], 1e-5)?.to_vec()));
        check(&rms_norm, &shapes[..3], "rms_norm");
    }
}

/// A large result lies where the operand that nobody else needs does.
#[test]
fn rows_overwrite_what_dies() {
    let shapes: [&[u64]; 2] = [&[600, 600], &[600, 600]];
    let module = module(&shapes, |b, x| {
        let product = b.dot(x[0], x[1], Dot { contract: vec![(1, 0)], ..Dot::default() })?;
        let small = b.binary_scalar(BinaryFn::Mul, product, 0.04)?;
        let y = b.log_softmax(small, 1)?;
        let dx = b.log_softmax_grad(y, x[0])?;
        let sum = b.reduce(ReduceFn::Sum, dx, &[0])?;
        Ok(vec![sum])
    });
    check(&module, &shapes, "in place");
    let model = compile(&module, &options(Isa::Portable, 1, true)).unwrap();
    let (arena, _) = model.memory_bytes(&shapes.map(Shape::new)).unwrap();
    assert!(arena < 2 * 600 * 600 * 4, "{arena} bytes for one matrix at a time");
}

/// `tanh(x[t] + h · w)` for all steps, the states in a stack; of its sum of squares the gradients.
fn recurrent(steps: u64, batch: u64, size: u64, backwards: bool) -> (Module, [Vec<u64>; 3]) {
    let shapes = [vec![steps, batch, size], vec![size, size], vec![batch, size]];
    let views: Vec<&[u64]> = shapes.iter().map(Vec::as_slice).collect();
    let module = module(&views, |b, x| {
        let ty = b.ty(x[0]).clone();
        let stack = b.splat(&ty, 0.0)?;
        // Larger weights would make the states chaotic, and any rounding matter.
        let weights = b.binary_scalar(BinaryFn::Mul, x[1], 0.5 / (size as f64).sqrt())?;
        let carried = [x[0], weights, stack, x[2]];
        let types: Vec<TensorType> = carried.iter().map(|&value| b.ty(value).clone()).collect();
        b.begin("step");
        let counter = b.param("", TensorType::scalar(DType::I32));
        let inner: Vec<ValueId> = types.into_iter().map(|ty| b.param("", ty)).collect();
        let place = if backwards {
            let last = b.scalar(DType::I32, (steps - 1) as f64);
            b.sub(last, counter)?
        } else {
            counter
        };
        let row = b.gather(inner[0], place, 0)?;
        let product = b.dot(inner[3], inner[1], Dot { contract: vec![(1, 1)], ..Dot::default() })?;
        let sum = b.add(row, product)?;
        let hidden = b.tanh(sum)?;
        let update = b.reshape(hidden, [1, batch, size])?;
        let place = b.reshape(place, [1u64])?;
        let stack = b.scatter(inner[2], place, update, 0, None)?;
        let body = b.end(&[inner[0], inner[1], stack, hidden]);
        let results = b.insert(Op::Repeat { count: steps, body }, &carried)?;
        let square = b.mul(results[2], results[2])?;
        let loss = b.reduce(ReduceFn::Sum, square, &[0, 1, 2])?;
        let one = b.splat_like(loss, 1.0)?;
        let gradients = b.gradients(&[(loss, one), (results[3], x[2])], x)?;
        Ok(gradients.into_iter().flatten().chain([results[2], results[3]]).collect())
    });
    (module, shapes)
}

#[test]
fn stacks_of_loops() {
    for (steps, batch, size) in [(1, 2, 4), (2, 1, 1), (3, 1, 3), (5, 4, 16), (9, 3, 10), (4, 32, 200)] {
        for backwards in [false, true] {
            let (module, shapes) = recurrent(steps, batch, size, backwards);
            let shapes: Vec<&[u64]> = shapes.iter().map(Vec::as_slice).collect();
            check(&module, &shapes, &format!("{steps} steps, {batch} x {size}, backwards: {backwards}"));
        }
    }
}
