//! The reference evaluator: what a module means, obvious rather than fast. Floats are read as f64,
//! computed in f64 and rounded once to the result type; dot, conv, reductions, scans and scatters
//! accumulate in f64 and round once at the end. Integers are exact and wrap. It shares nothing with the
//! engines it judges.
//!
//! A wide evaluation does not round floats at all (`wide.rs`).
//!
//! `elementwise.rs`, `layout.rs`, `indexing.rs`, `products.rs`, `reduce.rs` and `sort.rs` hold the ops;
//! `scalar.rs` the functions of single elements.

mod elementwise;
mod indexing;
mod layout;
mod products;
mod reduce;
mod scalar;
mod sort;
mod source;
mod taps;
#[cfg(test)]
mod tests;
mod wide;

use crate::bind;
use crate::errors;
use crate::module::{ConstId, Func, FuncId, Module, Node, ValueId};
use crate::op::Op;
use crate::types::{TensorType, known_dims};
use crate::validate::describe_node;
use pando_base::{DType, Id, Result, Shape, Tensor};
use rustc_hash::FxHashMap;
use scalar::Domain;
pub use wide::{wide, wide_values};

/// Limits that turn runaway programs into errors.
#[derive(Clone, Debug)]
pub struct EvalOptions {
    /// Nodes executed in all, loops included.
    pub max_steps: u64,
    /// Bytes of live tensors and of an operation's working copies.
    pub max_bytes: u64,
}

impl Default for EvalOptions {
    fn default() -> Self {
        EvalOptions { max_steps: u64::MAX, max_bytes: 16 << 30 }
    }
}

/// The results of a function of a valid module. Named dimensions take their numbers from the arguments.
pub fn eval(module: &Module, func: FuncId, args: &[Tensor]) -> Result<Vec<Tensor>> {
    eval_with(module, func, args, &EvalOptions::default())
}

pub fn eval_with(
    module: &Module,
    func: FuncId,
    args: &[Tensor],
    options: &EvalOptions,
) -> Result<Vec<Tensor>> {
    run(module, func, args, options, false)
}

/// As [`eval`], but floats of every type keep the precision of f64. Float arguments and results are tensors that
/// [`wide`] makes: u64 with the bits of f64. Programs with u64 or bitcasts have no such meaning.
pub fn eval_wide(module: &Module, func: FuncId, args: &[Tensor]) -> Result<Vec<Tensor>> {
    run(module, func, args, &EvalOptions::default(), true)
}

fn run(
    module: &Module,
    func: FuncId,
    args: &[Tensor],
    options: &EvalOptions,
    wide: bool,
) -> Result<Vec<Tensor>> {
    let name = format!("func @{}", module.funcs[func].name);
    let bindings = bind::bindings_of(&module.funcs[func], args).map_err(|e| e.context(&name))?;
    let bound = if bindings.is_empty() { None } else { Some(bind::bind_dims(module, &bindings)?) };
    let module = bound.as_ref().unwrap_or(module);
    check_args(&module.funcs[func], args, wide).map_err(|error| error.context(&name))?;
    let mut run = Run { module, options, wide, steps: 0, live_bytes: 0, consts: FxHashMap::default() };
    run.func(func, args.to_vec())
}

fn check_args(func: &Func, args: &[Tensor], wide: bool) -> Result<()> {
    if args.len() != func.params.len() {
        return Err(errors::wrong_argument_count(func.params.len(), args.len()));
    }
    for (position, (arg, expected)) in args.iter().zip(func.param_types()).enumerate() {
        let found = TensorType { dtype: arg.dtype(), dims: known_dims(arg.shape()) };
        let expected = if wide { wide::held_as(expected) } else { expected.clone() };
        if found != expected {
            return Err(errors::wrong_argument(position, &expected, &found));
        }
    }
    Ok(())
}

struct Run<'a> {
    module: &'a Module,
    options: &'a EvalOptions,
    wide: bool,
    steps: u64,
    live_bytes: u64,
    consts: FxHashMap<ConstId, Tensor>,
}

