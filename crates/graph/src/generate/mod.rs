//! Random valid programs with inputs, for property tests here and in every crate that transforms or runs
//! modules. Choices come from a finite byte source: equal bytes give equal programs, and an exhausted
//! source yields zeros, so shortening the bytes shrinks the program.
//!
//! `ops.rs` proposes one op at a time over the values that stand already.

mod ops;

use crate::consts::{Const, ConstData};
use crate::module::{Func, FuncId, Module, ValueId};
use crate::op::Op;
use crate::ops::infer;
use crate::types::{Dim, TensorType, known_dims};
use pando_base::{BinaryFn, CompareFn, DType, Tensor};

/// Families of ops, to leave out those a tested crate does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    Elementwise,
    /// convert, bitcast
    Cast,
    /// reshape, transpose, broadcast, reverse, slice, pad, concat
    Layout,
    /// gather, scatter
    Indexing,
    Dot,
    Conv,
    Reduce,
    /// reduce_window, scan
    Window,
    Sort,
    /// iota, random and constants that are rules
    Source,
    /// call, if, while, repeat
    Control,
}

impl Family {
    pub const ALL: [Family; 11] = [
        Family::Elementwise,
        Family::Cast,
        Family::Layout,
        Family::Indexing,
        Family::Dot,
        Family::Conv,
        Family::Reduce,
        Family::Window,
        Family::Sort,
        Family::Source,
        Family::Control,
    ];
}

#[derive(Clone, Debug)]
pub struct GenerateOptions {
    /// Drawn evenly; one that stands here twice is drawn twice as often.
    pub families: Vec<Family>,
    pub dtypes: Vec<DType>,
    /// Attempts to add a node to `main`.
    pub max_nodes: usize,
    /// Largest size of a dimension of parameters.
    pub max_dim: u64,
    pub max_rank: usize,
    /// Larger results are not proposed.
    pub max_elements: u64,
    /// Infinities, NaN and -0 among inputs and constants.
    pub special_values: bool,
    /// Give the first parameter's first dimension the name `N` (bound by the inputs).
    pub named_dims: bool,
}

impl Default for GenerateOptions {
    fn default() -> Self {
        GenerateOptions {
            families: [Family::ALL.as_slice(), &[Family::Elementwise; 3]].concat(),
            dtypes: vec![DType::F32, DType::F32, DType::F16, DType::I32, DType::BF16, DType::Bool, DType::U8],
            max_nodes: 16,
            max_dim: 4,
            max_rank: 4,
            max_elements: 512,
            special_values: true,
            named_dims: false,
        }
    }
}

/// A valid module and arguments of its `main`.
#[derive(Clone, Debug)]
pub struct Program {
    pub module: Module,
    pub inputs: Vec<Tensor>,
}

/// A finite source of choices.
pub struct Source<'a> {
    bytes: &'a [u8],
    pos: usize,
}

impl<'a> Source<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Source { bytes, pos: 0 }
    }

    /// Bytes for a seed, for tests that count seeds.
    pub fn seeded_bytes(seed: u64, length: usize) -> Vec<u8> {
        (0..length as u64).map(|index| crate::random::bits(seed, index) as u8).collect()
    }

    fn byte(&mut self) -> u8 {
        let byte = self.bytes.get(self.pos).copied().unwrap_or(0);
        self.pos += 1;
        byte
    }

    /// Below `limit`, which is at least 1.
    pub fn below(&mut self, limit: u64) -> u64 {
        let low = u64::from(self.byte());
        let value = if limit > 256 { low << 8 | u64::from(self.byte()) } else { low };
        value % limit.max(1)
    }

    pub fn range(&mut self, low: i64, high: i64) -> i64 {
        low + self.below((high - low + 1) as u64) as i64
    }

    pub fn chance(&mut self, one_in: u64) -> bool {
        self.below(one_in) == 1
    }

    pub fn pick<'b, T>(&mut self, items: &'b [T]) -> &'b T {
        &items[self.below(items.len() as u64) as usize]
    }
}

/// A program; always valid, always terminating, the same for the same bytes.
pub fn generate(source: &mut Source, options: &GenerateOptions) -> Program {
    let mut generator = Generator { source, options, module: Module::default() };
    let mut func = Func::new("main");
    let num_params = 1 + generator.source.below(3);
    for index in 0..num_params {
        let ty = generator.ty();
        func.push_param(&format!("p{index}"), ty);
    }
    let num_nodes = 1 + generator.source.below(options.max_nodes.max(1) as u64) as usize;
    generator.nodes(&mut func, num_nodes, true);
    func.results = generator.results(&func);
    let inputs = func.param_types().into_iter().map(|ty| generator.tensor(ty)).collect();
    generator.module.funcs.push(func);
    let mut module = generator.module;
    if options.named_dims {
        module = ops::with_named_dim(&module);
    }
    Program { module, inputs }
}

