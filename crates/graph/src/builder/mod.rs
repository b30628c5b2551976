//! Builds modules one op at a time. On insertion an op is simplified where that changes no bit of the
//! result (`simplify.rs`), computed at once if its operands are small constants, and shared with an equal
//! op that stands already. Finishing a function drops what its results do not need.
//! `helpers.rs` has a method per op, `composites.rs` softmax and its like, `batch_norm.rs` one with several results,
//! `recurrent.rs` LSTM and its like, `cone.rs` values before their
//! function is finished, `rebuild.rs` runs a whole module through a builder, `order.rs` exchanges nodes,
//! `standard.rs` recognises composites that were built elsewhere.

mod batch_norm;
mod composites;
mod cone;
mod helpers;
mod order;
mod rebuild;
mod recurrent;
mod rounding;
mod simplify;
mod sparse;
mod standard;
#[cfg(test)]
mod tests;

pub(crate) use rebuild::Map;
pub use rebuild::rebuild;
pub use recurrent::{Cell, Layer};
pub use rounding::is_stochastic_rounding;
pub use sparse::{Buckets, Pattern, is_sparse_matmul};
pub(crate) use standard::is_built_by;
pub use standard::same_body;

use crate::consts::{Const, ConstData};
use crate::eval;
use crate::grad::{GradientFunc, GradientKey};
use crate::module::{ConstId, Func, FuncId, Module, NodeId, ValueDef, ValueId};
use crate::op::Op;
use crate::ops;
use crate::types::TensorType;
use pando_base::{Arena, DType, IdSet, Result, Shape, SideTable, Tensor};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

/// Operands and results of at most this many elements are computed while building.
const MAX_FOLDED_ELEMENTS: u64 = 1024;

/// A module under construction. Functions nest: a composite's body is built while its caller is.
/// Value ids belong to the innermost function that has begun and not ended.
#[derive(Default)]
pub struct Builder {
    module: Module,
    frames: Vec<Frame>,
    func_names: FxHashSet<String>,
    const_names: FxHashSet<String>,
    /// Constants that nothing is computed from while building; see [`Builder::parameter`].
    parameters: IdSet<ConstId>,
    /// Small dense constants by type and bits.
    dense: FxHashMap<(DType, Shape, Vec<u8>), ConstId>,
    /// Bodies of composites by name, attributes and argument types.
    composites: FxHashMap<(String, Vec<TensorType>), FuncId>,
    /// Name and key of each of them.
    composite_keys: FxHashMap<FuncId, (String, String)>,
    /// See `grad/control.rs`.
    pub(crate) gradient_funcs: FxHashMap<GradientKey, GradientFunc>,
}

#[derive(Default)]
struct Frame {
    func: Func,
    shared: FxHashMap<(Op, SmallVec<[ValueId; 3]>), NodeId>,
    value_names: FxHashSet<String>,
    /// A node may stand behind its uses; see `order.rs`.
    disordered: bool,
}

impl Builder {
    pub fn new() -> Self {
        Builder::default()
    }

    /// Starts a function; what follows goes there until [`Builder::end`].
    ///
    /// # Panics
    /// If the name is taken: see [`Builder::unique_func_name`].
    pub fn begin(&mut self, name: &str) {
        self.begin_func(name, None);
    }

    /// Starts the body of a composite; see [`Builder::begin`].
    pub fn begin_func(&mut self, name: &str, composite: Option<String>) {
        assert!(self.func_names.insert(name.into()), "the function name @{name} is taken");
        let func = Func { composite, ..Func::new(name) };
        self.frames.push(Frame { func, ..Frame::default() });
    }

    /// A function name that is not taken: `base`, or `base_1`, `base_2`, …
    pub fn unique_func_name(&self, base: &str) -> String {
        unique(&self.func_names, base)
    }

    pub fn param(&mut self, name: &str, ty: TensorType) -> ValueId {
        self.frame().value_names.insert(name.into());
        self.frame().func.push_param(name, ty)
    }

    /// Ends the innermost function. Nodes that its results do not need are dropped.
    pub fn end(&mut self, results: &[ValueId]) -> FuncId {
        let mut frame = self.frames.pop().expect("end follows begin");
        frame.func.results = results.to_vec();
        self.module.funcs.push(pruned(&frame.func))
    }

    /// Ends the innermost function without keeping it.
    pub fn abandon(&mut self) {
        self.take();
    }

    /// Ends the innermost function, which becomes no part of the module.
    pub(crate) fn take(&mut self) -> Func {
        let frame = self.frames.pop().expect("take follows begin");
        self.func_names.remove(&frame.func.name);
        frame.func
    }

    /// The module, without constants that nothing uses.
    ///
    /// # Panics
    /// If a function has begun and not ended.
    pub fn finish(self) -> Module {
        assert!(self.frames.is_empty(), "finish follows the end of every function");
        without_unused_consts(self.module)
    }

