//! Goal: composites that stay in f32 compute in f32, whatever the model around them is. Method: a normalisation whose squares
//! f16 cannot hold; the types in the printed module, values on tiles against the evaluator's and against the model
//! in f32; a wrong name.

mod common;

use pando_base::{DType, Tensor};
use pando_graph::testing::compare;
use pando_graph::{Builder, Module, TensorType};
use pando_lower::{Options, Precision, compile, with_precision_but};

/// A product and the normalisation of its rows.
fn model() -> Module {
    let mut b = Builder::new();
    b.begin("main");
    let x = b.param("x", TensorType::new(DType::F32, [8u64, 32]));
    let values = |len: usize, scale: f64| -> Vec<f64> {
        (0..len).map(|index| ((index * 37 % 101) as f64 - 50.0) * scale).collect()
    };
    let w = b.constant(Tensor::from_f64(DType::F32, [32, 16], &values(512, 0.25)));
    let scale = b.constant(Tensor::from_f64(DType::F32, [16], &values(16, 0.02)));
    let bias = b.constant(Tensor::from_f64(DType::F32, [16], &values(16, 0.01)));
    let y = b.matmul(x, w).unwrap();
    let normal = b.layer_norm(y, scale, bias, 1e-5).unwrap();
    b.end(&[normal]);
    b.finish()
}

fn inputs(dtype: DType) -> Vec<Tensor> {
    let elements: Vec<f64> = (0..256).map(|index| (index * 29 % 83) as f64 / 4.0 - 10.0).collect();
    vec![Tensor::from_f64(dtype, [8, 32], &elements)]
}

fn evaluated(module: &Module, dtype: DType) -> Vec<Tensor> {
    pando_graph::eval(module, module.main().unwrap(), &inputs(dtype)).unwrap()
}

#[test]
fn normalisations_in_f32_hold_what_f16_does_not() {
    let exact = evaluated(&model(), DType::F32);
    let keep = ["layer_norm".to_string()];
    for precision in [Precision::F16, Precision::F8] {
        let module = with_precision_but(model(), precision, &keep).unwrap();
        pando_graph::validate(&module).unwrap();
        let text = pando_graph::print(&module);
        assert!(text.contains("convert") && text.contains("f32[8,16]"), "{text}");
        let machine = common::spreading_machine(4);
        let options = Options { min_tile_bytes: 1, ..Options::default() };
        let compiled = compile(&module, &machine, &options).unwrap();
        common::assert_sound(&compiled, &machine, "wide");
        let args = inputs(DType::F16);
        let on_tiles = common::simulate(&compiled, &args).unwrap();
        common::assert_expansion_agrees(&compiled, &machine, &args, &on_tiles, "wide");
        assert_eq!(on_tiles[0].dtype(), DType::F16);
        compare(&on_tiles, &evaluated(&module, DType::F16), 1e-2).unwrap();
        // Operands in 8 bits are off by at most a sixteenth each.
        let largest = exact[0].to_f64().into_iter().fold(0.0, |most: f64, x| most.max(x.abs()));
        let tolerance = if precision == Precision::F16 { 1e-2 } else { largest / 8.0 };
        let worst = |a: &Tensor| {
            a.to_f64().iter().zip(exact[0].to_f64()).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
        };
        assert!(worst(&on_tiles[0]) < tolerance, "{precision:?}: {}", worst(&on_tiles[0]));
    }
    let narrow = with_precision_but(model(), Precision::F16, &[]).unwrap();
    let narrow = evaluated(&narrow, DType::F16)[0].to_f64();
    assert!(
        narrow.iter().zip(exact[0].to_f64()).any(|(a, b)| a.is_nan() || (a - b).abs() > 0.1),
        "f16 would do"
    );
}

#[test]
fn half_models_are_widened_inside() {
    let half = with_precision_but(model(), Precision::F16, &[]).unwrap();
    let wide = with_precision_but(half, Precision::Unchanged, &["layer_norm".to_string()]).unwrap();
    pando_graph::validate(&wide).unwrap();
    let worst = evaluated(&wide, DType::F16)[0]
        .to_f64()
        .iter()
        .zip(evaluated(&model(), DType::F32)[0].to_f64())
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f64::max);
    assert!(worst < 1e-2, "{worst}");
}

#[test]
fn unknown_composites_are_named() {
    let error = with_precision_but(model(), Precision::F16, &["softmx".to_string()]).unwrap_err().to_string();
    assert!(error.contains("'softmx'") && error.contains("layer_norm"), "{error}");
}