impl Run<'_> {
    /// Recursion is bounded: a valid module's calls nest at most [`crate::validate::MAX_CALL_DEPTH`] deep.
    fn func(&mut self, id: FuncId, args: Vec<Tensor>) -> Result<Vec<Tensor>> {
        let func = &self.module.funcs[id];
        let mut frame: Vec<Option<Tensor>> = vec![None; func.values.len()];
        for (&param, arg) in func.params.iter().zip(args) {
            self.live_bytes += arg.num_bytes();
            frame[param.index()] = Some(arg);
        }
        let last_uses = last_uses(func);
        for (node_id, node) in func.nodes.iter() {
            let results =
                self.node(func, node, &frame).map_err(|error| error.context(describe_node(func, node_id)))?;
            for (&value, tensor) in node.results.iter().zip(results) {
                self.live_bytes += tensor.num_bytes();
                frame[value.index()] = Some(tensor);
            }
            for &dead in &last_uses[node_id.index()] {
                self.free(&mut frame[dead.index()]);
            }
        }
        let results = func.results.iter().map(|&value| read(&frame, value).clone()).collect();
        frame.iter_mut().for_each(|slot| self.free(slot));
        Ok(results)
    }

    fn free(&mut self, slot: &mut Option<Tensor>) {
        if let Some(tensor) = slot.take() {
            self.live_bytes -= tensor.num_bytes();
        }
    }

    fn node(&mut self, func: &Func, node: &Node, frame: &[Option<Tensor>]) -> Result<Vec<Tensor>> {
        self.count_step()?;
        let operands: Vec<&Tensor> = node.operands.iter().map(|&value| read(frame, value)).collect();
        match node.op {
            Op::Constant(id) => self.constant(id),
            Op::Call(callee) => self.func(callee, owned(&operands)),
            Op::If { then_func, else_func } => self.if_else(then_func, else_func, &operands),
            Op::While { cond, body } => self.while_loop(cond, body, &operands),
            Op::Repeat { count, body } => self.repeat(count, body, &operands),
            _ => self.primitive(func, node, &operands),
        }
    }

    fn constant(&mut self, id: ConstId) -> Result<Vec<Tensor>> {
        if !self.consts.contains_key(&id) {
            let constant = &self.module.consts[id];
            let bytes = constant.shape.num_elements().saturating_mul(constant.dtype.size_bytes());
            self.check_bytes(bytes.into())?;
            let tensor = constant.materialize();
            let wide = self.wide && constant.dtype.is_float();
            self.consts.insert(id, if wide { wide::widened(&tensor) } else { tensor });
        }
        Ok(vec![self.consts[&id].clone()])
    }

    fn if_else(&mut self, then: FuncId, other: FuncId, operands: &[&Tensor]) -> Result<Vec<Tensor>> {
        let taken = if operands[0].get_int(0) != 0 { then } else { other };
        self.func(taken, owned(&operands[1..]))
    }

    fn while_loop(&mut self, cond: FuncId, body: FuncId, operands: &[&Tensor]) -> Result<Vec<Tensor>> {
        let mut carried = owned(operands);
        loop {
            // Bodies may be empty: the loop itself counts, or the limit would never be met.
            self.count_step()?;
            if self.func(cond, carried.clone())?[0].get_int(0) == 0 {
                return Ok(carried);
            }
            carried = self.func(body, carried)?;
        }
    }

    fn repeat(&mut self, count: u64, body: FuncId, operands: &[&Tensor]) -> Result<Vec<Tensor>> {
        let mut carried = owned(operands);
        for iteration in 0..count {
            self.count_step()?;
            let counter = Tensor::from_ints(DType::I32, Shape::scalar(), &[iteration.into()]);
            carried = self.func(body, std::iter::once(counter).chain(carried).collect())?;
        }
        Ok(carried)
    }

    fn primitive(&mut self, func: &Func, node: &Node, operands: &[&Tensor]) -> Result<Vec<Tensor>> {
        let types = func.operand_types(&node.results);
        let shapes = types.iter().map(|ty| ty.require_shape()).collect::<Result<Vec<_>>>()?;
        let results = shapes.iter().map(Shape::num_elements);
        let operand_sizes = operands.iter().map(|operand| operand.num_elements());
        // Working copies hold 16 bytes per element at most.
        let bytes: u128 = results.chain(operand_sizes).map(|elements| u128::from(elements) * 16).sum();
        self.check_bytes(bytes)?;
        Ok(apply(&node.op, operands, types[0].dtype, shapes, self.wide))
    }

    fn count_step(&mut self) -> Result<()> {
        self.steps += 1;
        match self.steps > self.options.max_steps {
            true => Err(errors::too_many_steps(self.options.max_steps)),
            false => Ok(()),
        }
    }

    fn check_bytes(&self, more: u128) -> Result<()> {
        let needed = more + u128::from(self.live_bytes);
        match needed > self.options.max_bytes.into() {
            true => Err(errors::too_many_bytes(needed, self.options.max_bytes)),
            false => Ok(()),
        }
    }
}