struct Generator<'a, 'b> {
    source: &'a mut Source<'b>,
    options: &'a GenerateOptions,
    module: Module,
}

impl Generator<'_, '_> {
    fn ty(&mut self) -> TensorType {
        let dtype = *self.source.pick(&self.options.dtypes);
        let rank = self.source.below(self.options.max_rank as u64 + 1) as usize;
        let sizes: Vec<u64> = (0..rank).map(|_| 1 + self.source.below(self.options.max_dim)).collect();
        TensorType { dtype, dims: known_dims(&sizes) }
    }

    fn nodes(&mut self, func: &mut Func, count: usize, control: bool) {
        for _ in 0..count {
            let family = *self.source.pick(&self.options.families);
            if family != Family::Control {
                self.propose(func, family);
            } else if control {
                self.control(func);
            }
        }
    }

    /// Inserts an op if inference accepts it and the result is small.
    fn insert(&mut self, func: &mut Func, op: Op, operands: &[ValueId]) -> Option<ValueId> {
        let types = infer(&op, &func.operand_types(operands), &self.module).ok()?;
        let small = |ty: &TensorType| {
            ty.shape().is_some_and(|shape| shape.num_elements() <= self.options.max_elements)
        };
        let known = types.iter().all(|ty| small(ty) && self.is_allowed(ty.dtype));
        known.then(|| {
            let node = func.push_node(op, operands.iter().copied(), types);
            func.nodes[node].results[0]
        })
    }

    /// Bool and i32 come out of comparisons and counters whatever the options; others only if asked for.
    fn is_allowed(&self, dtype: DType) -> bool {
        self.options.dtypes.contains(&dtype) || matches!(dtype, DType::Bool | DType::I32 | DType::U32)
    }

    /// A value, later ones more likely.
    fn value(&mut self, func: &Func) -> ValueId {
        let values: Vec<ValueId> = func.values.ids().collect();
        let a = self.source.below(values.len() as u64);
        let b = self.source.below(values.len() as u64);
        values[a.max(b) as usize]
    }

    fn value_where(&mut self, func: &Func, suits: impl Fn(&TensorType) -> bool) -> Option<ValueId> {
        let values: Vec<ValueId> = func.values.ids().filter(|&value| suits(func.ty(value))).collect();
        if values.is_empty() { None } else { Some(*self.source.pick(&values)) }
    }

    /// A value of exactly this type: an existing one, or a new constant.
    fn value_of(&mut self, func: &mut Func, ty: &TensorType) -> ValueId {
        let found = if self.source.chance(4) { None } else { self.value_where(func, |found| found == ty) };
        found.unwrap_or_else(|| self.constant(func, ty))
    }

    fn constant(&mut self, func: &mut Func, ty: &TensorType) -> ValueId {
        let rules = self.options.families.contains(&Family::Source) && ty.dtype.is_float();
        let data = match self.source.below(if rules { 6 } else { 4 }) {
            0 => return self.splat(func, ty),
            4 => ConstData::Normal { seed: self.source.below(99), mean: 0.0, std: 1.0 },
            5 => ConstData::Uniform { seed: self.source.below(99), low: -1.0, high: 1.0 },
            _ => ConstData::Dense(self.tensor(ty)),
        };
        self.constant_of(func, ty, data)
    }

    fn splat(&mut self, func: &mut Func, ty: &TensorType) -> ValueId {
        let value = *self.source.pick(&[0.0, 1.0, -0.0, -1.0, 2.0]);
        self.constant_of(func, ty, ConstData::Splat(value))
    }

    fn constant_of(&mut self, func: &mut Func, ty: &TensorType, data: ConstData) -> ValueId {
        let name = format!("k{}", self.module.consts.len());
        let shape = ty.shape().expect("generated types are known until the end");
        let id = self.module.consts.push(Const { name, dtype: ty.dtype, shape, data });
        let node = func.push_node(Op::Constant(id), [], [ty.clone()]);
        func.nodes[node].results[0]
    }

