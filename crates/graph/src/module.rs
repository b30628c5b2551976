//! The tensor IR as plain data: a module of constants and functions; a function of values and nodes in
//! program order. Nothing here checks anything: see `validate.rs`.

use crate::consts::Const;
use crate::errors;
use crate::op::Op;
use crate::types::TensorType;
use pando_base::{Arena, Result, SideTable, define_id};
use smallvec::SmallVec;

define_id!(pub FuncId, "@f");
define_id!(pub ConstId, "@c");
define_id!(pub NodeId, "n");
define_id!(pub ValueId, "%");

#[derive(Clone, Debug, Default)]
pub struct Module {
    pub consts: Arena<ConstId, Const>,
    /// In any order; the one named `main` is where a program starts. No recursion.
    pub funcs: Arena<FuncId, Func>,
}

#[derive(Clone, Debug, Default)]
pub struct Func {
    /// Unique in the module.
    pub name: String,
    pub values: Arena<ValueId, Value>,
    /// Arena order is program order: operands before results.
    pub nodes: Arena<NodeId, Node>,
    pub params: Vec<ValueId>,
    pub results: Vec<ValueId>,
    /// The name of the composite this is the body of, such as `softmax`. Meaning is always the body.
    pub composite: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// Unique in the function; empty if it has none.
    pub name: String,
    pub ty: TensorType,
    pub def: ValueDef,
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueDef {
    /// Position in [`Func::params`].
    Param(u32),
    /// Node and position in [`Node::results`].
    Node(NodeId, u32),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    pub op: Op,
    pub operands: SmallVec<[ValueId; 3]>,
    pub results: SmallVec<[ValueId; 1]>,
}

impl Module {
    pub fn func_named(&self, name: &str) -> Option<FuncId> {
        self.funcs.iter().find(|(_, func)| func.name == name).map(|(id, _)| id)
    }

    /// The function named `main`.
    pub fn main(&self) -> Option<FuncId> {
        self.func_named("main")
    }
}

impl Func {
    pub fn new(name: &str) -> Self {
        Func { name: name.into(), ..Func::default() }
    }

    pub fn ty(&self, value: ValueId) -> &TensorType {
        &self.values[value].ty
    }

    pub fn push_param(&mut self, name: &str, ty: TensorType) -> ValueId {
        let def = ValueDef::Param(self.params.len() as u32);
        let value = self.values.push(Value { name: name.into(), ty, def });
        self.params.push(value);
        value
    }

    /// The same function with its parameters at `positions` only, in this order. An error if one that is left out
    /// is used.
    pub fn with_params(&self, positions: &[usize]) -> Result<Func> {
        let mut out = Func { name: self.name.clone(), composite: self.composite.clone(), ..Func::default() };
        let mut map: SideTable<ValueId, Option<ValueId>> = SideTable::with_default(None);
        for &position in positions {
            let param = self.params[position];
            map[param] = Some(out.push_param(&self.values[param].name, self.ty(param).clone()));
        }
        let new = |map: &SideTable<ValueId, Option<ValueId>>, value: ValueId| {
            map[value].ok_or_else(|| errors::used_param(&self.values[value].name))
        };
        for node in self.nodes.values() {
            let operands = node.operands.iter().map(|&value| new(&map, value)).collect::<Result<Vec<_>>>()?;
            let types = node.results.iter().map(|&value| self.ty(value).clone());
            let kept = out.push_node(node.op.clone(), operands, types);
            for (&old, &value) in node.results.iter().zip(&out.nodes[kept].results) {
                out.values[value].name = self.values[old].name.clone();
                map[old] = Some(value);
            }
        }
        out.results = self.results.iter().map(|&value| new(&map, value)).collect::<Result<_>>()?;
        Ok(out)
    }

    /// Appends a node whose result types the caller has inferred; its results have no names.
    pub fn push_node(
        &mut self,
        op: Op,
        operands: impl IntoIterator<Item = ValueId>,
        types: impl IntoIterator<Item = TensorType>,
    ) -> NodeId {
        let operands = operands.into_iter().collect();
        let node = self.nodes.push(Node { op, operands, results: SmallVec::new() });
        for (position, ty) in types.into_iter().enumerate() {
            let def = ValueDef::Node(node, position as u32);
            let value = self.values.push(Value { name: String::new(), ty, def });
            self.nodes[node].results.push(value);
        }
        node
    }

    pub fn operand_types(&self, operands: &[ValueId]) -> Vec<&TensorType> {
        operands.iter().map(|&value| self.ty(value)).collect()
    }

    pub fn param_types(&self) -> Vec<&TensorType> {
        self.operand_types(&self.params)
    }

    pub fn result_types(&self) -> Vec<&TensorType> {
        self.operand_types(&self.results)
    }
}
