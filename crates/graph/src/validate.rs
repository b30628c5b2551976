//! Whether a module keeps the IR's rules: ids in range, names unique, operands before results, stated
//! types equal to inferred ones, no recursion. A module that passed can be printed, evaluated and
//! lowered without further checks. A `main` is not required.
//! Cost: linear in the module's size.

use crate::consts::{Const, ConstData};
use crate::dims;
use crate::errors;
use crate::module::{ConstId, Func, FuncId, Module, Node, NodeId, ValueDef, ValueId};
use crate::ops;
use crate::types::{Dim, TensorType};
use pando_base::{Arena, DType, Error, Id, IdSet, Result, SideTable};
use rustc_hash::FxHashSet;

/// Deeper chains of calls are refused, so that walks over them may recurse.
pub const MAX_CALL_DEPTH: usize = 128;

/// Where a rule is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Const(ConstId),
    Func(FuncId),
    Node(FuncId, NodeId),
    Return(FuncId),
}

pub(crate) type Located<T> = Result<T, (Place, Error)>;

pub fn validate(module: &Module) -> Result<()> {
    locate(module).map_err(|(place, error)| error.context(describe(module, place)))
}

/// As [`validate`], with the place for a caller that knows positions in a text.
pub(crate) fn locate(module: &Module) -> Located<()> {
    check_consts(module)?;
    check_unique_names(module)?;
    for (id, func) in module.funcs.iter() {
        check_structure(module, id, func)?;
    }
    order(module)?;
    for (id, func) in module.funcs.iter() {
        check_types(module, id, func)?;
    }
    Ok(())
}

/// A place as a person finds it.
fn describe(module: &Module, place: Place) -> String {
    let name = |func: FuncId| &module.funcs[func].name;
    match place {
        Place::Const(id) => format!("constant @{}", module.consts[id].name),
        Place::Func(func) => format!("func @{}", name(func)),
        Place::Node(func, node) => describe_node(&module.funcs[func], node),
        Place::Return(func) => format!("func @{}, return", name(func)),
    }
}

/// `func @main, n3 (%y = dot)`.
pub(crate) fn describe_node(func: &Func, node: NodeId) -> String {
    let Node { op, results, .. } = &func.nodes[node];
    let names: Vec<String> = results.iter().map(|&value| value_name(func, value)).collect();
    format!("func @{}, {node} ({} = {op})", func.name, names.join(", "))
}

fn value_name(func: &Func, value: ValueId) -> String {
    match func.values.get(value) {
        Some(found) if !found.name.is_empty() => format!("%{}", found.name),
        _ => value.to_string(),
    }
}

/// Letters, digits, `_` and single `.`s inside: what the text format reads as one word.
pub(crate) fn is_word(name: &str) -> bool {
    let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'.');
    plain && !name.is_empty() && !name.contains("..") && !name.ends_with('.')
}

pub(crate) fn is_value_name(name: &str) -> bool {
    is_word(name) && !name.bytes().all(|b| b.is_ascii_digit())
}

fn is_dim_name(name: &str) -> bool {
    let starts_well = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    is_word(name) && starts_well && DType::from_name(name).is_none()
}

fn check_consts(module: &Module) -> Located<()> {
    module
        .consts
        .iter()
        .try_for_each(|(id, constant)| check_const(constant).map_err(|error| (Place::Const(id), error)))
}

fn check_const(constant: &Const) -> Result<()> {
    let Const { name, dtype, shape, data } = constant;
    if !is_word(name) {
        return Err(errors::bad_name("constant", name));
    }
    check_value_type(&constant.ty())?;
    match data {
        ConstData::Dense(tensor) if tensor.dtype() != *dtype || tensor.shape() != shape => {
            Err(errors::wrong_const_data(name, format!("its data is not {dtype}{shape}")))
        }
        _ => Ok(()),
    }
}

fn check_unique_names(module: &Module) -> Located<()> {
    let mut seen = FxHashSet::default();
    for (id, constant) in module.consts.iter() {
        if !seen.insert(constant.name.as_str()) {
            return Err((Place::Const(id), errors::duplicate_name("constant", &constant.name)));
        }
    }
    seen.clear();
    for (id, func) in module.funcs.iter() {
        if !is_word(&func.name) {
            return Err((Place::Func(id), errors::bad_name("function", &func.name)));
        }
        if !seen.insert(func.name.as_str()) {
            return Err((Place::Func(id), errors::duplicate_name("function", &func.name)));
        }
    }
    Ok(())
}

