//! From a decoded model to a module of the graph: names, subgraphs, functions, sizes. What each operator
//! means is in `ops/`.
//!
//! Whatever depends on sizes and initializers only is computed on the way, so that the chains of shape
//! operators that exporters write disappear. A vector of sizes of which some are names travels beside its
//! value (`sizes.rs`).

mod dims;
mod functions;
mod inputs;
mod names;
mod node;
mod sample;
mod scope;
mod single;
mod sizes;
pub(crate) mod subgraph;
mod value;

pub use crate::tensors::{Data, Text};
pub use inputs::{declared_inputs, declared_outputs};
pub use sample::{Evaluate, Sample};
pub use scope::Unsupported;
pub(crate) use scope::{Env, Scope};
pub use single::{Operator, translate};
pub(crate) use sizes::{product, reshape_dims};
pub(crate) use value::{Size, TensorValue, Value, sizes_value};

use crate::elem::Elem;
use crate::errors;
use crate::proto::{GraphProto, ModelProto};
use crate::tensors;
use pando_base::{Error, Result, Tensor};
use pando_graph::{Builder, Const, ConstData, Module, TensorType, ValueId};
use sample::Decisions;
use scope::opsets;
use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;

/// Versions of the default operator set that are understood: the first that node tests of the standard
/// use is 1, exporters write 7 and later; the newest is that of onnx 1.23.
pub const OPSETS: std::ops::RangeInclusive<i64> = 1..=28;

/// What is known about a model's inputs when it is imported.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Numbers for named dimensions.
    pub dims: Vec<(String, u64)>,
    /// Values for inputs, which become constants. Needed for strings, sequences and optionals.
    pub values: Vec<(String, Given)>,
    /// Values that inputs may have: they stay inputs, of the sample's shapes, and where sizes depend on
    /// what the model computes, the sizes are those of the sample.
    pub sample: Option<Sample>,
}

/// The value of an input.
#[derive(Clone, Debug)]
pub enum Given {
    Data(Data),
    List(Vec<Given>),
    Absent,
}

/// A model as a graph.
#[derive(Clone, Debug)]
pub struct Imported {
    /// The function `main` takes the inputs and gives the outputs, in order.
    pub module: Module,
    /// The parameters of `main`.
    pub inputs: Vec<Input>,
    pub outputs: Vec<Output>,
    /// Positions among the results of `main`, after the outputs, of the values with which the sample has
    /// decided sizes. The graph is the model for inputs that give the same values there, and for no others.
    pub decided: Vec<usize>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    /// As in the file.
    pub name: String,
    /// The type in the file, such as a double, which the graph holds as f32.
    pub elem: Elem,
    pub ty: TensorType,
}

#[derive(Clone, Debug)]
pub struct Output {
    pub name: String,
    pub value: OutputValue,
}

#[derive(Clone, Debug)]
pub enum OutputValue {
    /// Position among the results of `main`.
    Result(usize, Elem),
    List(Vec<OutputValue>),
    Text(Text),
    Absent,
}

/// Why a model has no translation.
pub(crate) struct Failure {
    pub error: Error,
    /// Whether it may have one once its inputs are known: each operator has a translation at least.
    pub is_open: bool,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure { error, is_open: false }
    }
}

/// Imports a decoded model.
pub fn import(model: &ModelProto, folder: Option<&Path>, options: &Options) -> Result<Imported> {
    attempt(model, folder, options).map_err(|failure| failure.error)
}

pub(crate) fn attempt(
    model: &ModelProto,
    folder: Option<&Path>,
    options: &Options,
) -> Result<Imported, Failure> {
    let graph = model.graph.as_ref().ok_or_else(errors::no_graph)?;
    let opsets = opsets(&model.opset_import);
    let version = opsets.get("").copied().unwrap_or(*OPSETS.start());
    if !OPSETS.contains(&version) {
        return Err(errors::opset_out_of_range(version, *OPSETS.start(), *OPSETS.end()).into());
    }
    let key = |f: &crate::proto::FunctionProto| {
        (scope::domain(&f.domain).to_string(), f.name.clone(), f.overload.clone())
    };
    let functions = model.functions.iter().map(|function| (key(function), function)).collect();
    let env = Env {
        functions,
        sample: options.sample.as_ref().map(Decisions::new),
        wants_sample: Cell::new(false),
        folder: folder.map(Into::into),
        problems: RefCell::default(),
        nodes: Cell::default(),
    };
    let mut b = Builder::new();
    b.begin("main");
    let mut scope = Scope::new(&env, &opsets);
    let inputs = inputs::declare(&mut b, &mut scope, graph, options)
        .map_err(|error| Failure { error, is_open: true })?;
    graph_body(&mut b, &mut scope, graph)?;
    if !env.problems.borrow().is_empty() {
        let may_gain = env.wants_sample.get() || inputs.iter().any(|input| input.ty.shape().is_none());
        let is_open = !note_unknown_ops(&env, graph) && may_gain;
        return Err(Failure { error: errors::unsupported(&env.problems.borrow()), is_open });
    }
    Ok(finish(b, &scope, graph, inputs)?)
}

