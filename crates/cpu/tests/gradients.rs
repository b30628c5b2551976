//! Goal: steps of backward passes compute what the evaluator computes, the same bits for any number of threads.
//! Method: for each form, operands that are small whole numbers, so that sums are exact in any order.

mod common;

use common::{options, run};
use pando_base::{DType, ReduceFn, Result, Shape, Tensor};
use pando_cpu::{CompileOptions, Isa, compile};
use pando_graph::testing::compare;
use pando_graph::{Builder, ConstData, Conv, Module, ReduceWindow, TensorType, ValueId, eval};

/// Small whole numbers, drawn by their positions.
fn whole(seed: u64, shape: &[u64]) -> Tensor {
    let count: u64 = shape.iter().product();
    let number = |at: u64| {
        let mixed = (at + 1).wrapping_mul(seed.wrapping_mul(2) | 0x9e37_79b9_7f4a_7c15);
        ((mixed >> 40) % 7) as f64 - 3.0
    };
    Tensor::from_f64(DType::F32, Shape::new(shape), &(0..count).map(number).collect::<Vec<f64>>())
}

fn ty(shape: &[u64]) -> TensorType {
    TensorType::new(DType::F32, shape.iter().copied())
}

/// A function of tensors of these shapes.
fn module(shapes: &[&[u64]], build: impl Fn(&mut Builder, &[ValueId]) -> Result<Vec<ValueId>>) -> Module {
    let mut b = Builder::new();
    b.begin("main");
    let params: Vec<ValueId> = shapes.iter().map(|shape| b.param("", ty(shape))).collect();
    let results = build(&mut b, &params).unwrap();
    b.end(&results);
    b.finish()
}

/// Bit for bit at every level, for one thread and two.
fn check(module: &Module, inputs: &[Tensor], what: &str) {
    let expected = eval(module, module.main().unwrap(), inputs).unwrap();
    for isa in Isa::available() {
        for threads in [1, 2] {
            let actual = run(module, inputs, &options(isa, threads, true));
            compare(&actual, &expected, 0.0).unwrap_or_else(|error| panic!("{what}, {isa:?}: {error}"));
        }
    }
}

fn kinds(module: &Module, inputs: &[Tensor]) -> Vec<&'static str> {
    let model = compile(module, &CompileOptions::default()).unwrap();
    model.profile(inputs).unwrap().1.into_iter().map(|step| step.kind).collect()
}

fn extent(size: u64, step: u64) -> u64 {
    size.saturating_sub(1) * step + size.min(1)
}
/// `[images, inputs, outputs, groups]`, image, kernel, stride, padding, dilation.
type Case = ([u64; 4], [u64; 2], [u64; 2], u64, i64, u64);

const CASES: [Case; 12] = [
    ([2, 16, 32, 1], [5, 7], [1, 1], 1, 0, 1),
    ([2, 20, 24, 1], [6, 5], [3, 3], 1, 1, 1),
    ([1, 16, 48, 1], [9, 9], [3, 3], 2, 1, 1),
    ([3, 32, 16, 1], [8, 8], [1, 1], 2, 0, 1),
    ([2, 3, 40, 1], [12, 11], [7, 7], 2, 3, 1),
    ([2, 16, 16, 1], [9, 8], [3, 2], 1, 2, 2),
    ([2, 32, 64, 2], [6, 6], [3, 3], 1, 1, 1),
    ([2, 24, 24, 24], [7, 7], [3, 3], 1, 1, 1),
    ([2, 40, 40, 40], [8, 9], [5, 5], 2, 2, 1),
    ([1, 8, 8, 2], [6, 6], [3, 3], 1, 1, 1),
    ([2, 16, 8, 1], [20, 20], [3, 3], 1, 0, 1),
    ([1, 17, 33, 1], [40, 3], [2, 2], 3, 1, 1),
];

fn conv_of(
    &([images, inputs, outputs, groups], image, kernel, stride, pad, dilation): &Case,
) -> (Conv, [Vec<u64>; 3]) {
    let conv = Conv {
        strides: vec![stride; 2],
        padding: vec![(pad, pad); 2],
        kernel_dilation: vec![dilation; 2],
        groups,
        ..Conv::plain(2)
    };
    let to = |axis: usize| (image[axis] + 2 * pad as u64 - extent(kernel[axis], dilation)) / stride + 1;
    let x = vec![images, inputs, image[0], image[1]];
    let w = vec![outputs, inputs / groups, kernel[0], kernel[1]];
    (conv, [x, w, vec![images, outputs, to(0), to(1)]])
}

#[test]
fn gradients_of_kernels() {
    for case in &CASES {
        let (conv, [x, w, y]) = conv_of(case);
        let module = module(&[&x, &y], |b, args| {
            Ok(vec![b.conv_grad_kernel(args[0], args[1], &conv, &Shape::new(&w))?])
        });
        let inputs = [whole(1, &x), whole(2, &y)];
        check(&module, &inputs, &format!("{case:?}"));
        let blocks = kinds(&module, &inputs).contains(&"conv kernel gradient");
        assert_eq!(blocks, case.0[3] != 2 || case.0[1] == 32, "{case:?}");
    }
}

