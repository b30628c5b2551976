//! One function with everything it calls written out: the form that planning works on. Sizes are numbers,
//! calls are gone, bodies of branches and loops are flat functions of their own. A call to a composite that
//! [`recognise`](crate::recognise) knows stays one node.

use crate::constants::{Constant, Constants};
use crate::errors;
use crate::gradients;
use crate::isa::TileUnit;
use crate::kernel::gemm::window_tiles;
use crate::kernel::row_gradients::Gradient;
use crate::options::CompileOptions;
use crate::plan::bytes::{ByteConv, bytes};
use crate::plan::layout::{BlockedConv, blocked};
use crate::plan::quantised::quantised;
use crate::recognise::{Composite, recognise};
use crate::step::conv::norm::What;
use crate::view::Sizes;
use pando_base::{DType, Id, Result};
use pando_graph::{Func, FuncId, Module, Node, Op, ReduceWindow, TensorType, ValueId};
use std::sync::Arc;
use widen::Widener;

mod widen;

/// Index into [`Flat::values`].
pub type ValueIndex = usize;

#[derive(Default)]
pub struct Flat {
    pub values: Vec<FlatType>,
    pub nodes: Vec<FlatNode>,
    pub params: Vec<ValueIndex>,
    pub results: Vec<ValueIndex>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct FlatType {
    pub dtype: DType,
    pub sizes: Sizes,
}

pub struct FlatNode {
    pub work: Work,
    pub operands: Vec<ValueIndex>,
    pub results: Vec<ValueIndex>,
    /// What a user calls it: the name of its first result, or of the next node that has one, which it is likely
    /// to be a part of. Inside a call, the name of the call's result. Empty if there is none.
    pub name: Arc<str>,
}

pub enum Work {
    /// Neither a constant nor control flow.
    Op(Op),
    Constant(Arc<Constant>),
    Composite(Composite),
    /// Results, and perhaps operands, in blocks of channels.
    BlockedConv(Box<BlockedConv>),
    /// A convolution or product of bytes with what follows it.
    Bytes(Box<ByteConv>),
    /// The gradient of a convolution's kernel: of (input, gradient), perhaps in blocks of channels; plain.
    KernelGradient(Box<BlockedConv>),
    /// Of `f32[N, C, H, W]`: results y, means, variances.
    BatchNorm {
        epsilon: f32,
    },
    /// Of x, scale, means, variances and a gradient.
    BatchNormGradient {
        epsilon: f32,
    },
    /// Of an image and the gradient of its windows' maxima: see `step/conv/pool_gradient.rs`.
    PoolGradient(ReduceWindow),
    /// Of what was kept, perhaps a scale, and the gradient of the result: gradients of the operands.
    RowGradient(Gradient),
    /// A part of batch normalization over blocks.
    Norm(What),
    /// Images in blocks of channels from those of several phases of strides; see `step/conv/interleave.rs`.
    Interleave {
        strides: [usize; 2],
        phases: Vec<Option<usize>>,
    },
    /// Channels of an image in blocks, `[groups, each]`, as `[each, groups]`.
    Shuffle {
        channels: usize,
        groups: usize,
    },
    If {
        then: Box<Flat>,
        otherwise: Box<Flat>,
    },
    While {
        cond: Box<Flat>,
        body: Box<Flat>,
    },
    Repeat {
        count: u64,
        body: Box<Flat>,
    },
    /// The first `parts` operands, and the results, are cut in so many parts along axis 0, each the body's; the other
    /// operands are weights.
    Images {
        count: usize,
        parts: usize,
        body: Box<Flat>,
    },
}

/// A function of a valid module whose dimensions are all known. `widen`: between its parameters and its results floats of
/// 16 bits are f32, as `flat/widen.rs` says.
pub fn flatten(
    module: &Module,
    func: FuncId,
    constants: &mut Constants,
    options: &CompileOptions,
    widen: bool,
) -> Result<Flat> {
    let flattener = Flattener::new(module, constants, options, widen);
    flattener.function(&module.funcs[func], Flattener::exact, |flattener, value, ty| {
        flattener.rounded(value, ty.dtype)
    })
}

struct Flattener<'a> {
    module: &'a Module,
    constants: &'a mut Constants,
    options: &'a CompileOptions,
    flat: Flat,
    /// The name of the result of the call that is being written out.
    call: Option<Arc<str>>,
    widener: Widener,
}