fn finish(mut b: Builder, scope: &Scope, graph: &GraphProto, inputs: Vec<Input>) -> Result<Imported> {
    let mut results = Vec::new();
    let mut outputs = Vec::new();
    for info in &graph.output {
        let value = scope.value(&info.name)?.ok_or_else(|| errors::undefined_name(&info.name))?;
        if let Value::Tensor(tensor) = &value {
            b.name(tensor.id, &value_name(&info.name));
        }
        outputs.push(Output { name: info.name.clone(), value: output_value(&value, &mut results) });
    }
    let decisions = scope.env.sample.as_ref().map(Decisions::decided).unwrap_or_default();
    let decided = (results.len()..).take(decisions.len()).collect();
    results.extend(decisions);
    b.end(&results);
    Ok(Imported { module: b.finish(), inputs, outputs, decided })
}

/// A value's name needs more than digits and may be empty.
fn value_name(name: &str) -> String {
    names::symbol(name)
}

fn output_value(value: &Value, results: &mut Vec<ValueId>) -> OutputValue {
    match value {
        Value::Tensor(tensor) => {
            results.push(tensor.id);
            OutputValue::Result(results.len() - 1, tensor.elem)
        }
        Value::List(list) => OutputValue::List(list.iter().map(|item| output_value(item, results)).collect()),
        Value::Absent => OutputValue::Absent,
        Value::Text(text) => OutputValue::Text((**text).clone()),
    }
}

fn given_value(b: &mut Builder, given: &Given) -> Value {
    match given {
        Given::Data(data) => data_value(b, "", data.clone()),
        Given::List(list) => Value::List(Rc::new(list.iter().map(|item| given_value(b, item)).collect())),
        Given::Absent => Value::Absent,
    }
}

/// A tensor of the file as a constant. Empty or scalar-sized ones are shared by the builder.
pub(crate) fn data_value(b: &mut Builder, name: &str, data: Data) -> Value {
    match data {
        Data::Text(text) => Value::Text(Rc::new(text)),
        Data::Numbers(tensor, elem) => Value::typed(constant(b, name, tensor), elem),
    }
}

fn constant(b: &mut Builder, name: &str, tensor: Tensor) -> ValueId {
    const SHARED_BELOW: u64 = 1024;
    let name = names::symbol(name);
    if tensor.num_elements() <= SHARED_BELOW || name.is_empty() {
        return b.constant(tensor);
    }
    let (dtype, shape) = (tensor.dtype(), tensor.shape().clone());
    let Const { data, .. } = Const::dense("", tensor);
    debug_assert!(matches!(data, ConstData::Dense(_)));
    b.weight(&name, dtype, shape, data)
}

/// Initializers, then nodes, of a graph into the scope.
pub(crate) fn graph_body(b: &mut Builder, scope: &mut Scope, graph: &GraphProto) -> Result<()> {
    let folder = scope.env.folder.clone();
    for tensor in &graph.initializer {
        // An input of the same name that was given a value overrides its default.
        if scope.names.contains_key(&tensor.name) {
            continue;
        }
        let data = tensors::read(tensor, folder.as_deref())?;
        let value = data_value(b, &tensor.name, data);
        scope.set(&tensor.name, value);
    }
    for sparse in &graph.sparse_initializer {
        let name = sparse.values.as_ref().map_or("", |values| &values.name);
        let (tensor, elem) = tensors::read_sparse(sparse, folder.as_deref())?;
        let value = data_value(b, name, Data::Numbers(tensor, elem));
        scope.set(name, value);
    }
    node::nodes(b, scope, &graph.node)
}

/// Operators that do not exist here are all named, also those that the import did not get to. Whether there are any.
fn note_unknown_ops(env: &Env, graph: &GraphProto) -> bool {
    let mut found = false;
    for node in &graph.node {
        let domain = scope::domain(&node.domain);
        let key = (domain.to_string(), node.op_type.clone(), node.overload.clone());
        if crate::ops::find(domain, &node.op_type).is_none() && !env.functions.contains_key(&key) {
            env.note(node, &errors::unknown_op(&node.op_type, domain));
            found = true;
        }
        for graph in node.attribute.iter().filter_map(|attribute| attribute.g.as_deref()) {
            found |= note_unknown_ops(env, graph);
        }
    }
    found
}