    /// Small numbers, so that exact types stay exact; sometimes the extremes.
    fn tensor(&mut self, ty: &TensorType) -> Tensor {
        let shape = ty.shape().expect("generated types are known until the end");
        let special = self.options.special_values;
        let mut element = || match self.source.below(64) {
            1 if special => f64::INFINITY,
            2 if special => f64::NAN,
            3..8 if special => -0.0,
            8 if special => 1e30,
            choice => (choice as f64 - 32.0) / 8.0,
        };
        let values: Vec<f64> = (0..shape.num_elements()).map(|_| element()).collect();
        Tensor::from_f64(ty.dtype, shape, &values)
    }

    /// One to three values, the last one among them.
    fn results(&mut self, func: &Func) -> Vec<ValueId> {
        let last = func.values.ids().next_back().expect("there is a parameter");
        let more = self.source.below(3);
        std::iter::once(last).chain((0..more).map(|_| self.value(func)).collect::<Vec<_>>()).collect()
    }

    /// A call, branch or loop over one to two values and a small body.
    fn control(&mut self, func: &mut Func) {
        let count = 1 + self.source.below(2);
        let carried: Vec<ValueId> = (0..count).map(|_| self.value(func)).collect();
        let types: Vec<TensorType> = carried.iter().map(|&value| func.ty(value).clone()).collect();
        match self.source.below(4) {
            0 => {
                let body = self.body("call", &[], &types);
                self.insert(func, Op::Call(body), &carried);
            }
            1 => {
                let then_func = self.body("then", &[], &types);
                let else_func = self.body("else", &[], &types);
                let condition = self.value_of(func, &TensorType::scalar(DType::Bool));
                let operands = [&[condition], carried.as_slice()].concat();
                self.insert(func, Op::If { then_func, else_func }, &operands);
            }
            2 => {
                let body = self.body("body", &[TensorType::scalar(DType::I32)], &types);
                let count = self.source.below(4);
                self.insert(func, Op::Repeat { count, body }, &carried);
            }
            _ => self.while_loop(func, carried, types),
        }
    }

    /// A function from extra and carried types to the carried types.
    fn body(&mut self, name: &str, extra: &[TensorType], carried: &[TensorType]) -> FuncId {
        let mut func = Func::new(&format!("{name}{}", self.module.funcs.len()));
        for ty in extra.iter().chain(carried) {
            func.push_param("", ty.clone());
        }
        let num_nodes = 1 + self.source.below(3) as usize;
        self.nodes(&mut func, num_nodes, false);
        func.results = carried.iter().map(|ty| self.latest_of(&func, ty)).collect();
        self.module.funcs.push(func)
    }

    fn latest_of(&mut self, func: &Func, ty: &TensorType) -> ValueId {
        let mut suiting = func.values.ids().rev().filter(|&value| func.ty(value) == ty);
        suiting.next().expect("a parameter has this type")
    }

    /// A counter below a small bound makes it end.
    fn while_loop(&mut self, func: &mut Func, mut carried: Vec<ValueId>, types: Vec<TensorType>) {
        let counter = TensorType::scalar(DType::I32);
        let all = [std::slice::from_ref(&counter), &types].concat();
        let limit = self.source.below(4) as f64;
        let mut cond = Func::new(&format!("cond{}", self.module.funcs.len()));
        all.iter().for_each(|ty| {
            cond.push_param("", ty.clone());
        });
        let bound = self.scalar(&mut cond, limit);
        let count = cond.params[0];
        let flag = self.insert(&mut cond, Op::Compare(CompareFn::Lt), &[count, bound]);
        cond.results.extend(flag);
        let cond = self.module.funcs.push(cond);
        let body = self.body("loop", std::slice::from_ref(&counter), &types);
        let mut step = std::mem::take(&mut self.module.funcs[body]);
        let one = self.scalar(&mut step, 1.0);
        let count = step.params[0];
        let next = self.insert(&mut step, Op::Binary(BinaryFn::Add), &[count, one]);
        step.results.splice(0..0, next);
        self.module.funcs[body] = step;
        carried.insert(0, self.scalar(func, 0.0));
        self.insert(func, Op::While { cond, body }, &carried);
    }

    fn scalar(&mut self, func: &mut Func, value: f64) -> ValueId {
        self.constant_of(func, &TensorType::scalar(DType::I32), ConstData::Splat(value))
    }
}

/// The sizes of a generated type.
fn sizes(ty: &TensorType) -> Vec<u64> {
    ty.dims.iter().filter_map(Dim::known).collect()
}
