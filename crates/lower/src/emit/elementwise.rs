//! Elementwise operations: every tile computes its block of the result, and with it what is computed for the
//! result only.

use super::Emitter;
use crate::layouts::{normalize, unit_dims};
use crate::plan::{Method, number_of, smooth};
use pando_base::DType;
use pando_graph::{Node, NodeId, Op, ValueDef, ValueId};
use pando_tile::kernel::{Dims, MapAttrs, MapFn, MapStep};
use pando_tile::{Kernel, Layout, Region, Span, VarId};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// An operand that repeats along the dimensions of the result that `dims` lacks.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Input {
    value: ValueId,
    /// The dimension of the result that each of its dimensions is.
    dims: Dims,
    /// The part of a dimension that is read, if not all.
    cuts: SmallVec<[Option<(u64, u64)>; 4]>,
}

/// What a function is applied to: an input, or the result of an earlier function.
#[derive(Clone, Copy)]
enum Argument {
    Input(usize),
    Step(usize),
}

/// A chain being written. Functions cannot be numbered before all inputs are known.
#[derive(Default)]
struct Chain {
    inputs: Vec<Input>,
    steps: Vec<(MapFn, DType, SmallVec<[Argument; 3]>)>,
    known: FxHashMap<ValueId, Argument>,
    /// A value that is stored, too, and its step.
    kept: Option<(ValueId, usize)>,
}

impl Emitter<'_> {
    pub(super) fn elementwise(&mut self, node: &Node) {
        let layout = self.layout(node.results[0]);
        if node.operands.iter().all(|&operand| self.joined(operand).is_none()) {
            let mut operands: Vec<(VarId, Region)> = node
                .operands
                .iter()
                .map(|&operand| (self.fetch(operand, &layout), layout.region.clone()))
                .collect();
            operands.push((self.result_over(node, &operands), layout.region.clone()));
            return self.compute(&self.label(node), kernel(&node.op), &layout.grid, operands);
        }
        let mut chain = Chain::default();
        self.write(node, &mut chain);
        let inputs = chain.inputs.iter();
        let mut operands: Vec<(VarId, Region)> = inputs.map(|input| self.repeated(input, &layout)).collect();
        let out = self.result_over(node, &operands);
        if let Some((value, _)) = chain.kept {
            operands.push((self.stored(value), layout.region.clone()));
        }
        operands.push((out, layout.region.clone()));
        self.compute(&self.label(node), Kernel::Map(chain.attrs()), &layout.grid, operands);
    }

    /// The node of a value that is computed, or read through, where it is used.
    fn joined(&self, value: ValueId) -> Option<NodeId> {
        let ValueDef::Node(id, _) = self.scope.func.values[value].def else { return None };
        match self.scope.plan.methods[id] {
            Some(Method::Fused | Method::View) => Some(id),
            Some(Method::Kept) => self.scope.homes[value].is_none().then_some(id),
            _ => None,
        }
    }

    /// Appends a node's function after those that it needs.
    fn write(&self, node: &Node, chain: &mut Chain) -> Argument {
        let (func, dtype) = (self.scope.func, self.dtype(node.results[0]));
        let fused = |id: &NodeId| self.scope.plan.methods[*id] == Some(Method::Fused);
        if let Some(found) = smooth(self.module, func, node).filter(|found| found.parts.iter().all(fused)) {
            let x = self.argument(found.x, chain);
            return chain.step(MapFn::Smooth(found.func), dtype, SmallVec::from_slice(&[x]));
        }
        let args = node.operands.iter().map(|&operand| self.argument(operand, chain)).collect();
        let func = match &node.op {
            Op::Unary(func) => MapFn::Unary(*func),
            Op::Binary(func) => MapFn::Binary(*func),
            Op::Compare(func) => MapFn::Compare(*func),
            Op::Select => MapFn::Select,
            Op::Convert(_) => MapFn::Cast,
            op => unreachable!("{op} is not fused"),
        };
        chain.step(func, dtype, args)
    }

    fn argument(&self, value: ValueId, chain: &mut Chain) -> Argument {
        if let Some(&known) = chain.known.get(&value) {
            return known;
        }
        let func = self.scope.func;
        let whole = |value: ValueId, dims: Dims| {
            let cuts = dims.iter().map(|_| None).collect();
            Input { value, dims, cuts }
        };
        let argument = match (number_of(self.module, func, value), self.joined(value)) {
            (Some(number), _) => chain.step(MapFn::Value(number), self.dtype(value), SmallVec::new()),
            (None, None) => chain.input(whole(value, (0..func.ty(value).rank() as u8).collect())),
            (None, Some(id)) => match &func.nodes[id] {
                Node { op: Op::Broadcast { axes, .. }, operands, .. } => {
                    chain.input(whole(operands[0], axes.iter().map(|&axis| axis as u8).collect()))
                }
                Node { op: Op::Slice(_) | Op::Reshape { .. }, .. } => chain.input(self.seen_through(value)),
                node => {
                    let argument = self.write(node, chain);
                    if let (Some(Method::Kept), Argument::Step(step)) =
                        (&self.scope.plan.methods[id], argument)
                    {
                        chain.kept = Some((value, step));
                    }
                    argument
                }
            },
        };
        chain.known.insert(value, argument);
        argument
    }

    /// What a value is a view of.
    fn seen_through(&self, value: ValueId) -> Input {
        let func = self.scope.func;
        let rank = func.ty(value).rank();
        let mut input =
            Input { value, dims: (0..rank as u8).collect(), cuts: SmallVec::from_elem(None, rank) };
        while let Some(id) = self.joined(input.value) {
            let node = &func.nodes[id];
            let (from, to) = (self.shape(node.operands[0]), self.shape(input.value));
            match &node.op {
                Op::Slice(slice) => input.cuts.iter_mut().enumerate().for_each(|(dim, cut)| {
                    let (begin, end) = cut.unwrap_or((0, to[dim]));
                    let moved = (slice.begin[dim] + begin, slice.begin[dim] + end);
                    *cut = (moved != (0, from[dim])).then_some(moved);
                }),
                _ => {
                    let dims = unit_dims(&to, &from).expect("a view's dimensions differ by those of size 1");
                    // A dimension of size 1 that the result lacks stands anywhere.
                    let source =
                        |dim: &Option<usize>| dim.map_or((0, None), |d| (input.dims[d], input.cuts[d]));
                    (input.dims, input.cuts) = dims.iter().map(source).unzip();
                }
            }
            input.value = node.operands[0];
        }
        input
    }

    /// An input's part of each block.
    fn repeated(&mut self, input: &Input, layout: &Layout) -> (VarId, Region) {
        let shape = self.shape(input.value);
        let axes: Vec<usize> = input.dims.iter().map(|&dim| usize::from(dim)).collect();
        let part = |dim: usize, cut: fn((u64, u64)) -> Span, whole: Span| match input.cuts[dim] {
            Some(bounds) => cut(bounds),
            None if shape[dim] == 1 => Span::full(1),
            None => whole,
        };
        // What is cut lies whole on the tile.
        let mut held = layout.clone();
        held.region = (0..axes.len())
            .map(|dim| match input.cuts[dim] {
                Some(_) => Span::full(shape[dim]),
                None => part(dim, |_| Span::full(1), layout.region[axes[dim]]),
            })
            .collect();
        let var = self.fetch(input.value, &normalize(&held, &shape));
        let read =
            |dim: usize| part(dim, |(begin, end)| Span::Fixed { begin, end }, layout.region[axes[dim]]);
        (var, (0..axes.len()).map(read).collect())
    }
}

