//! Ops without a kernel of their own: the reference evaluator runs them. Right, and slow: every element is
//! boxed in f64 or i128, and results are allocated at each run. What goes here: all arithmetic on 8-bit
//! floats, and the rare ops that `plan/lower.rs` names.

#![allow(unsafe_code)]

use super::Step;
use crate::exec::Run;
use crate::flat::FlatType;
use pando_base::{Result, Tensor};
use pando_graph::{Func, FuncId, Module, Op, TensorType, eval, known_dims};

pub struct Fallback {
    module: Module,
    func: FuncId,
    pub name: &'static str,
}

impl Fallback {
    /// A module of the one op.
    pub fn new(op: &Op, operands: &[&FlatType], results: &[&FlatType]) -> Fallback {
        let ty = |ty: &FlatType| {
            let sizes: Vec<u64> = ty.sizes.iter().map(|&size| size as u64).collect();
            TensorType { dtype: ty.dtype, dims: known_dims(&sizes) }
        };
        let mut func = Func::new("main");
        let params: Vec<_> = operands.iter().map(|operand| func.push_param("", ty(operand))).collect();
        let node = func.push_node(op.clone(), params, results.iter().map(|result| ty(result)));
        func.results = func.nodes[node].results.to_vec();
        let mut module = Module::default();
        let func = module.funcs.push(func);
        Fallback { module, func, name: op.name() }
    }
}

pub fn run(fallback: &Fallback, step: &Step, run: &mut Run) -> Result<()> {
    let tensor = |view: &crate::view::View| {
        let shape: Vec<u64> = view.sizes.iter().map(|&size| size as u64).collect();
        // SAFETY: operands of a fallback are dense, and nothing runs beside it.
        Tensor::from_bytes(view.dtype, shape, unsafe { run.memory.bytes(view) })
    };
    let args: Vec<Tensor> = step.inputs.iter().map(tensor).collect::<Result<_>>()?;
    for (result, view) in eval(&fallback.module, fallback.func, &args)?.iter().zip(&step.outputs) {
        // SAFETY: results have their own buffers, and nothing runs beside this step.
        unsafe { run.memory.bytes_mut(view) }.copy_from_slice(result.bytes());
    }
    Ok(())
}
