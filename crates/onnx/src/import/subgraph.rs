//! Subgraphs: inlined where they run a known number of times or not at all, otherwise functions whose
//! parameters are the values they capture.

use super::graph_body;
use super::scope::Scope;
use super::value::{TensorValue, Value};
use crate::errors;
use crate::proto::{GraphProto, NodeProto};
use pando_base::{Result, Tensor};
use pando_graph::{Builder, ConstId, FuncId, TensorType, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};
use std::rc::Rc;

/// Imports a subgraph into the current function.
pub(crate) fn inline(
    b: &mut Builder,
    scope: &Scope,
    graph: &GraphProto,
    inputs: Vec<Value>,
) -> Result<Vec<Value>> {
    let mut inner = scope.inner();
    for (info, value) in graph.input.iter().zip(inputs) {
        inner.set(&info.name, value);
    }
    graph_body(b, &mut inner, graph)?;
    results(&inner, graph)
}

fn results(scope: &Scope, graph: &GraphProto) -> Result<Vec<Value>> {
    let result = |name: &str| match scope.value(name)? {
        Some(value) => Ok(value),
        None => Err(errors::failed_inside()),
    };
    graph.output.iter().map(|info| result(&info.name)).collect()
}

/// Where a captured tensor comes from inside a function.
enum Source {
    Const(ConstId),
    Known(Tensor),
    Arg(usize),
}

/// The values that subgraphs take from outside.
pub(crate) struct Captures {
    /// Without a value where the node that gives it failed.
    names: Vec<(String, Option<Value>)>,
    sources: FxHashMap<ValueId, Source>,
    /// What the functions get as arguments: what is no constant.
    pub args: Vec<ValueId>,
    pub types: Vec<TensorType>,
}

impl Captures {
    pub fn of(b: &Builder, scope: &Scope, graphs: &[&GraphProto]) -> Result<Captures> {
        let mut captures = Captures {
            names: Vec::new(),
            sources: FxHashMap::default(),
            args: Vec::new(),
            types: Vec::new(),
        };
        for name in captured_names(graphs) {
            // Names that are nowhere are reported at the node that uses them.
            let Some(value) = scope.get(&name) else { continue };
            if let Some(value) = value {
                captures.add(b, value);
            }
            captures.names.push((name, value.clone()));
        }
        Ok(captures)
    }

    fn add(&mut self, b: &Builder, value: &Value) {
        match value {
            Value::Tensor(tensor) => self.add_tensor(b, tensor.id),
            Value::List(list) => list.iter().for_each(|item| self.add(b, item)),
            Value::Absent | Value::Text(_) => {}
        }
    }

    fn add_tensor(&mut self, b: &Builder, id: ValueId) {
        if self.sources.contains_key(&id) {
            return;
        }
        let source = match (b.const_of(id), b.known(id)) {
            (Some(constant), _) => Source::Const(constant),
            (None, Some(tensor)) => Source::Known(tensor),
            (None, None) => {
                self.args.push(id);
                self.types.push(b.ty(id).clone());
                Source::Arg(self.args.len() - 1)
            }
        };
        self.sources.insert(id, source);
    }

    /// A scope for the body of a function, in which the captured names have the function's values.
    pub fn scope<'a>(&self, b: &mut Builder, outer: &Scope<'a>, params: &[ValueId]) -> Scope<'a> {
        let mut scope = Scope { depth: outer.depth + 1, ..Scope::new(outer.env, outer.opsets) };
        for (name, value) in &self.names {
            let value = value.as_ref().map(|value| self.inside(b, value, params));
            scope.names.insert(name.clone(), value);
        }
        scope
    }

    fn inside(&self, b: &mut Builder, value: &Value, params: &[ValueId]) -> Value {
        match value {
            Value::Tensor(tensor) => {
                let id = match &self.sources[&tensor.id] {
                    Source::Const(constant) => b.const_value(*constant),
                    Source::Known(known) => b.constant(known.clone()),
                    Source::Arg(position) => params[*position],
                };
                Value::Tensor(TensorValue { id, ..tensor.clone() })
            }
            Value::List(list) => {
                Value::List(Rc::new(list.iter().map(|item| self.inside(b, item, params)).collect()))
            }
            other => other.clone(),
        }
    }
}

/// Names that graphs use and do not define, in order of first use.
fn captured_names(graphs: &[&GraphProto]) -> Vec<String> {
    let mut found = Vec::new();
    for graph in graphs {
        collect(graph, &mut Vec::new(), &mut found);
    }
    let mut seen = FxHashSet::default();
    found.retain(|name: &String| seen.insert(name.clone()));
    found
}

fn collect<'g>(graph: &'g GraphProto, defined: &mut Vec<FxHashSet<&'g str>>, found: &mut Vec<String>) {
    let inputs = graph.input.iter().map(|info| info.name.as_str());
    let initializers = graph.initializer.iter().map(|tensor| tensor.name.as_str());
    let sparse = graph.sparse_initializer.iter().filter_map(|s| s.values.as_ref().map(|v| v.name.as_str()));
    defined.push(inputs.chain(initializers).chain(sparse).collect());
    let note = |name: &str, defined: &[FxHashSet<&str>], found: &mut Vec<String>| {
        if !name.is_empty() && !defined.iter().any(|names| names.contains(name)) {
            found.push(name.to_string());
        }
    };
    for NodeProto { input, output, attribute, .. } in &graph.node {
        input.iter().for_each(|name| note(name, defined, found));
        for graph in attribute.iter().filter_map(|attribute| attribute.g.as_deref()) {
            collect(graph, defined, found);
        }
        if let Some(names) = defined.last_mut() {
            names.extend(output.iter().map(String::as_str));
        }
    }
    graph.output.iter().for_each(|info| note(&info.name, defined, found));
    defined.pop();
}

/// A finished function and its results' types.
pub(crate) struct Outlined {
    pub func: FuncId,
    pub types: Vec<TensorType>,
    pub elems: Vec<crate::elem::Elem>,
}

/// Builds a function; `body` gets its parameters. Nothing is left behind on failure.
pub(crate) fn outline(
    b: &mut Builder,
    name: &str,
    params: &[TensorType],
    body: impl FnOnce(&mut Builder, &[ValueId]) -> Result<Vec<TensorValue>>,
) -> Result<Outlined> {
    b.begin(&b.unique_func_name(name));
    let params: Vec<ValueId> = params.iter().map(|ty| b.param("", ty.clone())).collect();
    let results = body(b, &params).inspect_err(|_| b.abandon())?;
    let types = results.iter().map(|result| b.ty(result.id).clone()).collect();
    let elems = results.iter().map(|result| result.elem).collect();
    let ids: Vec<ValueId> = results.iter().map(|result| result.id).collect();
    Ok(Outlined { func: b.end(&ids), types, elems })
}

/// Runs a subgraph inside a function under construction; all its results must be tensors.
pub(crate) fn body(
    b: &mut Builder,
    mut scope: Scope,
    graph: &GraphProto,
    inputs: Vec<Value>,
) -> Result<Vec<TensorValue>> {
    for (info, value) in graph.input.iter().zip(inputs) {
        scope.set(&info.name, value);
    }
    graph_body(b, &mut scope, graph)?;
    let tensors = results(&scope, graph)?.into_iter().map(|value| match value {
        Value::Tensor(tensor) => Ok(tensor),
        other => {
            Err(errors::invalid(format!("a subgraph whose number of runs is open gives {}", other.kind())))
        }
    });
    tensors.collect()
}