    /// What has been built so far.
    pub fn module(&self) -> &Module {
        &self.module
    }

    pub fn ty(&self, value: ValueId) -> &TensorType {
        self.func().ty(value)
    }

    /// Whether the innermost function has this value: for callers who keep ids as plain numbers.
    pub fn has_value(&self, value: ValueId) -> bool {
        self.frames.last().is_some_and(|frame| frame.func.values.contains(value))
    }

    /// The position of a parameter of the innermost function.
    pub fn param_position(&self, value: ValueId) -> Option<usize> {
        match self.func().values[value].def {
            ValueDef::Param(position) => Some(position as usize),
            ValueDef::Node(..) => None,
        }
    }

    /// Names a value, unless it has a name, another value has this one, or it is empty.
    pub fn name(&mut self, value: ValueId, name: &str) {
        let frame = self.frame();
        if !name.is_empty()
            && frame.func.values[value].name.is_empty()
            && frame.value_names.insert(name.into())
        {
            frame.func.values[value].name = name.into();
        }
    }

    /// Inserts an op; the error is a broken constraint of it.
    pub fn insert(&mut self, op: Op, operands: &[ValueId]) -> Result<SmallVec<[ValueId; 1]>> {
        let types = ops::infer(&op, &self.func().operand_types(operands), &self.module)?;
        if let Some(values) = simplify::simplify(self, &op, operands, &types)? {
            return Ok(values);
        }
        if let Some(tensors) = self.fold(&op, operands, &types) {
            return Ok(tensors.into_iter().map(|tensor| self.constant(tensor)).collect());
        }
        Ok(self.share(op, operands, types))
    }

    /// As [`Builder::insert`], for an op with one result.
    pub fn op(&mut self, op: Op, operands: &[ValueId]) -> Result<ValueId> {
        self.insert(op, operands).map(|results| results[0])
    }

    /// The results of an equal node, or of a new one.
    fn share(&mut self, op: Op, operands: &[ValueId], types: Vec<TensorType>) -> SmallVec<[ValueId; 1]> {
        let frame = self.frame();
        let key = (op, SmallVec::from_slice(operands));
        let node = match frame.shared.get(&key) {
            Some(&node) => node,
            None => {
                let node = frame.func.push_node(key.0.clone(), operands.iter().copied(), types);
                frame.shared.insert(key, node);
                node
            }
        };
        frame.func.nodes[node].results.clone()
    }

    fn fold(&self, op: &Op, operands: &[ValueId], types: &[TensorType]) -> Option<Vec<Tensor>> {
        let is_source = matches!(op, Op::Constant(_) | Op::Iota { .. } | Op::Random { .. });
        if is_source || operands.is_empty() || !op.funcs().is_empty() || self.dequantises(op, operands) {
            return None;
        }
        let shapes: Vec<Shape> = types.iter().map(|ty| ty.shape().filter(is_small)).collect::<Option<_>>()?;
        let tensors: Vec<Tensor> = operands.iter().map(|&value| self.known(value)).collect::<Option<_>>()?;
        Some(eval::apply(op, &tensors.iter().collect::<Vec<_>>(), types[0].dtype, shapes, false))
    }

    /// Matrices and kernels of bytes stay bytes: whoever multiplies as such would not find them again.
    fn dequantises(&self, op: &Op, operands: &[ValueId]) -> bool {
        let is_bytes = |ty: &TensorType| matches!(ty.dtype, DType::I8 | DType::U8) && ty.rank() >= 2;
        matches!(op, Op::Convert(to) if to.is_float()) && is_bytes(self.ty(operands[0]))
    }

    /// The elements of a small constant, unless it is a parameter, or iota.
    pub fn known(&self, value: ValueId) -> Option<Tensor> {
        let shape = self.ty(value).shape().filter(is_small)?;
        match self.def(value)? {
            Op::Constant(id) if self.parameters.contains(*id) => None,
            Op::Constant(id) => Some(self.module.consts[*id].materialize()),
            op @ Op::Iota { dtype, .. } => {
                Some(eval::apply(op, &[], *dtype, vec![shape], false).swap_remove(0))
            }
            _ => None,
        }
    }

    /// The constant of the module that a value is.
    pub fn const_of(&self, value: ValueId) -> Option<ConstId> {
        match self.def(value)? {
            Op::Constant(id) => Some(*id),
            _ => None,
        }
    }

    /// The op that defines a value, if it is no parameter.
    fn def(&self, value: ValueId) -> Option<&Op> {
        self.def_node(value).map(|node| &self.func().nodes[node].op)
    }

    pub(crate) fn def_node(&self, value: ValueId) -> Option<NodeId> {
        match self.func().values[value].def {
            ValueDef::Node(node, _) => Some(node),
            ValueDef::Param(_) => None,
        }
    }

