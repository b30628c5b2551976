//! A whole module through the builder: simplified, folded and shared. Names of functions, parameters and
//! values stay, as far as the values do.
//!
//! Before: a valid module. After: a valid module with the same functions that compute the same bits;
//! callees stand before callers. Cost: linear, but for folding small constants.

use super::Builder;
use crate::module::{Func, FuncId, Module, NodeId, ValueId};
use crate::op::Op;
use crate::validate::{call_order, describe_node};
use pando_base::{Result, SideTable};

pub fn rebuild(module: &Module) -> Result<Module> {
    let mut b = Builder::new();
    for constant in module.consts.values() {
        b.add_const(constant.clone());
    }
    let mut funcs: SideTable<FuncId, Option<FuncId>> = SideTable::with_default(None);
    for id in call_order(module)? {
        funcs[id] = Some(rebuild_func(&mut b, &module.funcs[id], &funcs)?);
    }
    Ok(b.finish())
}

fn rebuild_func(b: &mut Builder, func: &Func, funcs: &SideTable<FuncId, Option<FuncId>>) -> Result<FuncId> {
    b.begin_func(&func.name, func.composite.clone());
    let mut map: SideTable<ValueId, Option<ValueId>> = SideTable::with_default(None);
    for &param in &func.params {
        map[param] = Some(b.param(&func.values[param].name, func.ty(param).clone()));
    }
    for node in func.nodes.ids() {
        rebuild_node(b, func, node, funcs, &mut map)
            .map_err(|error| error.context(describe_node(func, node)))?;
    }
    let results: Vec<ValueId> =
        func.results.iter().map(|&value| map[value].expect("results are defined")).collect();
    Ok(b.end(&results))
}

fn rebuild_node(
    b: &mut Builder,
    func: &Func,
    node: NodeId,
    funcs: &SideTable<FuncId, Option<FuncId>>,
    map: &mut SideTable<ValueId, Option<ValueId>>,
) -> Result<()> {
    let node = &func.nodes[node];
    let mut op: Op = node.op.clone();
    for callee in op.funcs_mut() {
        *callee = funcs[*callee].expect("callees come first");
    }
    let operands: Vec<ValueId> =
        node.operands.iter().map(|&value| map[value].expect("operands come first")).collect();
    let results = b.insert(op, &operands)?;
    for (&old, &new) in node.results.iter().zip(&results) {
        map[old] = Some(new);
        if !func.values[old].name.is_empty() {
            b.name(new, &func.values[old].name);
        }
    }
    Ok(())
}