fn read(frame: &[Option<Tensor>], value: ValueId) -> &Tensor {
    frame[value.index()].as_ref().expect("operands stand before their uses and live until the last one")
}

fn owned(tensors: &[&Tensor]) -> Vec<Tensor> {
    tensors.iter().map(|&tensor| tensor.clone()).collect()
}

/// For each node, the values that nothing needs after it.
fn last_uses(func: &Func) -> Vec<Vec<ValueId>> {
    let mut last = vec![None; func.values.len()];
    for (id, node) in func.nodes.iter() {
        for &value in node.operands.iter().chain(&node.results) {
            last[value.index()] = Some(id);
        }
    }
    func.results.iter().for_each(|&value| last[value.index()] = None);
    let mut dead = vec![Vec::new(); func.nodes.len()];
    for value in func.values.ids() {
        if let Some(node) = last[value.index()] {
            dead[node.index()].push(value);
        }
    }
    dead
}

/// The results of an op that needs no module: neither constants nor functions. `dtype` is the first
/// result's. Shapes are those that inference gave.
pub(crate) fn apply(
    op: &Op,
    operands: &[&Tensor],
    dtype: DType,
    mut shapes: Vec<Shape>,
    wide: bool,
) -> Vec<Tensor> {
    // Of the first operand; ops without one have the domain of their result.
    let first = operands.first().map_or(dtype, |operand| operand.dtype());
    let domain =
        Domain::of(if matches!(op, Op::Iota { .. } | Op::Random { .. }) { dtype } else { first }, wide);
    if let Op::Sort(sort) = op {
        return sort::sort(sort, domain, operands);
    }
    let shape = shapes.swap_remove(0);
    vec![match op {
        Op::Iota { axis, .. } => source::iota(domain, dtype, shape, *axis),
        Op::Random { distribution, .. } => source::random(domain, *distribution, dtype, shape, operands[0]),
        Op::Unary(func) => elementwise::unary(*func, domain, operands[0]),
        Op::Binary(func) => elementwise::binary(*func, domain, operands[0], operands[1]),
        Op::Compare(func) => elementwise::compare(*func, domain, operands[0], operands[1]),
        Op::Select => elementwise::select(operands),
        Op::Convert(dtype) => elementwise::convert(*dtype, domain, operands[0], wide),
        Op::Bitcast(dtype) => elementwise::bitcast(*dtype, operands[0]),
        Op::Reshape { .. } => operands[0].clone().reshaped(shape),
        Op::Transpose { perm } => layout::transpose(perm, operands[0], &shape),
        Op::Broadcast { axes, .. } => layout::broadcast(axes, operands[0], &shape),
        Op::Slice(slice) => layout::slice(slice, operands[0], &shape),
        Op::Pad(pad) => layout::pad(pad, operands[0], operands[1], &shape),
        Op::Concat { axis } => layout::concat(*axis, operands, &shape),
        Op::Reverse { axes } => layout::reverse(axes, operands[0]),
        Op::Gather { axis } => indexing::gather(*axis, operands[0], operands[1], &shape),
        Op::Scatter { axis, combine } => indexing::scatter(*axis, *combine, domain, operands),
        Op::Dot(dot) => products::dot(dot, domain, operands[0], operands[1], dtype, shape),
        Op::Conv(conv) => products::conv(conv, domain, operands[0], operands[1], dtype, shape),
        Op::Reduce { func, axes } => reduce::reduce(*func, axes, domain, operands[0], shape),
        Op::ReduceWindow(window) => reduce::reduce_window(window, domain, operands[0], shape),
        Op::Scan(scan) => reduce::scan(scan, domain, operands[0]),
        Op::Sort(_)
        | Op::Constant(_)
        | Op::Call(_)
        | Op::If { .. }
        | Op::While { .. }
        | Op::Repeat { .. } => {
            unreachable!("{op} is run by the caller")
        }
    }]
}