    /// A constant of the module as a value; equal small ones are shared.
    pub fn constant(&mut self, tensor: Tensor) -> ValueId {
        let key = (tensor.dtype(), tensor.shape().clone(), tensor.bytes().to_vec());
        let small = is_small(&key.1);
        if let Some(&id) = self.dense.get(&key).filter(|_| small) {
            return self.const_value(id);
        }
        let name = unique(&self.const_names, &format!("c{}", self.module.consts.len()));
        let id = self.add_const(Const::dense(&name, tensor));
        if small {
            self.dense.insert(key, id);
        }
        self.const_value(id)
    }

    /// A named constant, such as a weight, as a value.
    pub fn weight(&mut self, name: &str, dtype: DType, shape: Shape, data: ConstData) -> ValueId {
        let name = unique(&self.const_names, name);
        let id = self.add_const(Const { name, dtype, shape, data });
        self.const_value(id)
    }

    /// As [`Builder::weight`], for a weight that stays in the module under its name however small it is, so that
    /// others can find and change it.
    pub fn parameter(&mut self, name: &str, dtype: DType, shape: Shape, data: ConstData) -> ValueId {
        let value = self.weight(name, dtype, shape, data);
        self.parameters.insert(self.const_of(value).expect("a weight is a constant"));
        value
    }

    /// Adds a constant without a value of it.
    pub fn add_const(&mut self, constant: Const) -> ConstId {
        assert!(
            self.const_names.insert(constant.name.clone()),
            "the constant name @{} is taken",
            constant.name
        );
        self.module.consts.push(constant)
    }

    /// The value of a constant in the innermost function.
    pub fn const_value(&mut self, id: ConstId) -> ValueId {
        let ty = self.module.consts[id].ty();
        self.share(Op::Constant(id), &[], vec![ty])[0]
    }

    fn frame(&mut self) -> &mut Frame {
        self.frames.last_mut().expect("a function has begun")
    }

    /// What a composite of this builder was built with: its name and key.
    pub(crate) fn composite_key(&self, func: FuncId) -> Option<(String, String)> {
        self.composite_keys.get(&func).cloned()
    }

    pub(crate) fn func(&self) -> &Func {
        &self.frames.last().expect("a function has begun").func
    }
}

fn unique(taken: &FxHashSet<String>, base: &str) -> String {
    let numbered = (1..).map(|number| format!("{base}_{number}"));
    let mut names = std::iter::once(base.to_string()).chain(numbered);
    names.find(|name| !taken.contains(name)).expect("numbers do not run out")
}

fn is_small(shape: &Shape) -> bool {
    shape.num_elements() <= MAX_FOLDED_ELEMENTS
}

/// The function without nodes that its results do not need. All ops are pure, so none is needed for
/// another reason.
fn pruned(func: &Func) -> Func {
    let mut needed: IdSet<ValueId> = func.results.iter().copied().collect();
    for node in func.nodes.values().rev() {
        if node.results.iter().any(|&value| needed.contains(value)) {
            for &operand in &node.operands {
                needed.insert(operand);
            }
        }
    }
    let mut out = Func { name: func.name.clone(), composite: func.composite.clone(), ..Func::default() };
    let mut map: SideTable<ValueId, Option<ValueId>> = SideTable::with_default(None);
    for &param in &func.params {
        let value = &func.values[param];
        map[param] = Some(out.push_param(&value.name, value.ty.clone()));
    }
    let new = |map: &SideTable<ValueId, Option<ValueId>>, value| map[value].expect("operands are kept first");
    for node in func.nodes.values().filter(|node| node.results.iter().any(|&v| needed.contains(v))) {
        let operands: Vec<ValueId> = node.operands.iter().map(|&value| new(&map, value)).collect();
        let types = node.results.iter().map(|&value| func.ty(value).clone());
        let kept = out.push_node(node.op.clone(), operands, types);
        for (position, &old) in node.results.iter().enumerate() {
            let value = out.nodes[kept].results[position];
            out.values[value].name = func.values[old].name.clone();
            map[old] = Some(value);
        }
    }
    out.results = func.results.iter().map(|&value| new(&map, value)).collect();
    out
}

fn without_unused_consts(mut module: Module) -> Module {
    let nodes = || module.funcs.values().flat_map(|func| func.nodes.values());
    let used: IdSet<ConstId> =
        nodes().filter_map(|node| if let Op::Constant(id) = node.op { Some(id) } else { None }).collect();
    let mut map: SideTable<ConstId, Option<ConstId>> = SideTable::with_default(None);
    let mut consts = Arena::new();
    for id in used.iter() {
        map[id] = Some(consts.push(module.consts[id].clone()));
    }
    for (_, func) in module.funcs.iter_mut() {
        for (_, node) in func.nodes.iter_mut() {
            if let Op::Constant(id) = &mut node.op {
                *id = map[*id].expect("used constants are kept");
            }
        }
    }
    Module { consts, funcs: module.funcs }
}
