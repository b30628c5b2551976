//! Composites that stay in f32 while the model around them has half precision, as users keep normalisations. In: a
//! valid module. Out: the model in half precision with f32 in the bodies asked for, and conversions around their calls.

use crate::precision::{Precision, retype, with_precision};
use pando_base::{DType, Error, Result, SideTable};
use pando_graph::{Const, ConstData, ConstId, Func, FuncId, Module, Node, Op, TensorType, ValueId};
use std::collections::BTreeSet;

/// The model in a precision, but for the bodies of the composites with these names and all that they call, which are
/// f32. An error names what the model has where it has no such composite.
pub fn with_precision_but(module: Module, precision: Precision, in_f32: &[String]) -> Result<Module> {
    known(&module, in_f32)?;
    let wide = wide_functions(&module, in_f32);
    let mut bodies: Vec<(FuncId, Func, Vec<Const>)> = Vec::new();
    for &id in &wide {
        let func = module.funcs[id].clone();
        let constants = constants(&func).map(|id| module.consts[id].clone()).collect();
        bodies.push((id, func, constants));
    }
    let mut module = with_precision(module, precision);
    for (id, func, constants) in bodies {
        module.funcs[id] = in_full(&mut module, func, constants);
    }
    let ids: Vec<FuncId> = module.funcs.ids().filter(|id| !wide.contains(id)).collect();
    for id in ids {
        if calls(&module.funcs[id]).any(|callee| wide.contains(&callee)) {
            module.funcs[id] = with_conversions(&module.funcs[id], &wide);
        }
    }
    Ok(module)
}

fn known(module: &Module, names: &[String]) -> Result<()> {
    let composites: BTreeSet<&str> =
        module.funcs.iter().filter_map(|(_, f)| f.composite.as_deref()).collect();
    let Some(name) = names.iter().find(|name| !composites.contains(name.as_str())) else { return Ok(()) };
    let has = match composites.is_empty() {
        true => "none".into(),
        false => composites.into_iter().collect::<Vec<_>>().join(", "),
    };
    Err(Error::new(format!("no composite '{name}' to keep in f32; the model's composites: {has}")))
}

fn wide_functions(module: &Module, names: &[String]) -> BTreeSet<FuncId> {
    let is_meant = |func: &Func| func.composite.as_ref().is_some_and(|name| names.contains(name));
    let mut open: Vec<FuncId> =
        module.funcs.iter().filter(|(_, func)| is_meant(func)).map(|(id, _)| id).collect();
    let mut wide = BTreeSet::new();
    while let Some(id) = open.pop() {
        if wide.insert(id) {
            open.extend(calls(&module.funcs[id]));
        }
    }
    wide
}

/// Functions that a function names.
fn calls(func: &Func) -> impl Iterator<Item = FuncId> {
    func.nodes.values().flat_map(|node| node.op.funcs())
}

fn constants(func: &Func) -> impl Iterator<Item = ConstId> {
    func.nodes.values().filter_map(|node| match node.op {
        Op::Constant(id) => Some(id),
        _ => None,
    })
}

/// A body as it was, with constants of its own, in f32.
fn in_full(module: &mut Module, mut func: Func, constants: Vec<Const>) -> Func {
    retype(&mut func, widened);
    let mut constants = constants.into_iter();
    for (_, node) in func.nodes.iter_mut() {
        if let Op::Constant(id) = &mut node.op {
            let constant = constants.next().expect("a constant a node");
            *id = module.consts.push(wide_constant(constant));
        }
    }
    func
}

fn widened(dtype: &mut DType) {
    if *dtype == DType::F16 {
        *dtype = DType::F32;
    }
}

fn wide_constant(mut constant: Const) -> Const {
    if let (DType::F16, ConstData::Dense(tensor)) = (constant.dtype, &mut constant.data) {
        *tensor = tensor.rounded_to(DType::F32);
    }
    widened(&mut constant.dtype);
    if !constant.name.is_empty() {
        constant.name.push_str(".f32");
    }
    constant
}

/// A function in half precision whose calls of wide functions get f32 and return what they returned before.
fn with_conversions(func: &Func, wide: &BTreeSet<FuncId>) -> Func {
    let mut out = Func { composite: func.composite.clone(), ..Func::new(&func.name) };
    let mut same: SideTable<ValueId, Option<ValueId>> = SideTable::default();
    for &param in &func.params {
        let value = &func.values[param];
        same[param] = Some(out.push_param(&value.name, value.ty.clone()));
    }
    for node in func.nodes.values() {
        let operands = node.operands.iter().map(|&value| same[value].expect("operands come first")).collect();
        let results = match node.op {
            Op::Call(callee) if wide.contains(&callee) => wide_call(&mut out, func, node, operands),
            _ => push(&mut out, node.op.clone(), operands, node.results.iter().map(|&v| func.ty(v).clone())),
        };
        for (&old, &new) in node.results.iter().zip(&results) {
            out.values[new].name.clone_from(&func.values[old].name);
            same[old] = Some(new);
        }
    }
    out.results = func.results.iter().map(|&value| same[value].expect("results are values")).collect();
    out
}

fn wide_call(out: &mut Func, func: &Func, node: &Node, operands: Vec<ValueId>) -> Vec<ValueId> {
    let operands = operands.into_iter().map(|value| converted(out, value, DType::F16, DType::F32)).collect();
    let types = node.results.iter().map(|&value| {
        let mut ty = func.ty(value).clone();
        widened(&mut ty.dtype);
        ty
    });
    let results = push(out, node.op.clone(), operands, types.collect::<Vec<_>>());
    let narrow = |(&old, new): (&ValueId, ValueId)| match func.ty(old).dtype {
        DType::F16 => converted(out, new, DType::F32, DType::F16),
        _ => new,
    };
    node.results.iter().zip(results).map(narrow).collect()
}

fn converted(out: &mut Func, value: ValueId, from: DType, to: DType) -> ValueId {
    let ty = out.ty(value);
    if ty.dtype != from {
        return value;
    }
    let ty = TensorType { dtype: to, dims: ty.dims.clone() };
    push(out, Op::Convert(to), vec![value], [ty])[0]
}

fn push(
    out: &mut Func,
    op: Op,
    operands: Vec<ValueId>,
    types: impl IntoIterator<Item = TensorType>,
) -> Vec<ValueId> {
    let node = out.push_node(op, operands, types);
    out.nodes[node].results.to_vec()
}
