//! How a model runs. Graphs, and ONNX models whose sizes follow from the sizes of inputs, are compiled once and read
//! inputs in place. Others are translated and compiled for inputs that decide their sizes, from copies of them.

use pando_base::{Error, Result, Tensor};
use pando_cli::model::{GraphModel, Model as LoadedModel, load, onnx_options, read_graph};
use pando_cpu::{CompileOptions, Input, StepTime};
use pando_graph::{Dims, Module, TensorType};
use pando_onnx::elem::Elem;
use pando_onnx::{Data, Given, Imported, OutputValue, Plan, Session};
use std::path::Path;
use std::sync::Arc;

/// Name, element type, and sizes or their names; none where not even the rank is known.
pub type Port = (String, pando_base::DType, Option<Dims>);
/// The outputs that are tensors, by name.
pub type Outputs = Vec<(String, Tensor)>;

pub struct Engine {
    pub inputs: Vec<Port>,
    pub outputs: Vec<Port>,
    source: Source,
}

enum Source {
    Graph(Compiled),
    Onnx(Session<Compiled>),
}

/// For this computer; the weights are held by `model` alone.
struct Compiled {
    model: pando_cpu::Model,
    params: Vec<TensorType>,
    results: Vec<TensorType>,
}

/// What has computed a run's results.
enum Ready<'a> {
    General(&'a Compiled),
    ForInputs(Arc<Plan<Compiled>>),
}

impl Ready<'_> {
    fn compiled(&self) -> &Compiled {
        match self {
            Ready::General(compiled) => compiled,
            Ready::ForInputs(plan) => &plan.compiled,
        }
    }
}

impl Engine {
    /// A file, or a built-in model.
    pub fn from_file(path: &Path, dims: Vec<(String, u64)>, options: CompileOptions) -> Result<Engine> {
        let name = path.display().to_string();
        if path.extension().is_some_and(|extension| extension == "onnx") && path.exists() {
            return of_session(Session::open(path, onnx_options(&dims), for_sessions(options))?);
        }
        let args = pando_cli::args::ModelArgs { model: path.into(), dims };
        match load(&args, None)? {
            LoadedModel::Graph(model) => of_graph(model, &options).map_err(|error| error.with_file(&name)),
            LoadedModel::Tile(_) => {
                Err(Error::in_file(&name, "is a tile program; only models (.onnx, .graph) can be loaded"))
            }
        }
    }

    /// The bytes of a file called `name`.
    pub fn from_bytes(
        bytes: impl AsRef<[u8]> + Send + 'static,
        name: &str,
        dims: &[(String, u64)],
        options: CompileOptions,
    ) -> Result<Engine> {
        if let Some(text) = pando_cli::model::graph_text(bytes.as_ref()) {
            return of_graph(read_graph(text, name, dims)?, &options).map_err(|error| error.with_file(name));
        }
        let bytes = bytes::Bytes::from_owner(bytes);
        of_session(Session::of_bytes(bytes, name, None, onnx_options(dims), for_sessions(options))?)
    }

    pub fn run(&self, inputs: &[Input]) -> Result<Outputs> {
        let (ready, results) = self.results(inputs)?;
        Ok(match (&ready, &self.source) {
            (Ready::ForInputs(plan), _) => named(&plan.imported, &results),
            (_, Source::Onnx(session)) => {
                session.general().map_or_else(Vec::new, |plan| named(&plan.imported, &results))
            }
            (_, Source::Graph(_)) => self.outputs.iter().map(|port| port.0.clone()).zip(results).collect(),
        })
    }

    /// The steps of a run, `runs` times, after a run to warm up.
    pub fn profile(&self, inputs: &[Input], runs: usize) -> Result<Vec<Vec<StepTime>>> {
        let (ready, _) = self.results(inputs)?;
        let profile = || ready.compiled().model.profile_borrowed(inputs).map(|(_, steps)| steps);
        (0..runs).map(|_| profile()).collect()
    }

    /// What is compiled for all inputs computes them, or what is compiled for inputs like these.
    fn results(&self, inputs: &[Input]) -> Result<(Ready<'_>, Vec<Tensor>)> {
        let session = match &self.source {
            Source::Graph(compiled) => {
                return Ok((Ready::General(compiled), compiled.model.run_borrowed(inputs)?));
            }
            Source::Onnx(session) => session,
        };
        if let Some(plan) = session.general() {
            match plan.compiled.model.run_borrowed(inputs) {
                Ok(results) => return Ok((Ready::General(&plan.compiled), results)),
                Err(error) if !session.is_open() => return Err(error),
                Err(_) => {}
            }
        }
        let (plan, results) = session.run_special(&self.given(inputs))?;
        Ok((Ready::ForInputs(plan), results))
    }

    fn given(&self, inputs: &[Input]) -> Vec<(String, Given)> {
        let given = |((name, dtype, _), input): (&Port, &Input)| {
            (name.clone(), Given::Data(Data::Numbers(input.to_tensor(), Elem::of(*dtype))))
        };
        self.inputs.iter().zip(inputs).map(given).collect()
    }
}

fn compile(module: Module, options: &CompileOptions) -> Result<Compiled> {
    let main = &module.funcs[module.main().expect("loading found it")];
    let params = main.param_types().into_iter().cloned().collect();
    let results = main.result_types().into_iter().cloned().collect();
    Ok(Compiled { model: pando_cpu::compile_owned(module, options)?, params, results })
}

fn for_sessions(options: CompileOptions) -> pando_onnx::Engine<Compiled> {
    pando_onnx::Engine {
        compile: Box::new(move |module| compile(module, &options)),
        run: |compiled, args| compiled.model.run(args),
    }
}

fn of_graph(model: GraphModel, options: &CompileOptions) -> Result<Engine> {
    let compiled = compile(model.module, options)?;
    let inputs = model.inputs.into_iter().zip(&compiled.params).map(|(name, ty)| port(name, ty)).collect();
    let outputs = model.outputs.into_iter().map(|(name, at)| port(name, &compiled.results[at])).collect();
    Ok(Engine { inputs, outputs, source: Source::Graph(compiled) })
}

fn of_session(session: Session<Compiled>) -> Result<Engine> {
    let inputs = session.inputs()?.into_iter().map(|input| port(input.name, &input.ty)).collect();
    let outputs = match session.general() {
        Some(plan) => tensors(&plan.imported)
            .map(|(name, at)| port(name.to_string(), &plan.compiled.results[at]))
            .collect(),
        None => session.declared_outputs()?,
    };
    Ok(Engine { inputs, outputs, source: Source::Onnx(session) })
}

fn port(name: String, ty: &TensorType) -> Port {
    (name, ty.dtype, Some(ty.dims.clone()))
}

/// The outputs that are tensors, with their positions among the results.
fn tensors(imported: &Imported) -> impl Iterator<Item = (&str, usize)> {
    imported.outputs.iter().filter_map(|output| match output.value {
        OutputValue::Result(at, _) => Some((output.name.as_str(), at)),
        _ => None,
    })
}

fn named(imported: &Imported, results: &[Tensor]) -> Outputs {
    tensors(imported).map(|(name, at)| (name.to_string(), results[at].clone())).collect()
}
