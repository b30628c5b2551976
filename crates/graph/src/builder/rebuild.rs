//! A whole module through the builder: simplified, folded and shared. Names of functions, parameters and
//! values stay, as far as the values do.
//!
//! Before: a valid module. After: a valid module with the same functions that compute the same bits;
//! callees stand before callers. Cost: linear, but for folding small constants.

use super::Builder;
use crate::errors;
use crate::module::{Func, FuncId, Module, NodeId, ValueId};
use crate::op::Op;
use crate::validate::{call_order, describe_node};
use pando_base::{Result, SideTable};

/// A function's values as values of another.
pub(crate) type Map = SideTable<ValueId, Option<ValueId>>;

pub fn rebuild(module: &Module) -> Result<Module> {
    let mut b = Builder::new();
    rebuild_funcs(&mut b, module, |_| true)?;
    Ok(b.finish())
}

impl Builder {
    /// A builder in which everything of a module stands, and its `main` is still open: to append to it. Also the
    /// parameters and results of `main`.
    pub fn reopen(module: &Module) -> Result<(Builder, Vec<ValueId>, Vec<ValueId>)> {
        let main = module.main().ok_or_else(|| errors::unknown_symbol("function", "main"))?;
        let mut b = Builder::new();
        let funcs = rebuild_funcs(&mut b, module, |func| func != main)?;
        let func = &module.funcs[main];
        b.begin_func(&func.name, func.composite.clone());
        let params = b.params_of(func);
        let results = b.append(func, &params, |callee| funcs[callee].expect("main is not called"))?;
        Ok((b, params, results))
    }
}

type Funcs = SideTable<FuncId, Option<FuncId>>;

fn rebuild_funcs(b: &mut Builder, module: &Module, wanted: impl Fn(FuncId) -> bool) -> Result<Funcs> {
    for constant in module.consts.values() {
        b.add_const(constant.clone());
    }
    let mut funcs: Funcs = SideTable::with_default(None);
    for id in call_order(module)?.into_iter().filter(|&id| wanted(id)) {
        let func = rebuild_func(b, &module.funcs[id], &funcs)?;
        b.note_standard(func);
        funcs[id] = Some(func);
    }
    Ok(funcs)
}

fn rebuild_func(b: &mut Builder, func: &Func, funcs: &Funcs) -> Result<FuncId> {
    b.begin_func(&func.name, func.composite.clone());
    let params = b.params_of(func);
    let results = b.append(func, &params, |callee| funcs[callee].expect("callees come first"))?;
    Ok(b.end(&results))
}

impl Builder {
    /// The parameters of a function as those of the innermost one.
    pub(crate) fn params_of(&mut self, func: &Func) -> Vec<ValueId> {
        let params = func.params.iter().map(|&param| &func.values[param]);
        params.map(|param| self.param(&param.name, param.ty.clone())).collect()
    }

    /// Appends the nodes of a function to the innermost one, with `args` for its parameters; the results. `callee`
    /// says what the functions that it runs are called here.
    pub(crate) fn append(
        &mut self,
        func: &Func,
        args: &[ValueId],
        callee: impl Fn(FuncId) -> FuncId,
    ) -> Result<Vec<ValueId>> {
        let mut map: Map = SideTable::with_default(None);
        for (&param, &arg) in func.params.iter().zip(args) {
            map[param] = Some(arg);
        }
        for node in func.nodes.ids() {
            self.append_node(func, node, &callee, &mut map)
                .map_err(|error| error.context(describe_node(func, node)))?;
        }
        Ok(func.results.iter().map(|&value| map[value].expect("results are defined")).collect())
    }

    /// Appends one node of another function whose operands `map` has, and puts its results there.
    pub(crate) fn append_node(
        &mut self,
        func: &Func,
        node: NodeId,
        callee: &impl Fn(FuncId) -> FuncId,
        map: &mut Map,
    ) -> Result<()> {
        let node = &func.nodes[node];
        let mut op: Op = node.op.clone();
        for slot in op.funcs_mut() {
            *slot = callee(*slot);
        }
        let operands: Vec<ValueId> =
            node.operands.iter().map(|&value| map[value].expect("operands come first")).collect();
        let results = self.insert(op, &operands)?;
        for (&old, &new) in node.results.iter().zip(&results) {
            map[old] = Some(new);
            if !func.values[old].name.is_empty() {
                self.name(new, &func.values[old].name);
            }
        }
        Ok(())
    }
}
