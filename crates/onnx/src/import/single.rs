//! One operator on values of a builder, without a model around it: for callers who build graphs themselves.

use super::OPSETS;
use super::node::outputs;
use super::scope::{Env, Scope};
use super::value::Value;
use crate::errors;
use crate::proto::{AttributeProto, NodeProto};
use pando_base::Result;
use pando_graph::{Builder, ValueId};
use std::cell::{Cell, RefCell};

/// An operator without the names of its inputs and outputs.
#[derive(Clone, Debug, Default)]
pub struct Operator {
    pub op_type: String,
    /// Empty for the standard's own.
    pub domain: String,
    /// Version of the operator set; the newest if `None`.
    pub version: Option<i64>,
    pub attributes: Vec<AttributeProto>,
    /// How many outputs are wanted; some operators compute optional ones.
    pub outputs: usize,
}

/// The results of an operator, as importing a model with this node would give them; all must be tensors.
pub fn translate(b: &mut Builder, operator: Operator, inputs: &[Option<ValueId>]) -> Result<Vec<ValueId>> {
    let version = operator.version.unwrap_or(*OPSETS.end());
    let opsets = [(operator.domain.clone(), version)].into_iter().collect();
    let env = Env {
        functions: Default::default(),
        sample: None,
        wants_sample: Cell::new(false),
        folder: None,
        problems: RefCell::default(),
        nodes: Cell::default(),
    };
    let node = NodeProto {
        output: (0..operator.outputs.max(1)).map(|position| format!("output{position}")).collect(),
        op_type: operator.op_type,
        attribute: operator.attributes,
        domain: operator.domain,
        ..NodeProto::default()
    };
    let values = inputs.iter().map(|input| input.map(|id| Value::tensor(b, id))).collect();
    outputs(b, &Scope::new(&env, &opsets), &node, values)?.into_iter().map(tensor).collect()
}

fn tensor(value: Value) -> Result<ValueId> {
    match value {
        Value::Tensor(tensor) => Ok(tensor.id),
        other => Err(errors::invalid(format!("a result is {}, not a tensor", other.kind()))),
    }
}