impl<'a> Flattener<'a> {
    fn new(
        module: &'a Module,
        constants: &'a mut Constants,
        options: &'a CompileOptions,
        widen: bool,
    ) -> Flattener<'a> {
        let widener = Widener::new(widen);
        Flattener { module, constants, options, flat: Flat::default(), call: None, widener }
    }

    /// `param`: the value of a parameter; `result`: what becomes of a result.
    fn function(
        mut self,
        func: &Func,
        param: impl Fn(&mut Self, &TensorType) -> Result<ValueIndex>,
        result: impl Fn(&mut Self, ValueIndex, &TensorType) -> ValueIndex,
    ) -> Result<Flat> {
        let params: Vec<ValueIndex> =
            func.param_types().into_iter().map(|ty| param(&mut self, ty)).collect::<Result<_>>()?;
        let args: Vec<ValueIndex> = params.iter().map(|&param| self.wide(param)).collect();
        let results = self.body(func, &args)?.into_iter().zip(func.result_types());
        let results = results.map(|(value, ty)| result(&mut self, value, ty)).collect();
        Ok(self.finish(params, results))
    }

    fn finish(self, params: Vec<ValueIndex>, results: Vec<ValueIndex>) -> Flat {
        let mut flat = self.flat;
        flat.name_the_nameless();
        (flat.params, flat.results) = (params, results);
        let has_unit = self.options.tile_unit.usable() != TileUnit::None;
        let flat = if self.options.fuse {
            quantised(bytes(flat, has_unit), window_tiles(self.options.isa).is_some())
        } else {
            flat
        };
        blocked(flat)
    }

    /// Appends a function's nodes; the calls of a valid module nest a bounded number of times.
    fn body(&mut self, func: &Func, args: &[ValueIndex]) -> Result<Vec<ValueIndex>> {
        let mut map: Vec<Option<ValueIndex>> = vec![None; func.values.len()];
        for (&param, &arg) in func.params.iter().zip(args) {
            map[param.index()] = Some(arg);
        }
        let read = |map: &[Option<ValueIndex>], value: ValueId| {
            map[value.index()].expect("operands stand before their uses")
        };
        for node in func.nodes.values() {
            let operands: Vec<ValueIndex> = node.operands.iter().map(|&value| read(&map, value)).collect();
            let results = self.node(func, node, operands)?;
            for (&result, value) in node.results.iter().zip(results) {
                map[result.index()] = Some(value);
            }
        }
        Ok(func.results.iter().map(|&value| read(&map, value)).collect())
    }

    fn node(&mut self, func: &Func, node: &Node, operands: Vec<ValueIndex>) -> Result<Vec<ValueIndex>> {
        if let Op::Call(callee) = node.op {
            let callee = &self.module.funcs[callee];
            if self.options.fuse
                && let Some(work) = gradients::recognise(self.module, callee)
            {
                let name = self.name(func, node);
                return self.push(work, operands, &callee.result_types(), name);
            }
            return match recognise(self.module, callee, self.widener.is_on()).filter(|_| self.options.fuse) {
                Some(composite) => {
                    let name = self.name(func, node);
                    self.push(Work::Composite(composite), operands, &callee.result_types(), name)
                }
                None => self.call(func, node, callee, &operands),
            };
        }
        let types = func.operand_types(&node.results);
        let work = self.work(&node.op)?;
        let name = self.name(func, node);
        if widen::reads_type(&node.op) {
            let exact = self.rounded(operands[0], func.ty(node.operands[0]).dtype);
            return self.push(work, vec![exact], &types, name);
        }
        self.push(work, operands, &types, name)
    }

    fn call(
        &mut self,
        func: &Func,
        node: &Node,
        callee: &Func,
        operands: &[ValueIndex],
    ) -> Result<Vec<ValueIndex>> {
        let name = self.name(func, node);
        let outer = self.call.replace(name);
        let results = self.body(callee, operands);
        self.call = outer;
        results
    }

    fn name(&self, func: &Func, node: &Node) -> Arc<str> {
        match &self.call {
            Some(name) => name.clone(),
            None => node.results.first().map_or("", |&result| func.values[result].name.as_str()).into(),
        }
    }

    fn push(
        &mut self,
        work: Work,
        operands: Vec<ValueIndex>,
        types: &[&TensorType],
        name: Arc<str>,
    ) -> Result<Vec<ValueIndex>> {
        let is_weight = widen::moves(&work) && operands.iter().all(|&value| self.is_half(value));
        let operands = if is_weight { operands } else { self.widened(&work, operands) };
        // Weights are widened by those that cannot read them as they are.
        let stays = is_weight || matches!(work, Work::Constant(_));
        let is_exact = stays || widen::is_exact(&work);
        let types = types.iter().map(|ty| if is_exact { self.exact(ty) } else { self.value(ty) });
        let mut results: Vec<ValueIndex> = types.collect::<Result<_>>()?;
        let work = self.widener.work(work);
        self.flat.nodes.push(FlatNode { work, operands, results: results.clone(), name });
        if !stays {
            results = results.into_iter().map(|value| self.wide(value)).collect();
        }
        Ok(results)
    }

    fn work(&mut self, op: &Op) -> Result<Work> {
        Ok(match *op {
            Op::Constant(id) => Work::Constant(self.constants.get(self.module, id)),
            Op::If { then_func, else_func } => {
                Work::If { then: self.inner(then_func)?, otherwise: self.inner(else_func)? }
            }
            Op::While { cond, body } => Work::While { cond: self.inner(cond)?, body: self.inner(body)? },
            Op::Repeat { count, body } => Work::Repeat { count, body: self.inner(body)? },
            _ => Work::Op(op.clone()),
        })
    }

    fn inner(&mut self, func: FuncId) -> Result<Box<Flat>> {
        let name = &self.module.funcs[func].name;
        let (module, widen) = (self.module, self.widener.is_on());
        // Its values lie between those of the function that runs it.
        Flattener::new(module, self.constants, self.options, widen)
            .function(&module.funcs[func], Flattener::value, |flattener, value, _| flattener.wide(value))
            .map(Box::new)
            .map_err(|error| errors::in_func(error, name))
    }
}