/// Ids, definitions and names: everything inference relies on.
fn check_structure(module: &Module, id: FuncId, func: &Func) -> Located<()> {
    let here = |error| (Place::Func(id), error);
    let mut names = FxHashSet::default();
    let mut defined = IdSet::new();
    for (position, &param) in func.params.iter().enumerate() {
        define(func, param, ValueDef::Param(position as u32), &mut defined, &mut names).map_err(here)?;
    }
    for (node_id, node) in func.nodes.iter() {
        let here = |error| (Place::Node(id, node_id), error);
        check_operands(func, node, &defined).map_err(here)?;
        check_func_ids(module, node).map_err(here)?;
        for (position, &result) in node.results.iter().enumerate() {
            let def = ValueDef::Node(node_id, position as u32);
            define(func, result, def, &mut defined, &mut names).map_err(here)?;
        }
    }
    if let Some(stray) = func.values.ids().find(|&value| !defined.contains(value)) {
        return Err(here(errors::wrong_definition(value_name(func, stray))));
    }
    let missing = func.results.iter().find(|&&value| !defined.contains(value));
    missing.map_or(Ok(()), |&value| Err((Place::Return(id), errors::unknown_id("the value", value))))
}

fn check_operands(func: &Func, node: &Node, defined: &IdSet<ValueId>) -> Result<()> {
    for &operand in &node.operands {
        if !func.values.contains(operand) {
            return Err(errors::unknown_id("the value", operand));
        }
        if !defined.contains(operand) {
            return Err(errors::used_before_defined(value_name(func, operand)));
        }
    }
    Ok(())
}

fn check_func_ids(module: &Module, node: &Node) -> Result<()> {
    let funcs = node.op.funcs();
    let missing = funcs.iter().find(|&&func| !module.funcs.contains(func));
    missing.map_or(Ok(()), |func| Err(errors::unknown_id("the function", func)))
}

fn define<'a>(
    func: &'a Func,
    value: ValueId,
    def: ValueDef,
    defined: &mut IdSet<ValueId>,
    names: &mut FxHashSet<&'a str>,
) -> Result<()> {
    let Some(found) = func.values.get(value) else { return Err(errors::unknown_id("the value", value)) };
    if found.def != def || !defined.insert(value) {
        return Err(errors::wrong_definition(value_name(func, value)));
    }
    if !found.name.is_empty() && !is_value_name(&found.name) {
        return Err(errors::bad_name("value", &found.name));
    }
    if !found.name.is_empty() && !names.insert(&found.name) {
        return Err(errors::duplicate_name("value", &found.name));
    }
    check_value_type(&found.ty)
}

fn check_value_type(ty: &TensorType) -> Result<()> {
    check_dim_names(&ty.dims)?;
    dims::check_size(&ty.dims).ok_or_else(|| errors::too_large(format!("a value of type {ty}")))
}

fn check_dim_names(dims: &[Dim]) -> Result<()> {
    let bad = dims.iter().find_map(|dim| match dim {
        Dim::Named(name) if !is_dim_name(name) => Some(name),
        _ => None,
    });
    bad.map_or(Ok(()), |name| Err(errors::bad_name("dimension", name)))
}

fn check_types(module: &Module, id: FuncId, func: &Func) -> Located<()> {
    func.nodes.iter().try_for_each(|(node_id, node)| {
        check_node_types(module, func, node).map_err(|error| (Place::Node(id, node_id), error))
    })
}

fn check_node_types(module: &Module, func: &Func, node: &Node) -> Result<()> {
    check_dim_names(node.op.dims())?;
    let inferred = ops::infer(&node.op, &func.operand_types(&node.operands), module)?;
    if inferred.len() != node.results.len() {
        return Err(errors::wrong_result_count(node.op.name(), node.results.len(), inferred.len()));
    }
    for (&result, ty) in node.results.iter().zip(&inferred) {
        if func.ty(result) != ty {
            return Err(errors::wrong_result_type(value_name(func, result), func.ty(result), ty));
        }
    }
    Ok(())
}

/// All functions, callees before their callers; an error if a function reaches itself.
pub fn call_order(module: &Module) -> Result<Vec<FuncId>> {
    order(module).map_err(|(_, error)| error)
}

