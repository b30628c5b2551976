//! How much work a model is, whatever machine does it.

use pando_graph::{Func, Module, Node, Op, ValueId};

/// Floating-point operations of one run of an inlined module: two per multiply–add, one per element of an
/// elementwise result or reduced operand, none for movement.
pub fn model_flops(module: &Module) -> u64 {
    let funcs = module.funcs.values();
    funcs.flat_map(|func| func.nodes.values().map(|node| node_flops(func, node))).fold(0, u64::saturating_add)
}

fn node_flops(func: &Func, node: &Node) -> u64 {
    let elements =
        |value: ValueId| func.ty(value).shape().and_then(|s| s.checked_num_elements()).unwrap_or(0);
    let out = elements(node.results[0]);
    let size = |value: ValueId, dim: usize| func.ty(value).dims[dim].known().unwrap_or(0);
    match &node.op {
        Op::Unary(_) | Op::Binary(_) | Op::Compare(_) | Op::Select => out,
        Op::Reduce { .. } | Op::Scan(_) => elements(node.operands[0]),
        Op::Scatter { combine: Some(_), .. } => elements(node.operands[2]),
        Op::ReduceWindow(window) => {
            window.window.iter().fold(out, |product, &size| product.saturating_mul(size))
        }
        Op::Dot(dot) => {
            let summed: u64 = dot.contract.iter().map(|&(dim, _)| size(node.operands[0], dim)).product();
            out.saturating_mul(summed).saturating_mul(2)
        }
        Op::Conv(_) => {
            let summed = elements(node.operands[1]) / size(node.operands[1], 0).max(1);
            out.saturating_mul(summed).saturating_mul(2)
        }
        _ => 0,
    }
}
