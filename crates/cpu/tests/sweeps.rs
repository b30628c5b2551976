//! Goal: products of all sizes are right, edges of tiles, panels and blocks included. Method: dots and
//! convolutions with sizes around every edge, against loops in f64 over whole numbers and eighths.

mod common;

use common::{options, run};
use pando_base::{DType, Tensor};
use pando_cpu::{CompileOptions, Isa, MatmulPrecision};
use pando_graph::{Builder, ConstData, Conv, Dot, Module, TensorType, eval};

/// Small multiples of 1/8: their products and sums are exact in f32.
fn numbers(seed: u64, sizes: &[u64]) -> Tensor {
    let count: u64 = sizes.iter().product();
    let values: Vec<f64> =
        (0..count).map(|i| (pando_graph::random::bits(seed, i) % 33) as f64 / 8.0 - 2.0).collect();
    Tensor::from_f64(DType::F32, sizes.to_vec(), &values)
}

/// `[batch,m,k] × [batch,k,n]`, either side transposed, the right one a constant or not.
fn check_dot(batch: u64, [m, n, k]: [u64; 3], [left, right]: [bool; 2], constant: bool, isa: Isa) {
    let options = options(isa, 1, true);
    check_dot_with(batch, [m, n, k], [left, right], constant, &options);
}

fn check_dot_with(
    batch: u64,
    [m, n, k]: [u64; 3],
    [left, right]: [bool; 2],
    constant: bool,
    options: &CompileOptions,
) {
    let sizes = |flip: bool, a, b| if flip { [batch, b, a] } else { [batch, a, b] };
    let (a, b) = (numbers(1, &sizes(left, m, k)), numbers(2, &sizes(right, k, n)));
    let mut builder = Builder::new();
    builder.begin("main");
    let x = builder.param("x", TensorType::new(DType::F32, sizes(left, m, k)));
    let y = match constant {
        true => builder.weight("w", DType::F32, b.shape().clone(), ConstData::Dense(b.clone())),
        false => builder.param("y", TensorType::new(DType::F32, sizes(right, k, n))),
    };
    let contract = vec![(if left { 1 } else { 2 }, if right { 2 } else { 1 })];
    let dot = Dot { batch: vec![(0, 0)], contract, dtype: None };
    let result = builder.dot(x, y, dot).unwrap();
    builder.end(&[result]);
    let inputs = if constant { vec![a.clone()] } else { vec![a.clone(), b.clone()] };
    let actual = run(&builder.finish(), &inputs, options).swap_remove(0).to_f64();
    let (a, b) = (a.to_f64(), b.to_f64());
    let at = |values: &[f64], flip: bool, [i, rows, columns]: [u64; 3], row: u64, column: u64| {
        let position = if flip { column * rows + row } else { row * columns + column };
        values[(i * rows * columns + position) as usize]
    };
    for i in 0..batch {
        for row in 0..m {
            for column in 0..n {
                let term = |step| at(&a, left, [i, m, k], row, step) * at(&b, right, [i, k, n], step, column);
                let expected: f64 = (0..k).map(term).sum();
                let found = actual[((i * m + row) * n + column) as usize];
                let what = format!(
                    "{batch}x{m}x{n}x{k} {left} {right} {constant} {options:?} at {i},{row},{column}"
                );
                assert_eq!(found, expected, "{what}");
            }
        }
    }
}

#[test]
fn dots_of_all_sizes() {
    for isa in Isa::available() {
        for m in [0, 1, 3, 7, 14, 15, 29] {
            for n in [0, 1, 8, 15, 31, 33] {
                for k in [0, 1, 2, 17] {
                    let flip = (m + n + k) % 4;
                    check_dot(1, [m, n, k], [flip & 1 == 1, flip & 2 == 2], true, isa);
                    check_dot(2, [m, n, k], [flip & 2 == 2, flip & 1 == 1], false, isa);
                }
            }
        }
        // Beyond the blocks of k, rows and columns.
        check_dot(1, [260, 5, 3], [false, false], true, isa);
        check_dot(1, [3, 700, 5], [false, true], true, isa);
        check_dot(1, [3, 40, 900], [false, false], false, isa);
        check_dot(1, [1, 33, 771], [true, false], true, isa);
    }
}

