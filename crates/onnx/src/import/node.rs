//! One node: its inputs looked up, its operator translated, its outputs named. Failures are noted and the
//! import goes on, so that all of them can be told at once.

use super::names::symbol;
use super::scope::{MAX_DEPTH, Scope, domain};
use super::value::Value;
use super::{functions, sizes};
use crate::ctx::Ctx;
use crate::elem::Elem;
use crate::errors;
use crate::ops::{self, Rule};
use crate::proto::NodeProto;
use pando_base::{Error, Result};
use pando_graph::Builder;

pub(super) fn nodes(b: &mut Builder, scope: &mut Scope, nodes: &[NodeProto]) -> Result<()> {
    if scope.depth > MAX_DEPTH {
        return Err(errors::nests_too_deep());
    }
    for node in nodes {
        scope.env.count_node()?;
        let results = inputs(scope, node).and_then(|inputs| match inputs {
            Some(inputs) => outputs(b, scope, node, inputs).map(Some),
            None => Ok(None),
        });
        match results {
            Ok(Some(values)) => name_outputs(b, scope, node, values),
            Ok(None) => poison(scope, node),
            Err(error) if error == errors::failed_inside() => poison(scope, node),
            Err(error) => {
                scope.env.note(node, &error);
                poison(scope, node);
            }
        }
    }
    Ok(())
}

/// The inputs; `None` if one of them comes from a node that failed.
fn inputs(scope: &Scope, node: &NodeProto) -> Result<Option<Vec<Option<Value>>>> {
    let mut values = Vec::with_capacity(node.input.len());
    for name in &node.input {
        if name.is_empty() {
            values.push(None);
            continue;
        }
        match scope.value(name)? {
            Some(value) => values.push(Some(value)),
            None => return Ok(None),
        }
    }
    Ok(Some(values))
}

fn name_outputs(b: &mut Builder, scope: &mut Scope, node: &NodeProto, values: Vec<Value>) {
    for (position, name) in node.output.iter().enumerate().filter(|(_, name)| !name.is_empty()) {
        match values.get(position) {
            Some(value) => {
                // A reader of profiles and errors knows the names of the file.
                if let Value::Tensor(tensor) = value {
                    b.name(tensor.id, &symbol(name));
                }
                scope.set(name, value.clone());
            }
            None => {
                let error: Error = errors::invalid(format!("output {position} ('{name}') is not supported"));
                scope.env.note(node, &error);
                scope.names.insert(name.clone(), None);
            }
        }
    }
}

fn poison(scope: &mut Scope, node: &NodeProto) {
    for name in &node.output {
        scope.names.insert(name.clone(), None);
    }
}

pub(super) fn outputs(
    b: &mut Builder,
    scope: &Scope,
    node: &NodeProto,
    inputs: Vec<Option<Value>>,
) -> Result<Vec<Value>> {
    let domain = domain(&node.domain);
    let key = (domain.to_string(), node.op_type.clone(), node.overload.clone());
    // A model's own function overrides nothing of the standard but comes first elsewhere.
    if let Some(function) = scope.env.functions.get(&key) {
        return functions::inline(b, scope, node, function, inputs);
    }
    let rule = ops::find(domain, &node.op_type).ok_or_else(|| errors::unknown_op(&node.op_type, domain))?;
    let version = scope.version(domain).unwrap_or(1);
    let mut ctx = Ctx { b, scope, node, inputs, version };
    let mut values = match rule {
        Rule::One(translate) => {
            let id = translate(&mut ctx)?;
            vec![Value::typed(id, elem_of_result(&ctx, id))]
        }
        Rule::Many(translate) => translate(&mut ctx)?,
    };
    sizes::attach(&mut ctx, &mut values);
    Ok(values)
}

/// Results of the first input's graph type keep its element type, for instance int4 held in bytes.
fn elem_of_result(ctx: &Ctx, id: pando_graph::ValueId) -> Elem {
    let dtype = ctx.dtype(id);
    let tensors = ctx.inputs.iter().flatten().filter_map(|value| match value {
        Value::Tensor(tensor) => Some(tensor.elem),
        _ => None,
    });
    tensors.into_iter().find(|elem| elem.dtype() == Some(dtype)).unwrap_or(Elem::of(dtype))
}