impl Chain {
    fn step(&mut self, func: MapFn, dtype: DType, args: SmallVec<[Argument; 3]>) -> Argument {
        self.steps.push((func, dtype, args));
        Argument::Step(self.steps.len() - 1)
    }

    fn attrs(&self) -> MapAttrs {
        let number = |argument: &Argument| match *argument {
            Argument::Input(index) => index as u8,
            Argument::Step(index) => (self.inputs.len() + index) as u8,
        };
        let step = |(func, dtype, args): &(MapFn, DType, SmallVec<[Argument; 3]>)| MapStep {
            func: *func,
            dtype: *dtype,
            args: args.iter().map(number).collect(),
        };
        MapAttrs {
            inputs: self.inputs.iter().map(|input| input.dims.clone()).collect(),
            steps: self.steps.iter().map(step).collect(),
            kept: self.kept.map(|(_, step)| step as u8),
        }
    }

    fn input(&mut self, input: Input) -> Argument {
        let place = self.inputs.iter().position(|other| *other == input);
        Argument::Input(place.unwrap_or_else(|| {
            self.inputs.push(input);
            self.inputs.len() - 1
        }))
    }
}

fn kernel(op: &Op) -> Kernel {
    match op {
        Op::Unary(func) => Kernel::Unary(*func),
        Op::Binary(func) => Kernel::Binary(*func),
        Op::Compare(func) => Kernel::Compare(*func),
        Op::Select => Kernel::Select,
        Op::Convert(_) => Kernel::Cast,
        // The same bits, under another type.
        Op::Bitcast(_) => Kernel::Copy,
        _ => unreachable!("{op} is not elementwise"),
    }
}
