//! Seeds, dropout and stochastic rounding.

use crate::common::*;
use pando_base::{DType, Tensor};
use pando_graph::TensorType;
use pando_transform::random;
use std::collections::BTreeSet;

#[test]
fn every_use_and_step_has_a_seed_of_its_own() {
    let mut seen = BTreeSet::new();
    for number in [0, 1, u64::MAX] {
        let mut state = random::seed(number);
        assert_eq!(random::number(&state), Some(number));
        for _ in 0..50 {
            let seeds = results_of(&[state], |b, params| {
                let uses = (1..=4).map(|number| random::seed_of_use(b, params[0], number));
                let mut seeds = uses.collect::<pando_base::Result<Vec<_>>>()?;
                seeds.push(random::next_seed(b, params[0])?);
                Ok(seeds)
            });
            seen.extend(seeds.iter().map(|seed| random::number(seed).unwrap()));
            state = seeds[4].clone();
        }
    }
    assert_eq!(seen.len(), 3 * 50 * 5);
    assert_eq!(random::number(&Tensor::scalar(DType::U32, 1.0)), None);
}

#[test]
fn dropout_keeps_the_mean() {
    let ones = f32s(&[20000], &[1.0; 20000]);
    let dropped = |probability: f64| {
        let inputs = [ones.clone(), random::seed(3)];
        let results =
            results_of(&inputs, |b, params| Ok(vec![random::dropout(b, params[0], probability, params[1])?]));
        results[0].to_f64()
    };
    assert!(dropped(0.0).iter().all(|&x| x == 1.0));
    assert!(dropped(1.0).iter().all(|&x| x == 0.0));
    for probability in [0.1, 0.5, 0.9] {
        let values = dropped(probability);
        let kept = DType::F32.round(1.0 / (1.0 - probability));
        assert!(values.iter().all(|&x| x == 0.0 || (x - kept).abs() < 1e-6));
        let mean = values.iter().sum::<f64>() / 20000.0;
        let deviation = (probability / (1.0 - probability) / 20000.0).sqrt();
        assert!((mean - 1.0).abs() < 4.0 * deviation, "{mean} at {probability}");
    }
    for probability in [-0.1, 1.5, f64::NAN] {
        let params = [TensorType::new(DType::F32, [2u64]), random::seed_type()];
        let error = refused(&params, |b, params| random::dropout(b, params[0], probability, params[1]));
        assert_eq!(error, format!("dropout with probability {probability}; a probability is from 0 to 1"));
    }
}

fn rounded(values: &[f64], dtype: DType, seed: u64) -> Vec<f64> {
    let x = f32s(&[values.len() as u64], values);
    let results = results_of(&[x, random::seed(seed)], |b, params| {
        Ok(vec![random::round_stochastically(b, params[0], dtype, params[1])?])
    });
    assert_eq!(results[0].dtype(), dtype);
    results[0].to_f64()
}

/// Steps of the type, small ones of f16 below 2^-14.
#[test]
fn stochastic_rounding_is_to_a_neighbour_and_right_on_average() {
    for (dtype, step, values) in [
        (DType::F16, 2f64.powi(-10), vec![1.0 + 2f64.powi(-12), -1.3, 1.9999]),
        (DType::F16, 2f64.powi(-24), vec![1e-6, -3e-8, 6.0e-5, 1e-9]),
        (DType::BF16, 2f64.powi(-7), vec![1.001, -1.7, 1.99]),
    ] {
        for value in values {
            let value = DType::F32.round(value);
            let many = rounded(&[value; 20000], dtype, 11);
            assert!(many.iter().all(|x| (x - value).abs() < step), "{value} as {dtype}");
            let mean = many.iter().sum::<f64>() / 20000.0;
            // The deviation of one rounding is at most half a step.
            assert!(
                (mean - value).abs() < 4.0 * 0.5 * step / 20000f64.sqrt(),
                "{mean} for {value} as {dtype}"
            );
        }
    }
}

#[test]
fn what_is_exact_stays() {
    let exact = [0.0, -0.0, 1.0, -1.5, 65504.0, 2f64.powi(-14), -(2f64.powi(-24)), 3.0 * 2f64.powi(-24)];
    let special = [f64::INFINITY, f64::NEG_INFINITY];
    for seed in 0..8 {
        assert_eq!(rounded(&exact, DType::F16, seed), exact);
        assert_eq!(rounded(&special, DType::F16, seed), special);
        assert_eq!(rounded(&special, DType::BF16, seed), special);
        assert_eq!(rounded(&[1.0, -1.5, 2f64.powi(100)], DType::BF16, seed), [1.0, -1.5, 2f64.powi(100)]);
        assert!(rounded(&[f64::NAN], DType::F16, seed)[0].is_nan());
    }
    // A NaN all of whose bits are below those of f16.
    let nan = Tensor::from_bytes(DType::F32, [1], &0x7f80_0001u32.to_le_bytes()).unwrap();
    let results = results_of(&[nan, random::seed(1)], |b, params| {
        Ok(vec![random::round_stochastically(b, params[0], DType::F16, params[1])?])
    });
    assert!(results[0].get_f64(0).is_nan());
    let params = [TensorType::new(DType::F32, [2u64]), random::seed_type()];
    let error =
        refused(&params, |b, params| random::round_stochastically(b, params[0], DType::I8, params[1]));
    assert_eq!(error, "stochastic rounding is from f32 to f16 or bf16; i8 is neither");
}
