//! Runs a built-in model on the engine with weights and inputs of a file: `run NAME?OPTIONS IN OUT`. Both
//! files are safetensors; IN holds the state_dict, and the inputs in order as `input.0`, `input.1`, …; OUT gets
//! `output.0`, …. For `compare.py`.

use pando_base::{DType, Error, Result, Tensor};
use pando_cpu::CompileOptions;
use pando_zoo::{Options, Weights, build, parse};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use std::collections::BTreeMap;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [spec, input, output] = args.as_slice() else {
        eprintln!("usage: run NAME?OPTIONS IN.safetensors OUT.safetensors");
        return ExitCode::from(2);
    };
    match run(spec, input, output) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(spec: &str, input: &str, output: &str) -> Result<()> {
    let (name, options) = parse(spec)?;
    let mut tensors = read(input)?;
    let mut args = Vec::new();
    while let Some(tensor) = tensors.remove(&format!("input.{}", args.len())) {
        args.push(tensor);
    }
    let module = build(name, &Options { weights: Weights::Given(tensors), ..options })?;
    let main = module.main().expect("a model has main");
    for (tensor, ty) in args.iter_mut().zip(module.funcs[main].param_types()) {
        if tensor.dtype() != ty.dtype {
            *tensor = Tensor::from_f64(ty.dtype, tensor.shape().clone(), &tensor.to_f64());
        }
    }
    let results = pando_cpu::compile(&module, &CompileOptions::default())?.run(&args)?;
    write(output, &results)
}

fn read(path: &str) -> Result<BTreeMap<String, Tensor>> {
    let wrong = |error: &dyn std::fmt::Display| Error::in_file(path, error.to_string());
    let bytes = std::fs::read(path).map_err(|error| wrong(&error))?;
    let file = SafeTensors::deserialize(&bytes).map_err(|error| wrong(&error))?;
    let tensor = |name: String, view: TensorView| {
        let dtype = match view.dtype() {
            Dtype::F32 => DType::F32,
            Dtype::F16 => DType::F16,
            Dtype::I32 => DType::I32,
            other => return Err(wrong(&format!("{name} is {other:?}; only F32, F16 and I32 are read"))),
        };
        let shape: Vec<u64> = view.shape().iter().map(|&size| size as u64).collect();
        Ok((name, Tensor::from_bytes(dtype, shape, view.data())?))
    };
    file.tensors().into_iter().map(|(name, view)| tensor(name, view)).collect()
}

fn write(path: &str, results: &[Tensor]) -> Result<()> {
    let wrong = |error: safetensors::SafeTensorError| Error::in_file(path, error.to_string());
    let f32s: Vec<Tensor> =
        results.iter().map(|t| Tensor::from_f64(DType::F32, t.shape().clone(), &t.to_f64())).collect();
    let view = |tensor| -> Result<TensorView> {
        let tensor: &Tensor = tensor;
        let shape = tensor.shape().iter().map(|&size| size as usize).collect();
        TensorView::new(Dtype::F32, shape, tensor.bytes()).map_err(wrong)
    };
    let views = f32s.iter().enumerate().map(|(i, t)| Ok((format!("output.{i}"), view(t)?)));
    let views = views.collect::<Result<Vec<_>>>()?;
    let bytes = safetensors::serialize(views, None).map_err(wrong)?;
    std::fs::write(path, bytes).map_err(|error| Error::in_file(path, error.to_string()))
}
