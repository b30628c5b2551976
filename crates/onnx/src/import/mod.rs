//! From a decoded model to a module of the graph: names, subgraphs, functions, sizes. What each operator
//! means is in `ops/`.
//!
//! Whatever depends on sizes and initializers only is computed on the way, so that the chains of shape
//! operators that exporters write disappear. A vector of sizes of which some are names travels beside its
//! value (`sizes.rs`).

mod dims;
mod functions;
mod names;
mod node;
mod scope;
mod sizes;
pub(crate) mod subgraph;
mod value;

pub use crate::tensors::{Data, Text};
pub use scope::Unsupported;
pub(crate) use scope::{Env, Scope};
pub(crate) use sizes::{product, reshape_dims};
pub(crate) use value::{Size, TensorValue, Value, sizes_value};

use crate::elem::Elem;
use crate::errors;
use crate::proto::{DimensionValue, GraphProto, ModelProto, TensorTypeProto, TypeValue, ValueInfoProto};
use crate::tensors;
use pando_base::{Error, Result, Tensor};
use pando_graph::{Builder, Const, ConstData, Dim, Dims, Module, TensorType, ValueId};
use rustc_hash::FxHashSet;
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
    /// Values for inputs, which become constants. Needed where sizes depend on them.
    pub values: Vec<(String, Given)>,
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

/// Imports a decoded model.
pub fn import(model: &ModelProto, folder: Option<&Path>, options: &Options) -> Result<Imported> {
    let graph = model.graph.as_ref().ok_or_else(errors::no_graph)?;
    let opsets = opsets(&model.opset_import);
    let version = opsets.get("").copied().unwrap_or(*OPSETS.start());
    if !OPSETS.contains(&version) {
        return Err(errors::opset_out_of_range(version, *OPSETS.start(), *OPSETS.end()));
    }
    let key = |f: &crate::proto::FunctionProto| {
        (scope::domain(&f.domain).to_string(), f.name.clone(), f.overload.clone())
    };
    let functions = model.functions.iter().map(|function| (key(function), function)).collect();
    let env = Env {
        functions,
        folder: folder.map(Into::into),
        problems: RefCell::default(),
        nodes: Cell::default(),
    };
    dims::check(graph, &options.dims)?;
    let mut b = Builder::new();
    b.begin("main");
    let mut scope = Scope::new(&env, &opsets);
    let inputs = declare_inputs(&mut b, &mut scope, graph, options)?;
    graph_body(&mut b, &mut scope, graph)?;
    note_unknown_ops(&env, graph);
    let problems = env.problems.borrow();
    if !problems.is_empty() {
        return Err(errors::unsupported(&problems));
    }
    finish(b, &scope, graph, inputs)
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
    b.end(&results);
    Ok(Imported { module: b.finish(), inputs, outputs })
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

fn declare_inputs(
    b: &mut Builder,
    scope: &mut Scope,
    graph: &GraphProto,
    options: &Options,
) -> Result<Vec<Input>> {
    let names: Vec<String> = graph.input.iter().map(|info| info.name.clone()).collect();
    for (name, _) in &options.values {
        if !names.contains(name) {
            return Err(errors::unknown_input(name, &names));
        }
    }
    // Before IR version 4 every initializer is listed as an input too; its value is the default.
    let initialized: FxHashSet<&str> = graph.initializer.iter().map(|tensor| tensor.name.as_str()).collect();
    let mut inputs = Vec::new();
    let mut taken = FxHashSet::default();
    for info in &graph.input {
        if let Some((_, given)) = options.values.iter().find(|(name, _)| *name == info.name) {
            let value = given_value(b, given);
            scope.set(&info.name, value);
        } else if !initialized.contains(info.name.as_str()) {
            let (elem, ty) = tensor_type(info, &options.dims)?;
            let mut name = value_name(&info.name);
            if !taken.insert(name.clone()) {
                name = String::new();
            }
            let id = b.param(&name, ty.clone());
            scope.set(&info.name, Value::typed(id, elem));
            inputs.push(Input { name: info.name.clone(), elem, ty });
        }
    }
    Ok(inputs)
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

/// The type of an input, its named dimensions bound as far as numbers are given.
fn tensor_type(info: &ValueInfoProto, bound: &[(String, u64)]) -> Result<(Elem, TensorType)> {
    let found = match info.r#type.as_ref().and_then(|ty| ty.value.as_ref()) {
        Some(TypeValue::Tensor(tensor)) => tensor,
        Some(TypeValue::Sequence(_)) => return Err(needs_given(&info.name, "a sequence")),
        Some(TypeValue::Optional(_)) => return Err(needs_given(&info.name, "an optional")),
        Some(_) => return Err(errors::bad_type(&info.name, "maps and sparse tensors are not supported")),
        None => return Err(errors::bad_type(&info.name, "it is not stated")),
    };
    let elem = Elem(found.elem_type);
    let dtype = match elem.dtype() {
        Some(dtype) => dtype,
        None if elem == Elem::STRING => return Err(needs_given(&info.name, "strings")),
        None => return Err(errors::bad_type(&info.name, errors::unsupported_elem(elem).message())),
    };
    let dims = declared_dims(info, found, bound)?;
    if pando_graph::dims::check_size(&dims).is_none() {
        return Err(errors::bad_type(&info.name, "it has 2^60 elements or more"));
    }
    Ok((elem, TensorType { dtype, dims }))
}

fn needs_given(name: &str, what: &str) -> Error {
    errors::bad_type(name, format!("{what} can be imported with its value only (Options::values)"))
}

fn declared_dims(info: &ValueInfoProto, ty: &TensorTypeProto, bound: &[(String, u64)]) -> Result<Dims> {
    let shape = ty.shape.as_ref().ok_or_else(|| {
        errors::bad_type(&info.name, "its rank is not stated; export the model with ranks, or give the value")
    })?;
    // Some exporters write -1 or '?' for a size that is not known; that is no name.
    let dim = |(axis, dim): (usize, &crate::proto::Dimension)| match &dim.value {
        Some(DimensionValue::DimValue(size)) if *size >= 0 => Dim::Known(*size as u64),
        Some(DimensionValue::DimParam(name)) if !names::symbol(name).is_empty() => bound_dim(name, bound),
        _ => bound_dim(&format!("{}_{axis}", info.name), bound),
    };
    Ok(shape.dim.iter().enumerate().map(dim).collect())
}

fn bound_dim(name: &str, bound: &[(String, u64)]) -> Dim {
    let dim = names::dim(name);
    let given = bound.iter().find(|(given, _)| given == name || dim == Dim::named(given));
    given.map_or(dim, |(_, size)| Dim::Known(*size))
}

/// Operators that do not exist here are all named, also those that the import did not get to.
fn note_unknown_ops(env: &Env, graph: &GraphProto) {
    if env.problems.borrow().is_empty() {
        return;
    }
    for node in &graph.node {
        let domain = scope::domain(&node.domain);
        let key = (domain.to_string(), node.op_type.clone(), node.overload.clone());
        if crate::ops::find(domain, &node.op_type).is_none() && !env.functions.contains_key(&key) {
            env.note(node, &errors::unknown_op(&node.op_type, domain));
        }
        for graph in node.attribute.iter().filter_map(|attribute| attribute.g.as_deref()) {
            note_unknown_ops(env, graph);
        }
    }
}
