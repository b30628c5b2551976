//! Goal: a model in 8 bits multiplies 8-bit floats and nothing else changes. Method: a product and a convolution with
//! weights far from 1; the types in the printed module, the values on tiles against the evaluator's for the same
//! module, and against the model in f32 within what three bits of mantissa allow.

mod common;

use pando_base::{DType, Tensor};
use pando_graph::testing::compare;
use pando_lower::{Options, Precision, compile, with_precision};

const MODEL: &str = "
const @w: f32[32,16] = uniform(seed=1, low=-0.01, high=0.01)
const @k: f32[4,2,3,3] = uniform(seed=2, low=-500, high=500)
func @main(%x: f32[8,32], %image: f32[1,2,6,6]) -> f32[8,16], f32[1,4,4,4] {
  %w = constant @w : f32[32,16]
  %y = dot %x, %w contract=[1:0] : f32[8,16]
  %k = constant @k : f32[4,2,3,3]
  %z = conv %image, %k : f32[1,4,4,4]
  return %y, %z
}";

fn inputs(dtype: DType) -> Vec<Tensor> {
    let value = |index: usize| ((index * 37 % 101) as f64 - 50.0) / 25.0;
    [vec![8u64, 32], vec![1, 2, 6, 6]]
        .into_iter()
        .map(|shape| {
            let elements: Vec<f64> = (0..shape.iter().product::<u64>() as usize).map(value).collect();
            Tensor::from_f64(dtype, shape, &elements)
        })
        .collect()
}

#[test]
fn products_take_8_bit_operands_scaled_to_their_weights() {
    let wide = pando_graph::parse(MODEL, "test").unwrap();
    let module = with_precision(wide.clone(), Precision::F8);
    let text = pando_graph::print(&module);
    // 0.01 / 240 and 500 / 240 lie above 2^-15 and 2^1.
    for expected in ["f143(-14)[32,16]", "f143(2)[4,2,3,3]", "convert %x", "convert %image", "f16[8,16]"] {
        assert!(text.contains(expected), "no {expected} in\n{text}");
    }
    let machine = common::spreading_machine(4);
    let compiled = compile(&module, &machine, &Options { min_tile_bytes: 1, ..Options::default() }).unwrap();
    common::assert_sound(&compiled, &machine, "f8");
    let args = inputs(DType::F16);
    let main = module.main().unwrap();
    let evaluated = pando_graph::eval(&module, main, &args).unwrap();
    let on_tiles = common::simulate(&compiled, &args).unwrap();
    common::assert_expansion_agrees(&compiled, &machine, &args, &on_tiles, "f8");
    let exact = pando_graph::eval(&wide, wide.main().unwrap(), &inputs(DType::F32)).unwrap();
    compare(&on_tiles, &evaluated, 1e-2).unwrap();
    for (tiles, exact) in on_tiles.iter().zip(&exact) {
        // Each operand is off by at most a sixteenth; sums of many terms of either sign by less.
        let scale = exact.to_f64().into_iter().fold(0.0, |max: f64, x| max.max(x.abs()));
        let worst = tiles.to_f64().iter().zip(exact.to_f64()).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(worst < scale / 16.0 && worst > 0.0, "{worst} of {scale}");
    }
}
