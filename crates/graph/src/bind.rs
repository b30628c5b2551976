//! Binding named dimensions to numbers. All types are inferred again from the parameters on; where a
//! derived name turns into something else, that is learned and replaced wherever an attribute mentions
//! it. Derived names are never parsed.
//!
//! Before: a valid module. After: a valid module in which the bound names do not occur; if all names of
//! parameters and attributes are bound, no names are left. Cost: a few linear passes.

use crate::errors;
use crate::module::{Func, Module};
use crate::op::Op;
use crate::ops;
use crate::types::{Dim, TensorType};
use crate::validate::{call_order, describe_node, validate};
use pando_base::{Result, Tensor};
use rustc_hash::FxHashMap;
use std::sync::Arc;

type Bindings = FxHashMap<Arc<str>, Dim>;

/// The module with each name replaced by its number; an error if a name occurs nowhere, or the numbers
/// break an op's constraint.
pub fn bind_dims(module: &Module, bindings: &[(impl AsRef<str>, u64)]) -> Result<Module> {
    let mut known = Bindings::default();
    for (name, size) in bindings {
        known.insert(name.as_ref().into(), Dim::Known(*size));
    }
    check_names_occur(module, &known)?;
    bind_known(module, known)
}

/// The module with all types inferred again from the parameters' types on.
pub(crate) fn infer_again(module: &Module) -> Result<Module> {
    bind_known(module, Bindings::default())
}

fn bind_known(module: &Module, mut known: Bindings) -> Result<Module> {
    // A name learned late may stand in a function bound early; each round learns at least one.
    loop {
        let mut bound = module.clone();
        let learned = known.len();
        let mut failed = None;
        for func in call_order(module)? {
            let mut work = std::mem::take(&mut bound.funcs[func]);
            let result = bind_func(&mut work, &bound, &mut known);
            bound.funcs[func] = work;
            // A call's types differ until the callee is bound with what its caller has just taught.
            failed = result.err();
            if failed.is_some() {
                break;
            }
        }
        match failed {
            _ if known.len() > learned => {}
            Some(error) => return Err(error),
            None => {
                validate(&bound)?;
                return Ok(bound);
            }
        }
    }
}

fn check_names_occur(module: &Module, known: &Bindings) -> Result<()> {
    let values = module.funcs.values().flat_map(|func| func.values.values());
    let value_dims = values.flat_map(|value| value.ty.dims.as_slice());
    let nodes = module.funcs.values().flat_map(|func| func.nodes.values());
    let mut unseen: Vec<&Arc<str>> = known.keys().collect();
    for dim in value_dims.chain(nodes.flat_map(|node| node.op.dims())) {
        unseen.retain(|&name| !matches!(dim, Dim::Named(found) if found == name));
        if unseen.is_empty() {
            break;
        }
    }
    unseen.sort();
    unseen.first().map_or(Ok(()), |name| Err(errors::unbound_name(name)))
}

fn bind_func(func: &mut Func, module: &Module, known: &mut Bindings) -> Result<()> {
    for &param in &func.params {
        substitute(&mut func.values[param].ty.dims, known);
    }
    for node in func.nodes.ids() {
        bind_node(func, node, module, known).map_err(|error| error.context(describe_node(func, node)))?;
    }
    Ok(())
}

fn bind_node(func: &mut Func, node: crate::NodeId, module: &Module, known: &mut Bindings) -> Result<()> {
    let mut op = func.nodes[node].op.clone();
    substitute(op.dims_mut(), known);
    let operands = func.operand_types(&func.nodes[node].operands);
    if let Op::Reshape { dims } = &mut op {
        solve_reshape(operands[0], dims, known);
    }
    let types = ops::infer(&op, &operands, module)?;
    let results = func.nodes[node].results.clone();
    for (&result, ty) in results.iter().zip(types) {
        learn(&func.values[result].ty, &ty, known)?;
        func.values[result].ty = ty;
    }
    func.nodes[node].op = op;
    Ok(())
}

fn substitute(dims: &mut [Dim], known: &Bindings) {
    for dim in dims {
        // Derived names may map to names that are bound in turn. A name never maps to itself, and the
        // bound keeps a cycle between user-chosen names from hanging.
        for _ in 0..known.len() {
            let Dim::Named(name) = &*dim else { break };
            let Some(new) = known.get(name) else { break };
            *dim = new.clone();
        }
    }
}

