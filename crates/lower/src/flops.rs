//! How much work a model is, whatever machine does it.

use pando_graph::{Func, FuncId, Module, Node, Op, ValueId};

/// Floating-point operations of one run of an inlined module: two per multiply–add, one per element of an
/// elementwise result or reduced operand, none for movement. The longer side of a branch counts, a loop with
/// a condition as running once.
pub fn model_flops(module: &Module) -> u64 {
    module.funcs.values().next().map_or(0, |main| func_flops(module, main))
}

fn func_flops(module: &Module, func: &Func) -> u64 {
    func.nodes.values().map(|node| work(module, func, node)).fold(0, u64::saturating_add)
}

/// The operations of a node, those of the functions that it runs included.
pub(crate) fn work(module: &Module, func: &Func, node: &Node) -> u64 {
    let inner = |id: FuncId| func_flops(module, &module.funcs[id]);
    match node.op {
        Op::Repeat { count, body } => inner(body).saturating_mul(count),
        Op::Call(callee) => inner(callee),
        Op::If { then_func, else_func } => inner(then_func).max(inner(else_func)),
        Op::While { cond, body } => inner(cond).saturating_add(inner(body)),
        _ => node_flops(func, node),
    }
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