/// Rows whose distance is a multiple of 4 KiB, and more columns than are read where they lie.
#[test]
fn dots_that_are_copied_first() {
    for isa in Isa::available() {
        check_dot(1, [17, 100, 1024], [false, false], true, isa);
        check_dot(1, [1024, 100, 5], [true, false], true, isa);
        check_dot(1, [60, 100, 1024], [false, true], false, isa);
        check_dot(1, [60, 1024, 70], [false, false], false, isa);
        // Transposed left sides go by several tiles, rows in blocks.
        check_dot(1, [500, 100, 20], [true, false], false, isa);
        check_dot(2, [61, 80, 800], [true, true], false, isa);
    }
}

/// The numbers and their products are exact in bf16 and f32.
#[test]
fn dots_of_medium_precision() {
    for isa in Isa::available() {
        let matmul_precision = MatmulPrecision::Medium;
        let options = CompileOptions { matmul_precision, ..options(isa, 2, true) };
        for [m, n, k] in [[1, 1, 1], [3, 33, 2], [14, 64, 17], [29, 40, 31], [20, 250, 1601], [300, 31, 16]] {
            check_dot_with(1, [m, n, k], [false, m % 2 == 1], true, &options);
        }
        check_dot_with(1, [5, 40, 18], [true, false], true, &options);
    }
}

/// Products of small numbers of 16 bits are exact, weights packed as they are or not; results have 8 bits or more.
#[test]
fn dots_of_16_bits() {
    for dtype in [DType::F16, DType::BF16] {
        for [m, n, k] in [[1, 1, 1], [1, 33, 700], [3, 33, 2], [14, 64, 17], [29, 40, 31], [20, 250, 1602]] {
            // Whole numbers below 3, mostly zeros: sums stay below 256.
            let number = |seed, i| {
                let bits = pando_graph::random::bits(seed, i) % 64;
                if bits < 5 { bits as f64 - 2.0 } else { 0.0 }
            };
            let tensor = |seed, sizes: [u64; 2]| {
                let values: Vec<f64> = (0..sizes[0] * sizes[1]).map(|i| number(seed, i)).collect();
                Tensor::from_f64(dtype, sizes, &values)
            };
            let (a, b) = (tensor(1, [m, k]), tensor(2, [k, n]));
            let mut builder = Builder::new();
            builder.begin("main");
            let x = builder.param("x", TensorType::new(dtype, [m, k]));
            let w = builder.weight("w", dtype, b.shape().clone(), ConstData::Dense(b.clone()));
            let y = builder.dot(x, w, Dot { contract: vec![(1, 0)], ..Dot::default() }).unwrap();
            builder.end(&[y]);
            let module = builder.finish();
            let expected = eval(&module, module.main().unwrap(), std::slice::from_ref(&a)).unwrap();
            for isa in Isa::available() {
                let found = run(&module, std::slice::from_ref(&a), &options(isa, 2, true));
                assert_eq!(found, expected, "{m}x{n}x{k} {dtype} {isa:?}");
            }
        }
    }
}

/// What quantised models do: 8-bit numbers less their zero points, multiplied in i32.
#[test]
fn dots_of_quantised_numbers() {
    let ints = |dtype: DType, seed: u64, sizes: [u64; 2], low: i64| {
        let value = |i| i128::from(low) + i128::from(pando_graph::random::bits(seed, i) % 256);
        let values: Vec<i128> = (0..sizes[0] * sizes[1]).map(value).collect();
        Tensor::from_ints(dtype, sizes.to_vec(), &values)
    };
    for [m, n, k] in [[1, 1, 1], [2, 33, 3], [15, 40, 64], [30, 200, 1555]] {
        let (a, b) = (ints(DType::U8, 1, [m, k], 0), ints(DType::I8, 2, [k, n], -128));
        let mut builder = Builder::new();
        builder.begin("main");
        let x = builder.param("x", TensorType::new(DType::U8, [m, k]));
        let w = builder.weight("w", DType::I8, b.shape().clone(), ConstData::Dense(b.clone()));
        let less = |builder: &mut Builder, value, zero: i64| {
            let wide = builder.convert(value, DType::I32).unwrap();
            let zero = builder.splat_like(wide, zero as f64).unwrap();
            builder.sub(wide, zero).unwrap()
        };
        let (x, w) = (less(&mut builder, x, 131), less(&mut builder, w, -5));
        let dot = Dot { contract: vec![(1, 0)], ..Dot::default() };
        let result = builder.dot(x, w, dot).unwrap();
        builder.end(&[result]);
        let module = builder.finish();
        let expected = eval(&module, module.main().unwrap(), std::slice::from_ref(&a)).unwrap();
        for isa in Isa::available() {
            assert_eq!(
                run(&module, std::slice::from_ref(&a), &options(isa, 2, true)),
                expected,
                "{m}x{n}x{k} {isa:?}"
            );
        }
    }
}

