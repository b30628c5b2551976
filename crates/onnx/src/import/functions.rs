//! A model's own functions, inlined where they are called: their nodes with the call's attributes put in.

use super::node;
use super::scope::{Scope, opsets};
use super::value::Value;
use crate::errors;
use crate::proto::{AttributeProto, FunctionProto, NodeProto};
use pando_base::Result;
use pando_graph::Builder;

pub(super) fn inline(
    b: &mut Builder,
    scope: &Scope,
    call: &NodeProto,
    function: &FunctionProto,
    inputs: Vec<Option<Value>>,
) -> Result<Vec<Value>> {
    let mut own = opsets(&function.opset_import);
    for (domain, version) in scope.opsets {
        own.entry(domain.clone()).or_insert(*version);
    }
    let mut inner = Scope { depth: scope.depth + 1, ..Scope::new(scope.env, &own) };
    for (position, name) in function.input.iter().enumerate() {
        // A missing optional input is an empty name in the body too.
        if let Some(value) = inputs.get(position).cloned().flatten() {
            inner.set(name, value);
        }
    }
    let missing = |name: &String| function.input.contains(name) && !inner.names.contains_key(name);
    let bodies: Vec<NodeProto> = function
        .node
        .iter()
        .map(|node| {
            let mut node = with_attributes(node, call, function);
            node.input.iter_mut().filter(|name| missing(name)).for_each(String::clear);
            node
        })
        .collect();
    node::nodes(b, &mut inner, &bodies)?;
    let output = |name: &String| match inner.value(name)? {
        Some(value) => Ok(value),
        None => Err(errors::failed_inside()),
    };
    function.output.iter().map(output).collect()
}

/// The node with references to the function's attributes replaced by the call's or the default; without
/// either the attribute is left out.
fn with_attributes(node: &NodeProto, call: &NodeProto, function: &FunctionProto) -> NodeProto {
    let resolve = |attribute: &AttributeProto| -> Option<AttributeProto> {
        if attribute.ref_attr_name.is_empty() {
            let mut attribute = attribute.clone();
            if let Some(graph) = &mut attribute.g {
                for node in &mut graph.node {
                    *node = with_attributes(node, call, function);
                }
            }
            return Some(attribute);
        }
        let wanted = |a: &&AttributeProto| a.name == attribute.ref_attr_name;
        let found = call.attribute.iter().find(wanted);
        let found = found.or_else(|| function.attribute_proto.iter().find(wanted))?;
        Some(AttributeProto { name: attribute.name.clone(), ..found.clone() })
    };
    NodeProto { attribute: node.attribute.iter().filter_map(resolve).collect(), ..node.clone() }
}