impl Flat {
    /// Moves what depends on constants and these parameters alone to the front: others find it made already, and can
    /// take it in.
    pub fn hoist(&mut self, steady: &[usize]) {
        let mut is_early = vec![false; self.values.len()];
        steady.iter().for_each(|&param| is_early[self.params[param]] = true);
        let (mut early, mut late) = (Vec::new(), Vec::new());
        for node in std::mem::take(&mut self.nodes) {
            if node.operands.iter().all(|&value| is_early[value]) {
                node.results.iter().for_each(|&value| is_early[value] = true);
                early.push(node);
            } else {
                late.push(node);
            }
        }
        early.append(&mut late);
        self.nodes = early;
    }

    fn name_the_nameless(&mut self) {
        let mut next: Arc<str> = "".into();
        for node in self.nodes.iter_mut().rev() {
            match node.name.is_empty() {
                true => node.name = next.clone(),
                false => next = node.name.clone(),
            }
        }
    }

    /// The node that makes each value.
    pub fn makers(&self) -> Vec<Option<usize>> {
        let mut makers = vec![None; self.values.len()];
        for (index, node) in self.nodes.iter().enumerate() {
            node.results.iter().for_each(|&value| makers[value] = Some(index));
        }
        makers
    }

    /// The nodes that have each value as an operand, in order.
    pub fn users(&self) -> Vec<Vec<usize>> {
        let mut users = vec![Vec::new(); self.values.len()];
        for (index, node) in self.nodes.iter().enumerate() {
            for &operand in &node.operands {
                if users[operand].last() != Some(&index) {
                    users[operand].push(index);
                }
            }
        }
        users
    }
}
