//! Reading models, and drawing inputs for them.

use crate::args::{CompileOptions, ModelArgs, Precision};
use crate::output::read_text;
use pando_base::{DType, Error, Result, Shape, Tensor};
use pando_graph::{Module, ValueId, bind_dims, random};
use pando_lower::with_precision_but;
use pando_onnx::OutputValue;
use pando_tile::Program;
use std::path::Path;

/// A model file, by its ending.
pub enum Model {
    Graph(GraphModel),
    Tile(Program),
}

/// A module with the names that its users know.
pub struct GraphModel {
    pub module: Module,
    /// Of the parameters of `main`.
    pub inputs: Vec<String>,
    /// Of outputs that are tensors, with their position among the results of `main`.
    pub outputs: Vec<(String, usize)>,
}

/// Of a file's name.
pub fn is_onnx(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "onnx")
}

/// What a built-in model's name begins with.
const ZOO: &str = "zoo:";

/// Reads a file, or builds a built-in model: with the batch that the compile options ask for, if its name says
/// none.
pub fn load(args: &ModelArgs, micro_batch: Option<u64>) -> Result<Model> {
    let path = &args.model;
    let name = path.display().to_string();
    if let Some(spec) = name.strip_prefix(ZOO) {
        return load_zoo(spec, &args.dims, micro_batch).map(Model::Graph);
    }
    if !path.exists() {
        return Err(Error::in_file(&name, "there is no such file"));
    }
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("graph") => load_graph(path, &name, &args.dims).map(Model::Graph),
        Some("onnx") => load_onnx(path, &args.dims).map(Model::Graph),
        Some("tile") if !args.dims.is_empty() => {
            Err(Error::in_file(&name, "a tile program has no named dimensions; leave out --dim"))
        }
        Some("tile") => pando_tile::parse(&read_text(path)?, &name).map(Model::Tile),
        _ => Err(Error::in_file(&name, "is not a model file: its name must end in .graph, .onnx or .tile")),
    }
}

/// The text of a `.graph` file; `None` for the bytes of a `.onnx` file.
pub fn graph_text(bytes: &[u8]) -> Option<&str> {
    // An ONNX file begins with the numbers of its fields, which are control characters; a text has none.
    let is_binary = bytes.iter().any(|&byte| byte < b' ' && !b"\n\r\t".contains(&byte));
    if is_binary { None } else { std::str::from_utf8(bytes).ok() }
}

fn load_zoo(spec: &str, dims: &[(String, u64)], micro_batch: Option<u64>) -> Result<GraphModel> {
    let (name, mut options) = pando_zoo::parse(spec)?;
    if let Some((dim, size)) = dims.first() {
        return Err(Error::new(format!(
            "--dim {dim}={size}: the sizes of a built-in model are in its name, such as zoo:{name}?batch=4"
        )));
    }
    let has_batch = pando_zoo::describe(name)?.sizes.iter().any(|&(size, _)| size == BATCH);
    let says_batch = options.sizes.iter().any(|(size, _)| size == BATCH);
    if let Some(batch) = micro_batch.filter(|_| has_batch && !says_batch) {
        options = options.with_size(BATCH, batch);
    }
    graph_model(pando_zoo::build(name, &options)?)
}

/// The size of a built-in model that `--micro-batch` sets.
const BATCH: &str = "batch";

fn load_graph(path: &Path, name: &str, dims: &[(String, u64)]) -> Result<GraphModel> {
    read_graph(&read_text(path)?, name, dims)
}

/// The model that the text of a file called `name` describes.
pub fn read_graph(text: &str, name: &str, dims: &[(String, u64)]) -> Result<GraphModel> {
    let mut module = pando_graph::parse(text, name)?;
    if !dims.is_empty() {
        module = bind_dims(&module, dims).map_err(|error| error.with_file(name))?;
    }
    graph_model(module).map_err(|error| error.with_file(name))
}

/// Values without a name are called after their position.
fn graph_model(module: Module) -> Result<GraphModel> {
    let main = module.main().ok_or_else(no_main)?;
    let func = &module.funcs[main];
    let named = |value: ValueId, position: usize, kind: &str| {
        let name = &func.values[value].name;
        if name.is_empty() { format!("{kind}{position}") } else { name.clone() }
    };
    let inputs = func.params.iter().enumerate().map(|(at, &value)| named(value, at, "input")).collect();
    let outputs =
        func.results.iter().enumerate().map(|(at, &value)| (named(value, at, "output"), at)).collect();
    Ok(GraphModel { inputs, outputs, module })
}

