//! The printer. Values without a name are numbered in program order, so that printing what was parsed
//! from print gives the same text.

use super::attrs::{self, Attr};
use super::literal::{format_elements, format_f64};
use crate::consts::{Const, ConstData};
use crate::module::{Func, Module, Node, ValueId};
use crate::op::Op;
use crate::types::TensorType;
use pando_base::SideTable;
use std::fmt::Write;

/// The text of a valid module: constants, then functions, in arena order.
pub fn print(module: &Module) -> String {
    let mut text = String::new();
    for constant in module.consts.values() {
        line(&mut text, format_args!("{}", const_line(constant)));
    }
    for func in module.funcs.values() {
        if !text.is_empty() {
            text.push('\n');
        }
        print_func(module, func, &mut text);
    }
    text
}

fn line(text: &mut String, content: std::fmt::Arguments) {
    writeln!(text, "{content}").expect("writing to a String succeeds");
}

fn const_line(constant: &Const) -> String {
    let data = match &constant.data {
        ConstData::Dense(tensor) => format_elements(tensor),
        ConstData::Splat(value) => format!("splat({})", format_f64(*value)),
        ConstData::Normal { seed, mean, std } => {
            format!("normal(seed={seed}, mean={}, std={})", format_f64(*mean), format_f64(*std))
        }
        ConstData::Uniform { seed, low, high } => {
            format!("uniform(seed={seed}, low={}, high={})", format_f64(*low), format_f64(*high))
        }
    };
    format!("const @{}: {}{} = {data}", constant.name, constant.dtype, constant.shape)
}

fn print_func(module: &Module, func: &Func, text: &mut String) {
    let names = value_names(func);
    line(text, format_args!("{} {{", header(func, &names)));
    for node in func.nodes.values() {
        line(text, format_args!("  {}", node_line(module, func, node, &names)));
    }
    let results = value_list(&func.results, &names);
    line(text, format_args!("  return{}{results}", if results.is_empty() { "" } else { " " }));
    line(text, format_args!("}}"));
}

fn header(func: &Func, names: &SideTable<ValueId, String>) -> String {
    let composite = func.composite.as_ref().map_or_else(String::new, |name| {
        format!("composite \"{}\" ", name.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
    });
    let params: Vec<String> =
        func.params.iter().map(|&param| format!("%{}: {}", names[param], func.ty(param))).collect();
    let results = type_list(&func.result_types());
    let arrow = if results.is_empty() { "" } else { " -> " };
    format!("{composite}func @{}({}){arrow}{results}", func.name, params.join(", "))
}

fn node_line(module: &Module, func: &Func, node: &Node, names: &SideTable<ValueId, String>) -> String {
    let symbol = match node.op {
        Op::Constant(id) => format!(" @{}", module.consts[id].name),
        Op::Call(id) => format!(" @{}", module.funcs[id].name),
        _ => String::new(),
    };
    let operands = value_list(&node.operands, names);
    let space = if operands.is_empty() { "" } else { " " };
    let attributes: String = attrs::write(&node.op, module)
        .into_iter()
        .map(|(name, attr): (&str, Attr)| format!(" {name}={attr}"))
        .collect();
    format!(
        "{} = {}{symbol}{space}{operands}{attributes} : {}",
        value_list(&node.results, names),
        node.op.name(),
        type_list(&func.operand_types(&node.results))
    )
}

fn value_list(values: &[ValueId], names: &SideTable<ValueId, String>) -> String {
    values.iter().map(|&value| format!("%{}", names[value])).collect::<Vec<_>>().join(", ")
}

fn type_list(types: &[&TensorType]) -> String {
    types.iter().map(|ty| ty.to_string()).collect::<Vec<_>>().join(", ")
}

/// Own names, and numbers by position in program order for the others.
fn value_names(func: &Func) -> SideTable<ValueId, String> {
    let mut names = SideTable::default();
    let results = func.nodes.values().flat_map(|node| &node.results);
    for (number, &value) in func.params.iter().chain(results).enumerate() {
        let name = &func.values[value].name;
        names[value] = if name.is_empty() { number.to_string() } else { name.clone() };
    }
    names
}