/// Depth-first with its own stack. `depth` is 0 while unknown, then the length of the longest chain of
/// calls that starts at the function.
fn order(module: &Module) -> Located<Vec<FuncId>> {
    let mut depth: SideTable<FuncId, usize> = SideTable::default();
    let mut order = Vec::with_capacity(module.funcs.len());
    let callees = callees(&module.funcs);
    for root in module.funcs.ids() {
        let mut stack = vec![(root, 0)];
        let mut open = IdSet::from_iter([root]);
        while let Some((func, next)) = stack.pop() {
            if depth[func] > 0 {
                continue;
            }
            let Some(&callee) = callees[func.index()].get(next) else {
                open.remove(func);
                depth[func] = 1 + callees[func.index()].iter().map(|&f| depth[f]).max().unwrap_or(0);
                order.push(func);
                check_depth(module, func, depth[func])?;
                continue;
            };
            stack.push((func, next + 1));
            if depth[callee] == 0 {
                if !open.insert(callee) {
                    let error = errors::recursion(&module.funcs[callee].name);
                    return Err((Place::Func(callee), error));
                }
                stack.push((callee, 0));
            }
        }
    }
    Ok(order)
}

fn callees(funcs: &Arena<FuncId, Func>) -> Vec<Vec<FuncId>> {
    funcs.values().map(|func| func.nodes.values().flat_map(|node| node.op.funcs()).collect()).collect()
}

fn check_depth(module: &Module, func: FuncId, depth: usize) -> Located<()> {
    match depth > MAX_CALL_DEPTH {
        true => Err((Place::Func(func), errors::calls_too_deep(&module.funcs[func].name, MAX_CALL_DEPTH))),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Op;
    use pando_base::UnaryFn;
    use smallvec::smallvec;

    /// A function `neg(neg(x))`, broken by `breaker`.
    fn check(breaker: impl FnOnce(&mut Module), expect: &str) {
        let ty = TensorType::new(DType::F32, [2u64]);
        let mut func = Func::new("main");
        let mut value = func.push_param("x", ty.clone());
        for _ in 0..2 {
            let node = func.push_node(Op::Unary(UnaryFn::Neg), [value], [ty.clone()]);
            value = func.nodes[node].results[0];
        }
        func.results = vec![value];
        let mut module = Module::default();
        module.funcs.push(func);
        validate(&module).expect("valid before it is broken");
        breaker(&mut module);
        let error = validate(&module).expect_err(expect).to_string();
        assert_eq!(error, expect);
    }

    fn main(module: &mut Module) -> &mut Func {
        &mut module.funcs[FuncId::from_index(0)]
    }

    fn value(index: usize) -> ValueId {
        ValueId::from_index(index)
    }

    #[test]
    fn broken_modules() {
        let first = NodeId::from_index(0);
        check(
            |m| main(m).nodes[first].operands = smallvec![value(2)],
            "func @main, n0 (%1 = neg): %2 is used before it is defined; move its definition up",
        );
        check(
            |m| main(m).nodes[first].operands = smallvec![value(9)],
            "func @main, n0 (%1 = neg): the value %9 does not exist",
        );
        check(
            |m| main(m).nodes[first].results = smallvec![value(0)],
            "func @main, n0 (%x = neg): %x does not point back to the place that defines it",
        );
        check(
            |m| main(m).values[value(1)].ty = TensorType::scalar(DType::F32),
            "func @main, n0 (%1 = neg): %1 is stated as f32[] but is f32[2]",
        );
        check(|m| main(m).results = vec![value(7)], "func @main, return: the value %7 does not exist");
        check(
            |m| main(m).nodes[first].op = Op::Call(FuncId::from_index(4)),
            "func @main, n0 (%1 = neg): the function @f4 does not exist".replace("neg", "call").as_str(),
        );
        check(
            |m| main(m).nodes[first].op = Op::Call(FuncId::from_index(0)),
            "func @main: @main calls itself, directly or through others; use while or repeat instead",
        );
        check(
            |m| main(m).values[value(1)].name = "x".into(),
            "func @main, n0 (%x = neg): the value name 'x' is used twice; names are unique",
        );
        let stray = "func @main: %3 does not point back to the place that defines it";
        check(
            |m| {
                let copy = main(m).values[value(2)].clone();
                main(m).values.push(copy);
            },
            stray,
        );
    }

    #[test]
    fn names() {
        for name in ["a", "a.1", "_x", "0a"] {
            assert!(is_value_name(name), "{name}");
        }
        for name in ["", "1", "a..b", "a.", "a b", "%a", "é"] {
            assert!(!is_value_name(name), "{name}");
        }
        assert!(is_dim_name("N.plus.3") && !is_dim_name("f32") && !is_dim_name("3N"));
    }
}
