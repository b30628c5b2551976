//! Builds a function, runs it in the evaluator and in the engine, and compares.

use pando_base::{DType, Result, Shape, Tensor};
use pando_cpu::{CompileOptions, compile};
use pando_graph::testing::compare;
use pando_graph::{Builder, Module, TensorType, ValueId, eval, known_dims, validate};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A function `main` of these parameters.
pub fn module(
    params: &[TensorType],
    build: impl FnOnce(&mut Builder, &[ValueId]) -> Result<Vec<ValueId>>,
) -> Result<Module> {
    let mut b = Builder::new();
    b.begin("main");
    let params: Vec<ValueId> = params.iter().map(|ty| b.param("", ty.clone())).collect();
    let results = build(&mut b, &params)?;
    b.end(&results);
    let module = b.finish();
    validate(&module)?;
    Ok(module)
}

pub fn types(tensors: &[Tensor]) -> Vec<TensorType> {
    let ty = |tensor: &Tensor| TensorType { dtype: tensor.dtype(), dims: known_dims(tensor.shape()) };
    tensors.iter().map(ty).collect()
}

/// The results in the evaluator; those of the engine agree with them.
pub fn run(module: &Module, inputs: &[Tensor], tolerance: f64) -> Vec<Tensor> {
    let expected = eval(module, module.main().unwrap(), inputs).unwrap();
    let options = CompileOptions { threads: 1, ..CompileOptions::default() };
    let actual = compile(module, &options).unwrap().run(inputs).unwrap();
    compare(&actual, &expected, tolerance).unwrap();
    expected
}

/// What the function gives for these tensors.
pub fn results_of(
    inputs: &[Tensor],
    build: impl FnOnce(&mut Builder, &[ValueId]) -> Result<Vec<ValueId>>,
) -> Vec<Tensor> {
    run(&module(&types(inputs), build).unwrap(), inputs, 2e-6)
}

/// Why a function of these parameters cannot be built.
pub fn refused(
    params: &[TensorType],
    build: impl FnOnce(&mut Builder, &[ValueId]) -> Result<ValueId>,
) -> String {
    module(params, |b, params| build(b, params).map(|value| vec![value])).unwrap_err().to_string()
}

pub fn f32s(dims: &[u64], values: &[f64]) -> Tensor {
    Tensor::from_f64(DType::F32, Shape::new(dims), values)
}

pub fn golden<T: DeserializeOwned>(text: &str) -> T {
    serde_json::from_str(text).unwrap()
}

/// Numbers, infinities and NaNs spelled out.
pub fn numbers(values: &[Value]) -> Vec<f64> {
    let number = |value: &Value| value.as_f64().unwrap_or_else(|| value.as_str().unwrap().parse().unwrap());
    values.iter().map(number).collect()
}
