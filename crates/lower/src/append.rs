//! A node at the end of a function that is being written.

use pando_graph::{Func, Module, Op, ValueId, infer};

/// Appends an operation whose operands suit it and that has one result; returns that.
pub fn append(module: &Module, target: &mut Func, op: Op, operands: &[ValueId]) -> ValueId {
    let types = infer(&op, &target.operand_types(operands), module);
    let types = types.expect("the parts of a valid operation are valid");
    let node = target.push_node(op, operands.iter().copied(), types);
    target.nodes[node].results[0]
}
