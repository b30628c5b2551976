//! Before planning: calls are inlined, the model's precision is set, and everything that cannot be
//! lowered is found.

use crate::Options;
use crate::absorb::absorb;
use crate::arrange::arrange;
use crate::errors;
use crate::fold::folded;
use crate::residues::by_residues;
use crate::rewrite::{simpler, without_unused};
use crate::sparse::{Target, in_buckets};
use pando_base::{DType, Id, Result, SideTable};
use pando_graph::{
    Func, FuncId, Module, Node, Op, ReduceWindow, ValueDef, ValueId, check_expanded_size,
    extreme_window_gradient, is_stochastic_rounding,
};
use pando_machine::Machine;
use rustc_hash::FxHashMap;

/// A module whose first function is `main`, without calls, with operations in simpler terms, and with small constants folded: callees' nodes stand in their place. The functions
/// that branches and loops run follow, each of them without calls, too. Names of inlined values get the
/// callee's name before them.
pub fn inline_calls(module: &Module) -> Result<Module> {
    inlined(module, None)
}

/// As [`inline_calls`], but for calls of composites that a machine has kernels for.
pub fn prepare(module: &Module, machine: &Machine, options: &Options) -> Result<Module> {
    inlined(module, Some(Target { machine, options }))
}

fn inlined(module: &Module, goal: Option<Target>) -> Result<Module> {
    let main = module.main().ok_or_else(errors::no_main)?;
    check_expanded_size(module)?;
    let out = Module { consts: module.consts.clone(), ..Module::default() };
    let mut inliner = Inliner { module, goal, out, done: FxHashMap::default() };
    inliner.func(main);
    Ok(inliner.out)
}

struct Inliner<'a> {
    module: &'a Module,
    goal: Option<Target<'a>>,
    out: Module,
    /// Functions of the module that stand in `out` already.
    done: FxHashMap<FuncId, FuncId>,
}

impl Inliner<'_> {
    /// A function without calls. Recursion ends since a valid module's functions do not run themselves.
    fn func(&mut self, id: FuncId) -> FuncId {
        if let Some(&done) = self.done.get(&id) {
            return done;
        }
        let source = &self.module.funcs[id];
        let place = self.out.funcs.push(Func::new(&source.name));
        let mut target = Func::new(&source.name);
        let params = source.params.iter();
        let args: Vec<ValueId> =
            params.map(|&p| target.push_param(&source.values[p].name, source.ty(p).clone())).collect();
        target.results = self.inline_into(id, &args, "", &mut target);
        if self.goal.is_some() {
            target = without_unused(&absorb(&mut self.out, &without_unused(&target)));
            target = arrange(&self.out, &target);
        }
        self.out.funcs[place] = without_unused(&target);
        self.done.insert(id, place);
        place
    }

    /// Appends the nodes of `func` to `target` and returns its results' values there.
    fn inline_into(
        &mut self,
        func: FuncId,
        args: &[ValueId],
        prefix: &str,
        target: &mut Func,
    ) -> Vec<ValueId> {
        let source = &self.module.funcs[func];
        let mut map: SideTable<ValueId, Option<ValueId>> = SideTable::default();
        for (&param, &arg) in source.params.iter().zip(args) {
            map[param] = Some(arg);
        }
        for (id, node) in source.nodes.iter() {
            let operands: Vec<ValueId> =
                node.operands.iter().map(|&v| map[v].expect("operands come first")).collect();
            let results = match node.op {
                Op::Call(callee) => {
                    if let Some(result) = self.special_call(callee, node, &operands, target) {
                        keep_name(&source.values[node.results[0]].name, result, prefix, target);
                        map[node.results[0]] = Some(result);
                        continue;
                    }
                    let name = &source.values[node.results[0]].name;
                    let label =
                        if name.is_empty() { self.module.funcs[callee].name.clone() } else { name.clone() };
                    let unique = format!("{prefix}{label}.{id}.");
                    let before = target.values.len();
                    let results = self.inline_into(callee, &operands, &unique, target);
                    let new = node.results.iter().zip(&results).filter(|(_, new)| new.index() >= before);
                    new.for_each(|(&old, &new)| keep_name(&source.values[old].name, new, prefix, target));
                    results
                }
                _ => self.copy_node(source, node, operands, prefix, target),
            };
            for (&old, new) in node.results.iter().zip(results) {
                map[old] = Some(new);
            }
        }
        source.results.iter().map(|&v| map[v].expect("results are values of the function")).collect()
    }

    /// The result of a call that stays one.
    fn special_call(
        &mut self,
        callee: FuncId,
        node: &Node,
        operands: &[ValueId],
        target: &mut Func,
    ) -> Option<ValueId> {
        let source = &self.module.funcs[callee];
        let is_kept = || {
            is_stochastic_rounding(self.module, source)
                || extreme_window_gradient(self.module, source).is_some()
        };
        if self.goal.is_some() && is_kept() {
            let func = self.func(callee);
            self.out.funcs[func].composite = self.module.funcs[callee].composite.clone();
            let ty = self.out.funcs[func].ty(self.out.funcs[func].results[0]).clone();
            let new = target.push_node(Op::Call(func), operands.iter().copied(), [ty]);
            return Some(target.nodes[new].results[0]);
        }
        let goal = self.goal.as_ref()?;
        let (func, operands) = in_buckets(self.module, callee, node, operands, &mut self.out, target, goal)?;
        let result = self.out.funcs[func].results[0];
        let ty = self.out.funcs[func].ty(result).clone();
        let new = target.push_node(Op::Call(func), operands, [ty]);
        Some(target.nodes[new].results[0])
    }

    fn copy_node(
        &mut self,
        source: &Func,
        node: &Node,
        operands: Vec<ValueId>,
        prefix: &str,
        target: &mut Func,
    ) -> Vec<ValueId> {
        let known = folded(&mut self.out, &node.op, &operands, target);
        let machine = self.goal.as_ref().map(|goal| goal.machine);
        let known = known.or_else(|| by_residues(&self.out, node, &operands, target, machine?));
        if let Some(result) = known.or_else(|| simpler(&mut self.out, node, &operands, target)) {
            keep_name(&source.values[node.results[0]].name, result, prefix, target);
            return vec![result];
        }
        let types: Vec<_> = node.results.iter().map(|&v| source.ty(v).clone()).collect();
        let mut op = node.op.clone();
        op.funcs_mut().into_iter().for_each(|func| *func = self.func(*func));
        let new = target.push_node(op, operands, types);
        let results: Vec<ValueId> = target.nodes[new].results.to_vec();
        for (&old, &value) in node.results.iter().zip(&results) {
            keep_name(&source.values[old].name, value, prefix, target);
        }
        results
    }
}