/// A name that has become something else means that everywhere.
fn learn(old: &TensorType, new: &TensorType, known: &mut Bindings) -> Result<()> {
    for (old, new) in old.dims.iter().zip(&new.dims) {
        let Dim::Named(name) = old else { continue };
        if old == new {
            continue;
        }
        match known.get(name) {
            Some(Dim::Known(first)) if *new != Dim::Known(*first) && new.known().is_some() => {
                return Err(errors::binding_conflict(name, &Dim::Known(*first), new));
            }
            Some(Dim::Known(_)) => {}
            _ => {
                known.insert(name.clone(), new.clone());
            }
        }
    }
    Ok(())
}

/// A reshape of a known number of elements determines a single name left in its dimensions.
fn solve_reshape(operand: &TensorType, dims: &mut [Dim], known: &mut Bindings) {
    let Some(shape) = operand.shape() else { return };
    let named: Vec<usize> = (0..dims.len()).filter(|&axis| dims[axis].known().is_none()).collect();
    let &[axis] = named.as_slice() else { return };
    let others = dims.iter().filter_map(Dim::known).try_fold(1u64, u64::checked_mul);
    let solvable = others.filter(|&others| others > 0 && shape.num_elements() % others == 0);
    if let (Some(others), Dim::Named(name)) = (solvable, dims[axis].clone()) {
        dims[axis] = Dim::Known(shape.num_elements() / others);
        known.insert(name, dims[axis].clone());
    }
}

/// What a function's arguments say about the names in its parameters' types. Ranks and numbers that do
/// not agree are left to the check of the arguments.
pub(crate) fn bindings_of(func: &Func, args: &[Tensor]) -> Result<Vec<(String, u64)>> {
    let mut bindings: Vec<(String, u64)> = Vec::new();
    for (ty, arg) in func.param_types().into_iter().zip(args) {
        for (dim, &size) in ty.dims.iter().zip(arg.shape().iter()) {
            let Dim::Named(name) = dim else { continue };
            match bindings.iter().find(|(known, _)| **known == **name) {
                Some(&(_, first)) if first != size => {
                    return Err(errors::binding_conflict(name, &Dim::Known(first), &Dim::Known(size)));
                }
                Some(_) => {}
                None => bindings.push((name.to_string(), size)),
            }
        }
    }
    Ok(bindings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::{parse, print};

    /// The callee comes first and has a name that only its caller derives.
    #[test]
    fn callees_learn_from_callers() {
        let text = "
func @main(%x: f32[N]) -> f32[N.plus.N.minus.1] {
  %0 = concat %x, %x axis=0 : f32[N.plus.N]
  %1 = slice %0 begin=[1] end=[N.plus.N] : f32[N.plus.N.minus.1]
  %2 = call @f %1 : f32[N.plus.N.minus.1]
  return %2
}
func @f(%x: f32[N.plus.N.minus.1]) -> f32[N.plus.N.minus.1] {
  %0 = neg %x : f32[N.plus.N.minus.1]
  return %0
}
";
        let module = parse(text, "t").unwrap();
        let bound = bind_dims(&module, &[("N", 4)]).unwrap();
        assert!(print(&bound).contains("@f(%x: f32[7]) -> f32[7]"));
    }

    const PROGRAM: &str = "
func @main(%x: f32[N,4], %y: f32[3,4]) -> f32[N.plus.3,4], f32[all], f32[N.plus.3] {
  %0 = concat %x, %y axis=0 : f32[N.plus.3,4]
  %1 = reshape %0 : f32[all]
  %2 = iota axis=0 : f32[N.plus.3]
  return %0, %1, %2
}
";

    #[test]
    fn derived_names_get_numbers_everywhere() {
        let module = parse(PROGRAM, "t").unwrap();
        let bound = bind_dims(&module, &[("N", 5)]).unwrap();
        assert!(print(&bound).contains("@main(%x: f32[5,4], %y: f32[3,4]) -> f32[8,4], f32[32], f32[8]"));
        let renamed = bind_dims(&module, &[("M", 5)]).unwrap_err();
        assert_eq!(renamed.to_string(), "no dimension is named 'M'; nothing to bind");
    }
}