pub fn onnx_options(dims: &[(String, u64)]) -> pando_onnx::Options {
    pando_onnx::Options { dims: dims.to_vec(), ..pando_onnx::Options::default() }
}

fn load_onnx(path: &Path, dims: &[(String, u64)]) -> Result<GraphModel> {
    pando_onnx::load_with(path, &onnx_options(dims)).map(of_imported)
}

pub fn of_imported(imported: pando_onnx::Imported) -> GraphModel {
    let outputs = imported.outputs.into_iter().filter_map(|output| match output.value {
        OutputValue::Result(position, _) => Some((output.name, position)),
        // Texts, lists and absent outputs are no tensors to print.
        _ => None,
    });
    GraphModel {
        outputs: outputs.collect(),
        inputs: imported.inputs.into_iter().map(|input| input.name).collect(),
        module: imported.module,
    }
}

fn no_main() -> Error {
    Error::new("the module has no function named 'main'")
}

/// The module as the compile options want it: batch bound, precision set.
pub fn prepared(module: Module, options: &CompileOptions) -> Result<Module> {
    let bound = match options.micro_batch {
        Some(batch) => bind_batch(module, batch)?,
        None => module,
    };
    with_precision_but(bound, precision(options.precision), &options.keep_f32)
}

/// Names of dimensions that say how many items are processed at once.
pub const BATCH_NAMES: [&str; 4] = ["N", "B", "batch", "batch_size"];

/// `--micro-batch` gives a size to the dimension that names batches. A model whose sizes are fixed already
/// must agree.
fn bind_batch(module: Module, batch: u64) -> Result<Module> {
    let text = main_types(&module)?.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    for name in BATCH_NAMES {
        let named = main_types(&module)?.iter().any(|ty| ty.dims.iter().any(|dim| dim.to_string() == name));
        if named {
            return bind_dims(&module, &[(name, batch)]);
        }
    }
    let fixed = main_types(&module)?.first().and_then(|ty| ty.dims.first().and_then(pando_graph::Dim::known));
    if fixed == Some(batch) {
        return Ok(module);
    }
    Err(Error::new(format!(
        "--micro-batch {batch}: main({text}) has no dimension named N, B, batch or batch_size to set; use --dim NAME=N"
    )))
}

/// The parameter types of `main`.
pub fn main_types(module: &Module) -> Result<Vec<&pando_graph::TensorType>> {
    let main = module.main().ok_or_else(no_main)?;
    Ok(module.funcs[main].param_types())
}

pub fn precision(precision: Option<Precision>) -> pando_lower::Precision {
    match precision {
        None => pando_lower::Precision::Unchanged,
        Some(Precision::F32) => pando_lower::Precision::F32,
        Some(Precision::F16) => pando_lower::Precision::F16,
        Some(Precision::F16F32) => pando_lower::Precision::F16F32,
        Some(Precision::F8) => pando_lower::Precision::F8,
    }
}

/// Larger tensors are neither drawn nor put together.
pub const LARGEST_TENSOR_BYTES: u64 = 4 << 30;

/// Inputs drawn from a seed: floats normally distributed, integers below 100, bools even.
pub fn draw(dtype: DType, shape: &Shape, seed: u64) -> Result<Tensor> {
    let bytes = shape.checked_num_elements().and_then(|n| n.checked_mul(dtype.size_bytes()));
    if bytes.is_none_or(|bytes| bytes > LARGEST_TENSOR_BYTES) {
        return Err(Error::new(format!(
            "an input {dtype}{shape} is larger than 4 GiB; nothing draws that many numbers"
        )));
    }
    let mut tensor = Tensor::zeros(dtype, shape.clone());
    let below = if dtype == DType::Bool { 2 } else { 100 };
    let size = dtype.size_bytes() as usize;
    for (index, bytes) in (0..).zip(tensor.bytes_mut().chunks_exact_mut(size)) {
        if dtype.is_float() {
            dtype.write_f64(random::normal(seed, index), bytes);
        } else {
            dtype.write_int(i128::from(random::bits(seed, index) % below), bytes);
        }
    }
    Ok(tensor)
}