/// What a caller calls the result of a call, it is called in its place: the body's own name says less.
fn keep_name(name: &str, value: ValueId, prefix: &str, target: &mut Func) {
    if !name.is_empty() {
        target.values[value].name = format!("{prefix}{name}");
    }
}

/// Tile programs hold no larger variables (rule T1).
const LARGEST_TENSOR: u64 = 1 << 40;

/// Fails with the list of all operations that have no lowering, and checks that sizes are numbers.
pub fn supported(module: &Module) -> Result<()> {
    let mut unsupported = Vec::new();
    for func in module.funcs.values() {
        let name = format!("@{}", func.name);
        for (id, value) in func.values.iter() {
            let shape = value.ty.require_shape().map_err(|e| e.context(&name))?;
            if shape.num_elements() > LARGEST_TENSOR {
                return Err(errors::too_many_elements(&name, &value_name(func, id)));
            }
            if shape.num_elements() == 0 {
                return Err(errors::no_elements(&name, &value_name(func, id)));
            }
        }
        unsupported.extend(func.nodes.values().filter_map(|node| {
            let reason = why_unsupported(func, node)?;
            Some(format!("{} ({}){reason}", node.op, value_name(func, node.results[0])))
        }));
    }
    if unsupported.is_empty() { Ok(()) } else { Err(errors::unsupported(&unsupported)) }
}

/// A value's name as printed, with its id if it has none.
pub fn value_name(func: &Func, value: ValueId) -> String {
    let name = &func.values[value].name;
    if name.is_empty() { value.to_string() } else { format!("%{name}") }
}

/// Nothing if the node can be lowered; otherwise the limit it meets, empty if there is no lowering at all.
fn why_unsupported(func: &Func, node: &Node) -> Option<String> {
    let limit = |unmet: bool, what: &str| unmet.then(|| format!(": {what}"));
    match &node.op {
        Op::Conv(_) | Op::Dot(_) => {
            limit(!matrix_type(func.ty(node.operands[0]).dtype), "bool has no product")
        }
        Op::ReduceWindow(window) => limit(!is_modest(window), "windows beyond 2^40 elements"),
        _ => None,
    }
}

/// Whether offsets of windows stay within what tile programs can say.
fn is_modest(window: &ReduceWindow) -> bool {
    let paddings = window.padding.iter().map(|&(low, _)| low.unsigned_abs());
    window.strides.iter().copied().chain(paddings).all(|size| size <= LARGEST_TENSOR)
}

fn matrix_type(dtype: DType) -> bool {
    dtype != DType::Bool
}

/// The number that all elements of a constant are, if they are, and a program can hold it as one.
pub fn constant_number(module: &Module, func: &Func, value: ValueId) -> Option<f64> {
    let ValueDef::Node(node, _) = func.values[value].def else { return None };
    let Op::Constant(id) = func.nodes[node].op else { return None };
    let constant = &module.consts[id];
    let number = match &constant.data {
        pando_graph::ConstData::Splat(value) => constant.dtype.round(*value),
        pando_graph::ConstData::Dense(tensor) => {
            let size = constant.dtype.size_bytes() as usize;
            let mut elements = tensor.bytes().chunks_exact(size);
            let first = elements.next()?;
            elements.all(|element| element == first).then(|| tensor.get_f64(0))?
        }
        _ => return None,
    };
    (constant.dtype.is_float() || number.abs() <= 2f64.powi(53)).then_some(number)
}

/// The value of a scalar (or one-element) constant.
pub fn constant_scalar(module: &Module, func: &Func, value: ValueId) -> Option<f64> {
    let ValueDef::Node(node, _) = func.values[value].def else { return None };
    let Op::Constant(id) = func.nodes[node].op else { return None };
    let constant = &module.consts[id];
    match &constant.data {
        pando_graph::ConstData::Splat(value) => Some(constant.dtype.round(*value)),
        pando_graph::ConstData::Dense(tensor) if tensor.num_elements() == 1 => Some(tensor.get_f64(0)),
        _ => None,
    }
}