#[test]
fn gradients_of_inputs() {
    for case in &CASES {
        let (conv, [x, w, y]) = conv_of(case);
        let module = module(&[&y, &w], |b, args| {
            Ok(vec![b.conv_grad_input(args[0], args[1], &conv, &Shape::new(&x))?])
        });
        let inputs = [whole(1, &y), whole(2, &w)];
        check(&module, &inputs, &format!("{case:?}"));
        let phases = kinds(&module, &inputs).contains(&"interleave");
        assert_eq!(phases, case.3 > 1 && case.5 == 1 && case.0[3] == 1 && case.0[1] >= 8, "{case:?}");
    }
}

fn normal(seed: u64, shape: &[u64]) -> Tensor {
    ConstData::Normal { seed, mean: 1.0, std: 2.0 }.materialize(DType::F32, &Shape::new(shape))
}

/// As `check`, within the rounding errors of sums.
fn check_close(module: &Module, inputs: &[Tensor], what: &str) {
    let expected = eval(module, module.main().unwrap(), inputs).unwrap();
    for isa in Isa::available() {
        let actual = run(module, inputs, &options(isa, 1, true));
        // Thousands of numbers that cancel are summed.
        compare(&actual, &expected, 1e-4).unwrap_or_else(|error| panic!("{what}, {isa:?}: {error}"));
        assert_eq!(
            actual,
            run(module, inputs, &options(isa, 2, true)),
            "{what}: the number of threads shows"
        );
    }
}

#[test]
fn batch_norm_of_images() {
    for shape in [[2, 32, 5, 7], [3, 20, 1, 1], [1, 16, 50, 60], [2, 9, 3, 4], [2, 4, 3, 3]] {
        let channels = [shape[1]];
        let module = module(&[&shape, &channels, &channels, &shape], |b, args| {
            let [y, mean, variance] = b.batch_norm_training(args[0], args[1], args[2], 1e-3)?;
            let wrt = [args[0], args[1], args[2]];
            let gradients = b.gradients(&[(y, args[3])], &wrt)?;
            Ok([vec![y, mean, variance], gradients.into_iter().flatten().collect()].concat())
        });
        let inputs = [normal(1, &shape), normal(2, &channels), normal(3, &channels), normal(4, &shape)];
        check_close(&module, &inputs, &format!("{shape:?}"));
        let steps = kinds(&module, &inputs).contains(&"batch norm gradient");
        assert_eq!(steps, shape[1] >= 8, "{shape:?}");
    }
}

#[test]
fn gradients_of_maxima() {
    for (shape, window, stride, pad) in
        [([2, 16, 8, 9], 3, 2, 1), ([1, 20, 6, 6], 2, 2, 0), ([2, 8, 7, 5], 3, 1, 0)]
    {
        let pool = ReduceWindow {
            func: ReduceFn::Max,
            window: vec![1, 1, window, window],
            strides: vec![1, 1, stride, stride],
            padding: vec![(0, 0), (0, 0), (pad, pad), (pad, pad)],
            dilation: vec![1; 4],
        };
        let size = |axis: usize| (shape[axis] + 2 * pad as u64 - window) / stride + 1;
        let module = module(&[&shape, &[shape[0], shape[1], size(2), size(3)]], |b, args| {
            Ok(vec![b.reduce_window_grad(args[0], args[1], &pool)?])
        });
        // Small whole numbers: many windows have several largest elements.
        let inputs = [whole(1, &shape), whole(2, &[shape[0], shape[1], size(2), size(3)])];
        check(&module, &inputs, &format!("{shape:?}"));
        assert!(kinds(&module, &inputs).contains(&"pool gradient"), "{shape:?}");
    }
}

/// The kernels over blocks read f32; narrower images go another way, with sums in f32 all the same.
#[test]
fn gradients_of_kernels_of_halves() {
    let (conv, [x, w, y]) = conv_of(&([4, 1, 32, 1], [8, 8], [3, 3], 1, 1, 1));
    let mut b = Builder::new();
    b.begin("main");
    let half = |shape: &[u64]| TensorType::new(DType::F16, shape.iter().copied());
    let params = [b.param("x", half(&x)), b.param("gradient", half(&y))];
    let conv = Conv { dtype: Some(DType::F32), ..conv };
    let result = b.conv_grad_kernel(params[0], params[1], &conv, &Shape::new(&w)).unwrap();
    b.end(&[result]);
    let inputs = [whole(1, &x), whole(2, &y)].map(|tensor| tensor.rounded_to(DType::F16));
    check(&b.finish(), &inputs, "halves");
}
