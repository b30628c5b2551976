//! Elementwise operations: every tile computes its block of the result, and with it what is computed for the
//! result only.

use super::Emitter;
use crate::layouts::project;
use crate::plan::Method;
use crate::prepare::constant_scalar;
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
}

impl Emitter<'_> {
    pub(super) fn elementwise(&mut self, node: &Node) {
        let layout = self.layout(node.results[0]);
        if node.operands.iter().all(|&operand| self.fused(operand).is_none()) {
            let mut operands: Vec<(VarId, Region)> = node
                .operands
                .iter()
                .map(|&operand| (self.fetch(operand, &layout), layout.region.clone()))
                .collect();
            operands.push((self.result(node), layout.region.clone()));
            return self.compute(&self.label(node), kernel(&node.op), &layout.grid, operands);
        }
        let mut chain = Chain::default();
        self.write(node, &mut chain);
        let inputs = chain.inputs.iter();
        let mut operands: Vec<(VarId, Region)> = inputs.map(|input| self.repeated(input, &layout)).collect();
        operands.push((self.result(node), layout.region.clone()));
        self.compute(&self.label(node), Kernel::Map(chain.attrs()), &layout.grid, operands);
    }

    /// The node of a value that is computed where it is used.
    fn fused(&self, value: ValueId) -> Option<NodeId> {
        let ValueDef::Node(id, _) = self.scope.func.values[value].def else { return None };
        (self.scope.plan.methods[id] == Some(Method::Fused)).then_some(id)
    }

    /// Appends a node's function after those that it needs.
    fn write(&self, node: &Node, chain: &mut Chain) -> Argument {
        let args = node.operands.iter().map(|&operand| self.argument(operand, chain)).collect();
        let func = match &node.op {
            Op::Unary(func) => MapFn::Unary(*func),
            Op::Binary(func) => MapFn::Binary(*func),
            Op::Compare(func) => MapFn::Compare(*func),
            Op::Select => MapFn::Select,
            Op::Convert(_) => MapFn::Cast,
            op => unreachable!("{op} is not fused"),
        };
        chain.step(func, self.dtype(node.results[0]), args)
    }

    fn argument(&self, value: ValueId, chain: &mut Chain) -> Argument {
        if let Some(&known) = chain.known.get(&value) {
            return known;
        }
        let func = self.scope.func;
        let argument = match self.fused(value).map(|id| &func.nodes[id]) {
            None => {
                let rank = func.ty(value).rank();
                chain.input(Input { value, dims: (0..rank as u8).collect() })
            }
            Some(Node { op: Op::Broadcast { axes, .. }, operands, .. }) => match self.number(operands[0]) {
                Some(number) => chain.step(MapFn::Value(number), self.dtype(value), SmallVec::new()),
                None => {
                    let dims = axes.iter().map(|&axis| axis as u8).collect();
                    chain.input(Input { value: operands[0], dims })
                }
            },
            Some(node) => self.write(node, chain),
        };
        chain.known.insert(value, argument);
        argument
    }

    /// A constant of one element that a program can hold as a number.
    fn number(&self, value: ValueId) -> Option<f64> {
        let exact = |number: &f64| self.dtype(value).is_float() || number.abs() <= 2f64.powi(53);
        constant_scalar(self.module, self.scope.func, value).filter(exact)
    }

    /// An input's part of each block.
    fn repeated(&mut self, input: &Input, layout: &Layout) -> (VarId, Region) {
        let shape = self.shape(input.value);
        let axes: Vec<usize> = input.dims.iter().map(|&dim| usize::from(dim)).collect();
        let var = self.fetch(input.value, &project(layout, &shape, &axes));
        let span =
            |(&axis, &size): (&usize, &u64)| if size == 1 { Span::full(1) } else { layout.region[axis] };
        (var, axes.iter().zip(shape.iter()).map(span).collect())
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
