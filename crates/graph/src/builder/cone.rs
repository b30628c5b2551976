//! What a value of the function under construction is computed from, as a module of its own: to know the
//! value before the function is finished.
//!
//! Cost: linear in the nodes above the value; constants are shared, not copied.

use super::Builder;
use crate::eval;
use crate::module::{Func, FuncId, Module, NodeId, ValueDef, ValueId};
use crate::op::Op;
use pando_base::{SideTable, Tensor};
use rustc_hash::FxHashSet;
use std::collections::BTreeSet;

impl Builder {
    /// How many functions have begun and not ended.
    pub fn depth(&self) -> usize {
        self.frames.len()
    }

    /// The elements of a value that depends on no parameter and no named dimension, whatever its size,
    /// if computing it takes no more than `limits`.
    pub fn evaluate(&self, value: ValueId, limits: &eval::EvalOptions) -> Option<Tensor> {
        if let Some(tensor) = self.known(value) {
            return Some(tensor);
        }
        if let Some(Op::Constant(id)) = self.def(value) {
            return Some(self.module.consts[*id].materialize());
        }
        let (module, _) = self.cone(value, |_| false)?;
        let main = module.main()?;
        eval::eval_with(&module, main, &[], limits).ok().map(|mut results| results.swap_remove(0))
    }

    /// A module whose `main` computes `value` of the innermost function from those values above it that are
    /// `given`, its parameters in the order returned. `None` if a parameter that is not given is needed.
    pub fn cone(&self, value: ValueId, given: impl Fn(ValueId) -> bool) -> Option<(Module, Vec<ValueId>)> {
        let func = self.func();
        let (nodes, params) = above(func, value, given)?;
        let mut copy = Copy { source: &self.module, module: Module::default(), funcs: SideTable::default() };
        let mut main = Func::new("main");
        let mut map: SideTable<ValueId, Option<ValueId>> = SideTable::with_default(None);
        for &param in &params {
            map[param] = Some(main.push_param("", func.ty(param).clone()));
        }
        for node in nodes.into_iter().map(|node| &func.nodes[node]) {
            let op = copy.op(&node.op);
            let operands: Vec<ValueId> =
                node.operands.iter().map(|&value| map[value].expect("operands are above too")).collect();
            let types = node.results.iter().map(|&value| func.ty(value).clone());
            let new = main.push_node(op, operands, types);
            for (&old, &new) in node.results.iter().zip(&main.nodes[new].results) {
                map[old].get_or_insert(new);
            }
        }
        main.results = vec![map[value].expect("the value is above itself")];
        copy.module.funcs.push(main);
        Some((copy.module, params))
    }
}

/// The nodes that `value` is computed by, in program order, and the given values that they start from.
fn above(
    func: &Func,
    value: ValueId,
    given: impl Fn(ValueId) -> bool,
) -> Option<(BTreeSet<NodeId>, Vec<ValueId>)> {
    let (mut nodes, mut params, mut seen) = (BTreeSet::new(), Vec::new(), FxHashSet::default());
    let mut stack = vec![value];
    while let Some(value) = stack.pop() {
        match func.values[value].def {
            _ if !seen.insert(value) => {}
            _ if given(value) => params.push(value),
            ValueDef::Param(_) => return None,
            ValueDef::Node(node, _) if nodes.insert(node) => stack.extend(&func.nodes[node].operands),
            ValueDef::Node(..) => {}
        }
    }
    Some((nodes, params))
}

/// Copies ops with the constants and functions they name.
struct Copy<'a> {
    source: &'a Module,
    module: Module,
    funcs: SideTable<FuncId, Option<FuncId>>,
}

impl Copy<'_> {
    fn op(&mut self, op: &Op) -> Op {
        let mut op = op.clone();
        if let Op::Constant(id) = &mut op {
            *id = self.module.consts.push(self.source.consts[*id].clone());
        }
        for func in op.funcs_mut() {
            *func = self.func(*func);
        }
        op
    }

    /// Recursion is as deep as calls nest.
    fn func(&mut self, id: FuncId) -> FuncId {
        if let Some(copied) = self.funcs[id] {
            return copied;
        }
        let mut func = self.source.funcs[id].clone();
        let ids: Vec<_> = func.nodes.ids().collect();
        for node in ids {
            func.nodes[node].op = self.op(&self.source.funcs[id].nodes[node].op);
        }
        let copied = self.module.funcs.push(func);
        self.funcs[id] = Some(copied);
        copied
    }
}
