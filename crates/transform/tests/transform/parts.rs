//! Accumulation, clipping and loss scaling.

use crate::common::*;
use pando_base::{DType, Tensor};
use pando_transform::loss_scaling::{self, Automatic};
use pando_transform::{Accumulation, GradientReduction, MeanStrategy, clip};

/// The gradient for the update, from gradients of losses that `loss_factor` has multiplied.
fn accumulated(accumulation: &Accumulation, gradients: &[f64]) -> f64 {
    let mut accumulator = Tensor::zeros(accumulation.dtype, [1]);
    for (index, gradient) in gradients.iter().enumerate() {
        let gradient = f32s(&[1], &[gradient * accumulation.loss_factor()]);
        let inputs = [accumulator, gradient, Tensor::scalar(DType::F32, index as f64)];
        let add = |b: &mut pando_graph::Builder, params: &[pando_graph::ValueId]| {
            Ok(vec![accumulation.add(b, params[0], params[1], params[2])?])
        };
        accumulator = results_of(&inputs, add).remove(0);
        assert_eq!(accumulator.dtype(), accumulation.dtype);
    }
    let total = results_of(&[accumulator], |b, params| Ok(vec![accumulation.total(b, params[0])?]));
    total[0].get_f64(0)
}

#[test]
fn every_strategy_gives_the_same_mean() {
    let gradients = [1.0, -2.0, 4.0, 8.0, 0.5, 3.0];
    let base = Accumulation { micro_batches: 3, replicas: 2, ..Accumulation::default() };
    assert_eq!(base.count(), 6);
    let sum = Accumulation { reduction: GradientReduction::Sum, ..base };
    assert_eq!(accumulated(&sum, &gradients), 14.5);
    for strategy in [MeanStrategy::Running, MeanStrategy::Post, MeanStrategy::PostAndLoss] {
        let mean = Accumulation { reduction: GradientReduction::Mean(strategy), ..base };
        let found = accumulated(&mean, &gradients);
        assert!((found - 14.5 / 6.0).abs() < 1e-6, "{found} with {strategy:?}");
    }
}

/// A sum of f16 overflows where a running mean does not.
#[test]
fn running_means_stay_in_range() {
    let gradients = [40000.0; 4];
    let with = |strategy| {
        let reduction = GradientReduction::Mean(strategy);
        let base = Accumulation { micro_batches: 4, dtype: DType::F16, ..Accumulation::default() };
        accumulated(&Accumulation { reduction, ..base }, &gradients)
    };
    assert_eq!(with(MeanStrategy::Running), 40000.0);
    assert_eq!(with(MeanStrategy::Post), f64::INFINITY);
}

/// As `torch.nn.utils.clip_grad_norm_`: the norm of [3, 0, 4] and [12] is 13.
#[test]
fn clipping_by_the_common_norm() {
    let clipped = |limit: f64| {
        let inputs = [f32s(&[3], &[3.0, 0.0, 4.0]), f32s(&[1], &[12.0]), Tensor::scalar(DType::F32, limit)];
        results_of(&inputs, |b, params| {
            let (mut gradients, norm) = clip::by_global_norm(b, &params[..2], params[2])?;
            gradients.push(norm);
            Ok(gradients)
        })
    };
    let results = clipped(6.5);
    let factor = 6.5 / (13.0 + 1e-6);
    let expected = [f32s(&[3], &[3.0 * factor, 0.0, 4.0 * factor]), f32s(&[1], &[12.0 * factor])];
    pando_graph::testing::compare(&results[..2], &expected, 1e-6).unwrap();
    assert_eq!(results[2].get_f64(0), 13.0);
    assert_eq!(clipped(f64::INFINITY)[1].get_f64(0), 12.0);
    assert_eq!(clipped(20.0)[0].to_f64(), [3.0, 0.0, 4.0]);
    let none = refused(&[], |b, _| {
        let limit = b.scalar(DType::F32, 1.0);
        clip::by_global_norm(b, &[], limit).map(|(_, norm)| norm)
    });
    assert_eq!(none, "there are no gradients to clip; state which weights are trained");
}

#[test]
fn only_finite_gradients_count() {
    let finite = |values: &[f64]| {
        let inputs = [f32s(&[2], &[1.0, -3.0]), Tensor::from_f64(DType::F16, [values.len() as u64], values)];
        let results = results_of(&inputs, |b, params| Ok(vec![loss_scaling::all_finite(b, params)?]));
        results[0].get_int(0) == 1
    };
    assert!(finite(&[1.0, 65504.0, -0.0]));
    assert!(!finite(&[1.0, f64::INFINITY]));
    assert!(!finite(&[f64::NEG_INFINITY]));
    assert!(!finite(&[0.0, f64::NAN, 1.0]));
}

#[test]
fn the_scale_adapts() {
    let automatic = Automatic { growth_interval: 3, largest: 64.0, ..Automatic::default() };
    let mut state = [Tensor::scalar(DType::F32, 16.0), Tensor::scalar(DType::F32, 0.0)];
    let mut scales = Vec::new();
    for finite in
        [true, true, false, true, true, true, true, true, true, true, true, true, true, true, true, true]
    {
        let inputs =
            [Tensor::scalar(DType::Bool, f64::from(u8::from(finite))), state[0].clone(), state[1].clone()];
        let results = results_of(&inputs, |b, params| {
            let (scale, steps) = automatic.next(b, params[0], params[1], params[2])?;
            Ok(vec![scale, steps])
        });
        state = [results[0].clone(), results[1].clone()];
        scales.push(state[0].get_f64(0));
    }
    let expected = [16., 16., 8., 8., 8., 16., 16., 16., 32., 32., 32., 64., 64., 64., 64., 64.];
    assert_eq!(scales, expected);
}

#[test]
fn scaling_and_back() {
    let inputs = [f32s(&[2], &[1.5, -2.0]), Tensor::scalar(DType::F32, 1024.0)];
    let results = results_of(&inputs, |b, params| {
        let scaled = loss_scaling::scale(b, params[0], params[1])?;
        Ok(vec![scaled, loss_scaling::unscale(b, scaled, params[1])?])
    });
    assert_eq!(results[0].to_f64(), [1536.0, -2048.0]);
    assert_eq!(results[1], inputs[0]);
}
