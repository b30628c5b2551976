//! Goal: elementwise passes from bytes to bytes give the evaluator's bytes, looked up or not, in one step. Method: a gated
//! activation between codes, all codes of both types, against the evaluator.

use pando_base::{BinaryFn, DType, Tensor, UnaryFn};
use pando_cpu::{CompileOptions, Isa, compile};
use pando_graph::{Builder, Module, TensorType, ValueId, eval, known_dims};

const SIZES: [u64; 2] = [40, 256];

fn spread(b: &mut Builder, number: f64) -> ValueId {
    let scalar = b.scalar(DType::F32, number);
    b.broadcast(scalar, known_dims(&SIZES), &[]).unwrap()
}

fn real(b: &mut Builder, codes: ValueId, zero: f64, scale: f64) -> ValueId {
    let wide = b.convert(codes, DType::F32).unwrap();
    let (zero, scale) = (spread(b, zero), spread(b, scale));
    let less = b.sub(wide, zero).unwrap();
    b.mul(less, scale).unwrap()
}

fn codes(b: &mut Builder, value: ValueId, (zero, scale): (f64, f64), dtype: DType) -> ValueId {
    let (low, high) = if dtype == DType::U8 { (0.0, 255.0) } else { (-128.0, 127.0) };
    let (zero, scale) = (spread(b, zero), spread(b, scale));
    let scaled = b.div(value, scale).unwrap();
    let rounded = b.unary(UnaryFn::Round, scaled).unwrap();
    let moved = b.add(rounded, zero).unwrap();
    let above = b.binary_scalar(BinaryFn::Max, moved, low).unwrap();
    let inside = b.binary_scalar(BinaryFn::Min, above, high).unwrap();
    b.convert(inside, dtype).unwrap()
}

/// `x · sigmoid(x)`, the gate as codes of its own.
fn module(from: DType, to: DType) -> Module {
    let mut b = Builder::new();
    b.begin("main");
    let x = b.param("x", TensorType::new(from, SIZES));
    let x = real(&mut b, x, 3.0, 0.0625);
    let gate = b.sigmoid(x).unwrap();
    let gate = codes(&mut b, gate, (0.0, 1.0 / 128.0), DType::U8);
    let gate = real(&mut b, gate, 0.0, 1.0 / 128.0);
    let product = b.mul(x, gate).unwrap();
    let result = codes(&mut b, product, (5.0, 0.0625), to);
    b.end(&[result]);
    b.finish()
}

#[test]
fn functions_of_bytes_are_tables() {
    for (from, to) in [(DType::U8, DType::U8), (DType::I8, DType::U8), (DType::U8, DType::I8)] {
        let module = module(from, to);
        let low = if from == DType::U8 { 0 } else { -128 };
        let values: Vec<i128> = (0..SIZES[0] * SIZES[1]).map(|at| low + i128::from(at % 256)).collect();
        let inputs = [Tensor::from_ints(from, SIZES, &values)];
        let expected = eval(&module, module.main().unwrap(), &inputs).unwrap();
        for isa in Isa::available() {
            for threads in [1, 2] {
                let model = compile(&module, &CompileOptions { isa, threads, ..Default::default() }).unwrap();
                let (found, steps) = model.profile(&inputs).unwrap();
                assert_eq!(found, expected, "{from} to {to}, {isa:?}");
                let kinds: Vec<&str> = steps.iter().map(|step| step.kind).collect();
                assert_eq!(kinds, ["table"]);
            }
        }
    }
}
