//! Reading models, and drawing inputs for them.

use crate::args::{CompileOptions, ModelArgs, Precision};
use crate::output::read_text;
use pando_base::{DType, Error, Result, Shape, Tensor};
use pando_graph::{Module, bind_dims, random};
use pando_lower::with_precision;
use pando_tile::Program;
use std::path::Path;

/// A model file, by its ending.
pub enum Model {
    Graph(Module),
    Tile(Program),
}

pub fn load(args: &ModelArgs) -> Result<Model> {
    let path = &args.model;
    let name = path.display().to_string();
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("graph") => load_graph(path, &name, &args.dims).map(Model::Graph),
        Some("tile") if !args.dims.is_empty() => {
            Err(Error::in_file(&name, "a tile program has no named dimensions; leave out --dim"))
        }
        Some("tile") => pando_tile::parse(&read_text(path)?, &name).map(Model::Tile),
        _ if name.starts_with("zoo:") => {
            Err(Error::new(format!("{name}: there are no built-in models yet; give a .graph file")))
        }
        _ => Err(Error::in_file(&name, "is not a model file: its name must end in .graph or .tile")),
    }
}

fn load_graph(path: &Path, name: &str, dims: &[(String, u64)]) -> Result<Module> {
    let module = pando_graph::parse(&read_text(path)?, name)?;
    if dims.is_empty() { Ok(module) } else { bind_dims(&module, dims).map_err(|error| error.with_file(name)) }
}

/// The module as the compile options want it: batch bound, precision set.
pub fn prepared(module: &Module, options: &CompileOptions) -> Result<Module> {
    let bound = match options.micro_batch {
        Some(batch) => bind_batch(module, batch)?,
        None => module.clone(),
    };
    Ok(with_precision(&bound, precision(options.precision)))
}

/// `--micro-batch` gives a size to the dimension that names batches. A model whose sizes are fixed already
/// must agree.
fn bind_batch(module: &Module, batch: u64) -> Result<Module> {
    const NAMES: [&str; 4] = ["N", "B", "batch", "batch_size"];
    let text = main_types(module)?.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    for name in NAMES {
        let named = main_types(module)?.iter().any(|ty| ty.dims.iter().any(|dim| dim.to_string() == name));
        if named {
            return bind_dims(module, &[(name, batch)]);
        }
    }
    let fixed = main_types(module)?.first().and_then(|ty| ty.dims.first().and_then(pando_graph::Dim::known));
    if fixed == Some(batch) {
        return Ok(module.clone());
    }
    Err(Error::new(format!(
        "--micro-batch {batch}: main({text}) has no dimension named N, B, batch or batch_size to set; use --dim NAME=N"
    )))
}

/// The parameter types of `main`.
pub fn main_types(module: &Module) -> Result<Vec<&pando_graph::TensorType>> {
    let main = module.main().ok_or_else(|| Error::new("the module has no function named 'main'"))?;
    Ok(module.funcs[main].param_types())
}

pub fn precision(precision: Option<Precision>) -> pando_lower::Precision {
    match precision {
        None => pando_lower::Precision::Unchanged,
        Some(Precision::F32) => pando_lower::Precision::F32,
        Some(Precision::F16) => pando_lower::Precision::F16,
        Some(Precision::F16F32) => pando_lower::Precision::F16F32,
    }
}

/// Inputs drawn from a seed: floats normally distributed, integers below 100, bools even.
pub fn draw(dtype: DType, shape: &Shape, seed: u64) -> Result<Tensor> {
    const LIMIT_BYTES: u64 = 16 << 30;
    let bytes = shape.checked_num_elements().and_then(|n| n.checked_mul(dtype.size_bytes()));
    if bytes.is_none_or(|bytes| bytes > LIMIT_BYTES) {
        return Err(Error::new(format!("an input {dtype}{shape} is larger than 16 GiB")));
    }
    let count = shape.num_elements();
    if dtype.is_float() {
        let values: Vec<f64> = (0..count).map(|index| random::normal(seed, index)).collect();
        return Ok(Tensor::from_f64(dtype, shape.clone(), &values));
    }
    let below = if dtype == DType::Bool { 2 } else { 100 };
    let values: Vec<i128> = (0..count).map(|index| i128::from(random::bits(seed, index) % below)).collect();
    Ok(Tensor::from_ints(dtype, shape.clone(), &values))
}
