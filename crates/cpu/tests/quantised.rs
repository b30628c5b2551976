//! Goal: products and convolutions of bytes less their zero points are exact, however they are computed. Method: all
//! types of both sides, constant and given zero points, sizes around every edge, against the graph's evaluator.

mod common;

use common::{options, run};
use pando_base::{DType, Tensor};
use pando_cpu::{CompileOptions, Isa, TileUnit};
use pando_graph::{Builder, ConstData, Conv, Dot, Module, TensorType, ValueId, eval, known_dims, random};

fn bytes(dtype: DType, seed: u64, sizes: &[u64]) -> Tensor {
    let low = if dtype == DType::I8 { -128 } else { 0 };
    let count: u64 = sizes.iter().product();
    let values: Vec<i128> = (0..count).map(|i| low + i128::from(random::bits(seed, i) % 256)).collect();
    Tensor::from_ints(dtype, sizes.to_vec(), &values)
}

/// A value in i32 less a scalar.
fn centred(builder: &mut Builder, value: ValueId, zero: ValueId, sizes: &[u64]) -> ValueId {
    let wide = builder.convert(value, DType::I32).unwrap();
    let zero = builder.convert(zero, DType::I32).unwrap();
    let zero = builder.broadcast(zero, known_dims(sizes), &[]).unwrap();
    builder.sub(wide, zero).unwrap()
}

enum Work {
    Dot,
    Conv(Conv),
}

/// Work on (x - zero of x, given) and (w - zero of w, constant).
fn module(work: &Work, x: &Tensor, w: &Tensor, zero: i128) -> Module {
    let mut builder = Builder::new();
    builder.begin("main");
    let input = builder.param("x", TensorType::new(x.dtype(), x.shape().to_vec()));
    let x_zero = builder.param("zero", TensorType::new(x.dtype(), [0u64; 0]));
    let weight = builder.weight("w", w.dtype(), w.shape().clone(), ConstData::Dense(w.clone()));
    let zero = Tensor::from_ints(w.dtype(), Vec::new(), &[zero]);
    let w_zero = builder.weight("w_zero", w.dtype(), zero.shape().clone(), ConstData::Dense(zero));
    let (x, w) =
        (centred(&mut builder, input, x_zero, x.shape()), centred(&mut builder, weight, w_zero, w.shape()));
    let result = match work {
        Work::Dot => builder.dot(x, w, Dot { contract: vec![(1, 0)], ..Dot::default() }),
        Work::Conv(conv) => builder.conv(x, w, conv.clone()),
    };
    builder.end(&[result.unwrap()]);
    builder.finish()
}

fn check(work: &Work, x_sizes: &[u64], w_sizes: &[u64]) {
    for (x_dtype, x_zero) in [(DType::U8, 131), (DType::U8, 0), (DType::I8, -7), (DType::I8, 127)] {
        for (w_dtype, w_zero) in [(DType::I8, 0), (DType::I8, 3), (DType::U8, 128), (DType::U8, 7)] {
            let (x, w) = (bytes(x_dtype, 1, x_sizes), bytes(w_dtype, 2, w_sizes));
            let module = module(work, &x, &w, w_zero);
            let inputs = [x, Tensor::from_ints(x_dtype, Vec::new(), &[x_zero])];
            let expected = eval(&module, module.main().unwrap(), &inputs).unwrap();
            for isa in Isa::available() {
                for tile_unit in [TileUnit::None, TileUnit::Emulated] {
                    let options = CompileOptions { tile_unit, ..options(isa, 2, true) };
                    let found = run(&module, &inputs, &options);
                    assert_eq!(found, expected, "{x_dtype} {w_dtype} {x_sizes:?} {w_sizes:?} {options:?}");
                }
            }
        }
    }
}

#[test]
fn products() {
    for [m, n, k] in [[1, 1, 1], [1, 40, 129], [2, 33, 3], [15, 32, 64], [33, 70, 1603]] {
        check(&Work::Dot, &[m, k], &[k, n]);
    }
}

#[test]
fn convolutions() {
    let plain = Conv::plain(2);
    let same = Conv { padding: vec![(1, 1); 2], ..plain.clone() };
    check(&Work::Conv(same.clone()), &[1, 3, 9, 8], &[17, 3, 3, 3]);
    check(&Work::Conv(same.clone()), &[1, 70, 5, 5], &[16, 70, 3, 3]);
    check(&Work::Conv(Conv { groups: 16, ..same }), &[2, 16, 6, 6], &[16, 1, 3, 3]);
    check(&Work::Conv(plain), &[1, 600, 3, 3], &[10, 600, 1, 1]);
}
