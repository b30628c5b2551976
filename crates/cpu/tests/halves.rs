//! Goal: models of 16-bit floats run as fast as those of f32 and no less exactly than their type says; what is seen of the
//! type stays. Method: a block of each kind of network in f16 and bf16, its kinds of steps beside those of the same block in
//! f32 and its results beside the evaluator's on f32; single operations whose meaning is the type.

mod common;

use common::{options, run};
use pando_base::{DType, Tensor};
use pando_cpu::{Isa, compile};
use pando_graph::{Module, eval, parse};

/// Convolutions and a residual; products with stored and transposed weights and an activation.
const BLOCKS: [&str; 2] = [
    "
const @k: T[32,32,3,3] = normal(seed=1, mean=0, std=0.05)
const @d: T[32,1,3,3] = normal(seed=2, mean=0, std=0.2)
func @main(%x: T[1,32,14,14]) -> T[1,32,14,14] {
  %k = constant @k : T[32,32,3,3]
  %d = constant @d : T[32,1,3,3]
  %y = conv %x, %k padding=[1:1,1:1] : T[1,32,14,14]
  %z = conv %y, %d padding=[1:1,1:1] groups=32 : T[1,32,14,14]
  %r = add %x, %z : T[1,32,14,14]
  return %r
}",
    "
const @w: T[64,96] = normal(seed=1, mean=0, std=0.1)
const @v: T[64,96] = normal(seed=2, mean=0, std=0.1)
func @main(%x: T[48,64]) -> T[48,64] {
  %w = constant @w : T[64,96]
  %y = dot %x, %w contract=[1:0] : T[48,96]
  %t = tanh %y : T[48,96]
  %v = constant @v : T[64,96]
  %u = transpose %v perm=[1,0] : T[96,64]
  %z = dot %t, %u contract=[1:0] : T[48,64]
  %r = add %z, %x : T[48,64]
  return %r
}",
];

fn module(text: &str, dtype: &str) -> Module {
    parse(&text.replace("T[", &format!("{dtype}[")), "test").unwrap()
}

fn input(module: &Module, dtype: DType) -> Tensor {
    let shape = module.funcs[module.main().unwrap()].param_types()[0].shape().unwrap();
    let elements: Vec<f64> =
        (0..shape.num_elements()).map(|i| (i * 37 % 101) as f64 / 64.0 - 0.78125).collect();
    Tensor::from_f64(dtype, shape, &elements)
}

#[test]
fn blocks_of_halves_take_the_steps_of_f32() {
    for text in BLOCKS {
        let full = module(text, "f32");
        let exact = eval(&full, full.main().unwrap(), &[input(&full, DType::F32)]).unwrap()[0].to_f64();
        let largest = exact.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
        // Half the distance of neighbours, for the inputs, weights and results each.
        for (dtype, name, unit) in [(DType::F16, "f16", 2f64.powi(-11)), (DType::BF16, "bf16", 2f64.powi(-8))]
        {
            let half = module(text, name);
            for isa in Isa::available() {
                let model = compile(&half, &options(isa, 1, true)).unwrap();
                let (results, times) = model.profile(&[input(&half, dtype)]).unwrap();
                assert_eq!(results[0].dtype(), dtype);
                let worst =
                    results[0].to_f64().iter().zip(&exact).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
                assert!(worst < 4.0 * unit * largest, "{name} {isa:?}: {worst} of {largest}");
                let kinds = |times: &[pando_cpu::StepTime]| -> Vec<&str> {
                    let kinds = times.iter().map(|time| time.kind);
                    kinds
                        .filter(|kind| ["conv", "depthwise", "winograd", "conv 1x1", "gemm"].contains(kind))
                        .collect()
                };
                let wide = compile(&full, &options(isa, 1, true)).unwrap();
                let (_, expected) = wide.profile(&[input(&full, DType::F32)]).unwrap();
                assert!(!kinds(&expected).is_empty());
                assert_eq!(kinds(&times), kinds(&expected), "{name} {isa:?}");
            }
        }
    }
}

/// 1 + 2^-11 lies between two neighbours in f16, 65520 rounds to infinity; bits are those of the type.
#[test]
fn what_is_seen_of_the_type_stays() {
    let text = "
func @main(%x: f32[3], %n: f16[1], %d: f16[1]) -> f32[3], u16[3], f16[3], i32[1] {
  %h = convert %x : f16[3]
  %y = convert %h : f32[3]
  %b = bitcast %h : u16[3]
  %s = add %n, %d : f16[1]
  %i = convert %s : i32[1]
  return %y, %b, %h, %i
}";
    let module = parse(text, "test").unwrap();
    let x = Tensor::from_f64(DType::F32, [3], &[1.0 + 2f64.powi(-11) - 2f64.powi(-20), 65520.0, -2.5]);
    // 2047 + 0.6 is 2048 in f16, and 2047 as an integer if it is not rounded before.
    let [n, d] = [2047.0, 0.6].map(|number| Tensor::from_f64(DType::F16, [1], &[number]));
    let inputs = [x, n, d];
    for isa in Isa::available() {
        let results = run(&module, &inputs, &options(isa, 1, true));
        assert_eq!(results[3].to_f64(), [2048.0]);
        assert_eq!(results[0].to_f64(), [1.0, f64::INFINITY, -2.5]);
        assert_eq!(results[1].to_f64(), [0x3C00 as f64, 0x7C00 as f64, 0xC100 as f64]);
        assert_eq!(results[2].to_f64(), results[0].to_f64());
    }
}
