//! Values of every loss, and what it refuses.

use crate::common::*;
use pando_base::{DType, Shape, Tensor};
use pando_graph::{Builder, Dim, TensorType, ValueId, eval};
use pando_transform::loss::{LOSSES, Reduction, named};
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Deserialize)]
struct Case {
    loss: String,
    options: BTreeMap<String, f64>,
    reduction: String,
    operands: Vec<Operand>,
    dims: Vec<u64>,
    values: Vec<Value>,
    /// Of the sum of the values, in the dimensions of the first operand.
    gradient: Option<Vec<Value>>,
}

#[derive(Deserialize)]
struct Operand {
    #[serde(rename = "type")]
    dtype: String,
    dims: Vec<u64>,
    values: Vec<Value>,
}

impl Operand {
    fn tensor(&self) -> Tensor {
        let dtype = DType::from_name(&self.dtype).unwrap();
        let shape = Shape::new(&self.dims);
        match dtype.is_float() {
            true => Tensor::from_f64(dtype, shape, &numbers(&self.values)),
            false => {
                let values: Vec<i128> =
                    self.values.iter().map(|value| value.as_i64().unwrap().into()).collect();
                Tensor::from_ints(dtype, shape, &values)
            }
        }
    }
}

impl Case {
    fn build(&self, b: &mut Builder, operands: &[ValueId]) -> pando_base::Result<ValueId> {
        let options: Vec<(&str, f64)> =
            self.options.iter().map(|(name, &value)| (name.as_str(), value)).collect();
        let mut operands: Vec<Option<ValueId>> = operands.iter().map(|&value| Some(value)).collect();
        if self.loss == "ctc" {
            // As the goldens were made: derivatives of PyTorch's are right behind a softmax only.
            operands[0] = Some(b.log_softmax(operands[0].unwrap(), 2)?);
        }
        named(b, &self.loss, &operands, &options, Reduction::from_name(&self.reduction).unwrap())
    }
}

fn cases() -> Vec<Case> {
    golden(include_str!("../golden/losses.json"))
}

#[test]
fn every_loss_is_that_of_pytorch() {
    let cases = cases();
    let tested: BTreeSet<&str> = cases.iter().map(|case| case.loss.as_str()).collect();
    assert_eq!(tested, LOSSES.iter().copied().collect());
    for case in &cases {
        let operands: Vec<Tensor> = case.operands.iter().map(Operand::tensor).collect();
        let results = results_of(&operands, |b, params| Ok(vec![case.build(b, params)?]));
        let expected = Tensor::from_f64(DType::F32, Shape::new(&case.dims), &numbers(&case.values));
        pando_graph::testing::compare(&results, &[expected], 3e-6)
            .map_err(|error| error.context(format!("{} {:?} {}", case.loss, case.options, case.reduction)))
            .unwrap();
    }
}

#[test]
fn gradients_are_those_of_pytorch() {
    let cases = cases();
    let with_gradient = cases.iter().filter_map(|case| Some((case, case.gradient.as_ref()?)));
    for (case, gradient) in with_gradient {
        let operands: Vec<Tensor> = case.operands.iter().map(Operand::tensor).collect();
        let results = results_of(&operands, |b, params| {
            let loss = case.build(b, params)?;
            let seed = b.splat_like(loss, 1.0)?;
            let gradients = b.gradients(&[(loss, seed)], &params[..1])?;
            Ok(vec![gradients[0].unwrap()])
        });
        let expected = f32s(&case.operands[0].dims, &numbers(gradient));
        pando_graph::testing::compare(&results, &[expected], 3e-6)
            .map_err(|error| error.context(format!("{} {:?} {}", case.loss, case.options, case.reduction)))
            .unwrap();
    }
}

/// Batches of any size: means divide by what comes.
#[test]
fn sizes_may_have_names() {
    for case in cases().iter().filter(|case| case.loss != "ctc" && case.operands[0].dims.len() > 1) {
        let operands: Vec<Tensor> = case.operands.iter().map(Operand::tensor).collect();
        let batch = operands[0].shape()[0];
        let of_batch = |ty: &TensorType| ty.dims.first() == Some(&Dim::Known(batch)) && ty.rank() > 0;
        let mut params = types(&operands);
        for (position, ty) in params.iter_mut().enumerate() {
            // The weights of classes are not one per sample.
            if of_batch(ty) && (position < 2 || ty.rank() > 1 || case.loss == "cosine_embedding") {
                ty.dims[0] = Dim::named("N");
            }
        }
        let module = module(&params, |b, params| Ok(vec![case.build(b, params)?])).unwrap();
        let results = eval(&module, module.main().unwrap(), &operands).unwrap();
        let expected = Tensor::from_f64(DType::F32, Shape::new(&case.dims), &numbers(&case.values));
        pando_graph::testing::compare(&results, &[expected], 3e-6)
            .map_err(|error| error.context(format!("{} {:?} {}", case.loss, case.options, case.reduction)))
            .unwrap();
    }
}

