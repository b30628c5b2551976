//! How large a module is with every call replaced by its body. Calls that call in turn multiply, so a small
//! text can stand for more operations than there is memory; whoever inlines asks first.

use crate::errors;
use crate::module::{FuncId, Module};
use crate::validate::call_order;
use pando_base::{Result, SideTable};

/// Operations beyond which inlining is refused.
pub const MOST_OPERATIONS: u64 = 1_000_000;

/// An error if `main` of a valid module has more than [`MOST_OPERATIONS`] with its calls replaced.
pub fn check_expanded_size(module: &Module) -> Result<()> {
    let mut sizes: SideTable<FuncId, u64> = SideTable::default();
    for id in call_order(module)? {
        let func = &module.funcs[id];
        let called = func.nodes.values().flat_map(|node| node.op.funcs()).map(|callee| sizes[callee]);
        sizes[id] = called.fold(func.nodes.len() as u64, u64::saturating_add);
    }
    match module.main() {
        Some(main) if sizes[main] > MOST_OPERATIONS => Err(errors::too_many_operations(MOST_OPERATIONS)),
        _ => Ok(()),
    }
}
