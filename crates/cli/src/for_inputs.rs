//! Models whose branches or sizes depend on the values of their inputs, translated for one set of them.

use crate::args::{InputArgs, ModelArgs};
use crate::inputs::{Port, inputs};
use crate::model::{BATCH_NAMES, Model, is_onnx, load, of_imported, onnx_options};
use pando_base::{Error, Result, Tensor};
use pando_cpu::CompileOptions;
use pando_graph::Module;
use std::path::Path;
use std::sync::Arc;

/// Which inputs a model was translated for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inputs {
    All,
    /// Those that are given, the rest drawn; some value decided sizes or branches.
    These,
}

/// What `with` makes of the model for all inputs; where that fails, of an ONNX model for these inputs. The engine
/// computes what decides.
pub fn load_and<T>(
    model: &ModelArgs,
    given: &InputArgs,
    micro_batch: Option<u64>,
    engine: CompileOptions,
    with: impl Fn(Model, Inputs) -> Result<T>,
) -> Result<T> {
    let general = load(model, micro_batch);
    let was_read = general.is_ok();
    let of_all = |model: Model| {
        refuse_unknown(&model, given)?;
        with(model, Inputs::All)
    };
    let first = match general.and_then(of_all) {
        Err(first) if is_onnx(&model.model) => first,
        done => return done,
    };
    let in_file = |text: String| Error::in_file(model.model.display().to_string(), text);
    let dims = sizes(model, micro_batch)?;
    let named = match values(&model.model, &dims, given) {
        Ok(named) => named,
        // Sizes are what it lacks.
        Err(second) if was_read || first.message() == second.message() => {
            return Err(second.with_file(&model.model.display().to_string()));
        }
        Err(second) => return Err(in_file(both(&first, &second))),
    };
    let evaluate = move |module: &Module, args: &[Tensor]| pando_cpu::compile(module, &engine)?.run(args);
    pando_onnx::load_for(&model.model, &named, &onnx_options(&dims), Arc::new(evaluate))
        .and_then(|imported| with(Model::Graph(of_imported(imported)), Inputs::These))
        .map_err(|second| {
            let drawn = drawn(&named, given);
            match drawn.as_str() {
                "" => in_file(both(&first, &second)),
                drawn => in_file(format!(
                    "{}\nwhere an input's value decides, give it: --input NAME=NUMBER or NAME=FILE.npy; drawn at \
                     random: {drawn}",
                    both(&first, &second)
                )),
            }
        })
}

/// What is given for an input that the model has not is a mistake, needed or not.
fn refuse_unknown(model: &Model, given: &InputArgs) -> Result<()> {
    let Model::Graph(model) = model else { return Ok(()) };
    let unknown = |name: &&str| !model.inputs.iter().any(|input| input == name);
    match given.inputs.iter().filter_map(|input| input.name.as_deref()).find(unknown) {
        None => Ok(()),
        Some(name) => {
            Err(Error::new(format!("--input {name}: the model's inputs are {}", model.inputs.join(", "))))
        }
    }
}

/// The sizes that the user gives: a batch also to the dimension that names it.
fn sizes(model: &ModelArgs, micro_batch: Option<u64>) -> Result<Vec<(String, u64)>> {
    let mut dims = model.dims.clone();
    if let Some(batch) = micro_batch {
        let declared = pando_onnx::inputs(&model.model, &onnx_options(&dims))?;
        let named = |name: &&str| {
            declared.iter().any(|input| input.ty.dims.iter().any(|dim| dim.to_string() == *name))
        };
        dims.extend(BATCH_NAMES.into_iter().find(named).map(|name| (name.to_string(), batch)));
    }
    Ok(dims)
}

/// The inputs that are given, the rest drawn.
fn values(path: &Path, dims: &[(String, u64)], given: &InputArgs) -> Result<Vec<(String, Tensor)>> {
    let declared = pando_onnx::inputs(path, &onnx_options(dims))?;
    let ports: Vec<Port> =
        declared.into_iter().map(|input| Port { name: input.name, ty: input.ty }).collect();
    let values = inputs(&ports, given)?;
    Ok(ports.into_iter().map(|port| port.name).zip(values).collect())
}

fn both(general: &Error, special: &Error) -> String {
    match general.message() == special.message() {
        true => general.message().to_string(),
        false => format!("{}\nand with these inputs: {}", general.message(), special.message()),
    }
}

/// The names of inputs that nothing was given for.
fn drawn(inputs: &[(String, Tensor)], given: &InputArgs) -> String {
    let is_given =
        |name: &str| given.inputs.iter().any(|input| input.name.as_deref().is_none_or(|n| n == name));
    let drawn: Vec<&str> =
        inputs.iter().map(|(name, _)| name.as_str()).filter(|name| !is_given(name)).collect();
    drawn.join(", ")
}