fn conv_module(input: &[u64], kernel: &Tensor, conv: &Conv) -> Module {
    let mut builder = Builder::new();
    builder.begin("main");
    let x = builder.param("x", TensorType::new(DType::F32, input.to_vec()));
    let data = ConstData::Dense(kernel.clone());
    let w = builder.weight("w", DType::F32, kernel.shape().clone(), data);
    let y = builder.conv(x, w, conv.clone()).unwrap();
    builder.end(&[y]);
    builder.finish()
}

/// A two-dimensional convolution against the definition.
fn check_conv(input: [u64; 4], kernel: [u64; 4], conv: &Conv, isa: Isa) {
    let (x, w) = (numbers(3, &input), numbers(4, &kernel));
    let actual = run(&conv_module(&input, &w, conv), std::slice::from_ref(&x), &options(isa, 2, true));
    let shape: Vec<u64> = actual[0].shape().to_vec();
    let (actual, x, w) = (actual[0].to_f64(), x.to_f64(), w.to_f64());
    let per_group = kernel[0] / conv.groups;
    // The input element under a kernel element, if there is one.
    let under = |axis: usize, to: u64, within: u64| -> Option<u64> {
        let at = to as i64 * conv.strides[axis] as i64 + within as i64 * conv.kernel_dilation[axis] as i64;
        let at = u64::try_from(at - conv.padding[axis].0).ok()?;
        let exact = at % conv.input_dilation[axis] == 0;
        exact.then_some(at / conv.input_dilation[axis]).filter(|&at| at < input[axis + 2])
    };
    let mut position = 0;
    for (n, o) in (0..shape[0]).flat_map(|n| (0..shape[1]).map(move |o| (n, o))) {
        for (y, z) in (0..shape[2]).flat_map(|y| (0..shape[3]).map(move |z| (y, z))) {
            let mut sum = 0.0;
            for (c, (ky, kz)) in (0..kernel[1])
                .flat_map(|c| (0..kernel[2]).flat_map(move |y| (0..kernel[3]).map(move |z| (c, (y, z)))))
            {
                let (Some(iy), Some(iz)) = (under(0, y, ky), under(1, z, kz)) else { continue };
                let channel = o / per_group * kernel[1] + c;
                let from = ((n * input[1] + channel) * input[2] + iy) * input[3] + iz;
                let weight = ((o * kernel[1] + c) * kernel[2] + ky) * kernel[3] + kz;
                sum += x[from as usize] * w[weight as usize];
            }
            assert_eq!(actual[position], sum, "{input:?} {kernel:?} {conv:?} {isa:?} at {n},{o},{y},{z}");
            position += 1;
        }
    }
}

#[test]
fn convolutions_of_all_kinds() {
    let plain = Conv::plain(2);
    for isa in Isa::available() {
        let same = Conv { padding: vec![(1, 1); 2], ..plain.clone() };
        let stride = Conv { strides: vec![2, 2], ..same.clone() };
        for conv in [&plain, &same, &stride] {
            check_conv([2, 3, 9, 11], [5, 3, 3, 3], conv, isa);
            check_conv([1, 16, 7, 7], [33, 16, 1, 1], conv, isa);
            check_conv([2, 6, 8, 20], [6, 1, 3, 3], &Conv { groups: 6, ..conv.clone() }, isa);
            check_conv([1, 4, 6, 70], [8, 2, 3, 3], &Conv { groups: 2, ..conv.clone() }, isa);
        }
        let odd = Conv {
            strides: vec![3, 2],
            padding: vec![(2, 1), (-1, 3)],
            input_dilation: vec![2, 3],
            kernel_dilation: vec![2, 1],
            ..plain.clone()
        };
        check_conv([1, 2, 5, 6], [3, 2, 2, 3], &odd, isa);
        check_conv([1, 1, 40, 41], [2, 1, 7, 7], &Conv { padding: vec![(3, 3); 2], ..stride.clone() }, isa);
    }
}
