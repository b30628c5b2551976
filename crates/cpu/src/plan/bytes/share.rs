//! Dequantised values that several read: each gets its own, since that is cheaper than a value of f32 in memory, which has
//! four times the bytes of its codes.

use super::known::Known;
use crate::flat::{Flat, FlatNode, ValueIndex, Work};
use pando_graph::Op;
use rustc_hash::FxHashSet;
use std::sync::Arc;

pub fn reals_for_each(mut flat: Flat) -> Flat {
    // For each node, its operands that get copies, and the nodes to copy, first to last.
    let copies: Vec<Vec<(usize, Vec<usize>)>> = {
        let known = Known::of(&flat);
        let mut read = FxHashSet::default();
        let of_node = |node: &FlatNode| {
            let operands = node.operands.iter().enumerate();
            let again = operands.filter(|&(_, &value)| known.users[value].len() > 1 && !read.insert(value));
            again.filter_map(|(position, &value)| Some((position, nodes_of(&known, value)?))).collect()
        };
        flat.nodes.iter().map(of_node).collect()
    };
    if copies.iter().all(Vec::is_empty) {
        return flat;
    }
    let old = std::mem::take(&mut flat.nodes);
    // Elementwise ops, by their nodes.
    let op = |node: &FlatNode| match &node.work {
        Work::Op(op) => Some((op.clone(), node.operands.clone(), node.results[0])),
        _ => None,
    };
    let ops: Vec<Option<Elementwise>> = old.iter().map(op).collect();
    for (mut node, copies) in old.into_iter().zip(copies) {
        for (position, nodes) in copies {
            node.operands[position] = copied(&mut flat, &ops, &nodes, &node.name);
        }
        flat.nodes.push(node);
    }
    flat
}

/// The nodes between codes and their real.
fn nodes_of(known: &Known, value: ValueIndex) -> Option<Vec<usize>> {
    let codes = known.real(value)?.codes;
    let (mut value, mut nodes) = (value, Vec::new());
    while value != codes {
        let node = known.makers[value]?;
        nodes.insert(0, node);
        value = *known.flat.nodes[node].operands.iter().find(|&&operand| !known.is_constant(operand))?;
    }
    Some(nodes)
}

type Elementwise = (Op, Vec<ValueIndex>, ValueIndex);

fn copied(flat: &mut Flat, ops: &[Option<Elementwise>], nodes: &[usize], name: &Arc<str>) -> ValueIndex {
    let mut last: Option<(ValueIndex, ValueIndex)> = None;
    for (op, operands, result) in nodes.iter().filter_map(|&node| ops[node].as_ref()) {
        let made = |&operand: &ValueIndex| match last {
            Some((old, new)) if old == operand => new,
            _ => operand,
        };
        let operands = operands.iter().map(made).collect();
        flat.values.push(flat.values[*result].clone());
        let new = flat.values.len() - 1;
        let name = name.clone();
        flat.nodes.push(FlatNode { work: Work::Op(op.clone()), operands, results: vec![new], name });
        last = Some((*result, new));
    }
    last.expect("reals are made of codes by nodes").1
}