/// Sums of f16 are f32 until they are done: 1000 squares of 20 exceed f16, their mean does not.
#[test]
fn means_of_f16_do_not_overflow() {
    let x = Tensor::from_f64(DType::F16, [1000], &[20.0; 1000]);
    let y = Tensor::zeros(DType::F16, [1000]);
    let build = |b: &mut Builder, params: &[ValueId]| {
        let operands = [Some(params[0]), Some(params[1])];
        Ok(vec![named(b, "mse", &operands, &[], Reduction::Mean)?])
    };
    assert_eq!(results_of(&[x, y], build), [Tensor::scalar(DType::F16, 400.0)]);
}

#[test]
fn bad_losses_are_refused() {
    let f32 = |dims: &[u64]| TensorType::new(DType::F32, dims.iter().copied());
    let i64 = |dims: &[u64]| TensorType::new(DType::I64, dims.iter().copied());
    let check = |loss: &str, params: &[TensorType], options: &[(&str, f64)], expect: &str| {
        let error = refused(params, |b, params| {
            let operands: Vec<Option<ValueId>> = params.iter().map(|&value| Some(value)).collect();
            named(b, loss, &operands, options, Reduction::Mean)
        });
        assert_eq!(error, expect);
    };
    let (x, y) = (f32(&[2, 3]), f32(&[2, 3]));
    check("mse", std::slice::from_ref(&x), &[], "mse takes 2 operands, found 1 values");
    check("mse", &[x.clone(), f32(&[3])], &[], "mse: the target is f32[3], expected the dimensions [2,3]");
    check("l1", &[i64(&[2]), i64(&[2])], &[], "l1: the input is i64[2], expected floats");
    let pair = [x.clone(), y];
    check("mse", &pair, &[("beta", 1.0)], "mse has no setting 'beta'; it has: none");
    check("smooth_l1", &pair, &[("beta", -1.0)], "smooth_l1: beta is -1; it is 0 or more");
    check("huber", &pair, &[("delta", 0.0)], "huber: delta is 0; it is above 0");
    check("nll", &pair, &[], "nll: the target is f32[2,3], expected integers");
    let labels = i64(&[3]);
    check("nll", &[x.clone(), labels], &[], "nll: the target is i64[3], expected the dimensions [2]");
    check("nll", &[f32(&[]), i64(&[])], &[], "nll: the input is f32[], expected a dimension of classes");
    check(
        "cross_entropy",
        &[x.clone(), i64(&[2]), f32(&[2])],
        &[],
        "cross_entropy: the tensor of weights is f32[2], expected a float per class of the input f32[2,3]",
    );
    check(
        "cross_entropy",
        &[x.clone(), i64(&[2])],
        &[("label_smoothing", 1.5)],
        "cross_entropy: label_smoothing is 1.5; it is 0 to 1",
    );
    let lengths = i64(&[2]);
    let ctc = |logs, targets| [logs, targets, lengths.clone(), lengths.clone()];
    check("ctc", &ctc(x.clone(), i64(&[2, 2])), &[], "ctc: the input is f32[2,3], expected floats [T,N,C]");
    check("ctc", &ctc(f32(&[4, 2, 3]), i64(&[4])), &[], "ctc: the target is i64[4], expected integers [2,S]");
    check(
        "ctc",
        &ctc(f32(&[4, 2, 3]), i64(&[2, 2])),
        &[("blank", 3.0)],
        "ctc: blank is 3; it is a class, below 3",
    );
    check(
        "triplet_margin",
        &[x.clone(), x.clone(), x.clone()],
        &[("p", 0.5)],
        "triplet_margin: p is 0.5; it is 1 or more",
    );
    check(
        "cosine_embedding",
        &[x.clone(), x.clone(), f32(&[3])],
        &[],
        "cosine_embedding: the target is f32[3], expected the dimensions [2]",
    );
    let unknown = refused(&pair, |b, params| named(b, "mes", &[Some(params[0])], &[], Reduction::Mean));
    assert!(unknown.starts_with("there is no loss 'mes'; there are: mse, l1, "), "{unknown}");
}
