//! Finds functions of several steps that tiles have as one: the sigmoid and both GELUs, as the builder's composites and
//! common exporters write them, up to the order of a sum's or product's operands.

use super::fuse::number_of;
use pando_base::{BinaryFn, UnaryFn};
use pando_graph::{Func, Module, Node, NodeId, Op, ValueDef, ValueId};
use pando_tile::kernel::Smooth;
use smallvec::SmallVec;

/// A function whose result a node gives.
pub(crate) struct Found {
    pub func: Smooth,
    pub x: ValueId,
    /// What else is part of it.
    pub parts: SmallVec<[NodeId; 8]>,
}

pub(crate) fn smooth(module: &Module, func: &Func, node: &Node) -> Option<Found> {
    let mut reader = Reader { module, func, parts: SmallVec::new() };
    let (func, x) = match node.op {
        Op::Binary(BinaryFn::Div) => (Smooth::Sigmoid, reader.sigmoid(node)?),
        Op::Binary(BinaryFn::Mul) => reader.gelu(node)?,
        _ => return None,
    };
    Some(Found { func, x, parts: reader.parts })
}

struct Reader<'a> {
    module: &'a Module,
    func: &'a Func,
    parts: SmallVec<[NodeId; 8]>,
}

impl Reader<'_> {
    /// `1 / (1 + exp(-x))`.
    fn sigmoid(&mut self, node: &Node) -> Option<ValueId> {
        self.is_number(node.operands[0], 1.0).then_some(())?;
        let power = self.with_number(node.operands[1], BinaryFn::Add, 1.0)?;
        let negated = self.unary(power, UnaryFn::Exp)?;
        self.unary(negated, UnaryFn::Neg)
    }

    /// `x/2 · (1 + f)`, `x · (1 + f) · 1/2` or `x · ((1 + f) · 1/2)`.
    fn gelu(&mut self, node: &Node) -> Option<(Smooth, ValueId)> {
        let [a, b] = node.operands.as_slice().try_into().ok()?;
        let (first, second) = match (self.number(a), self.number(b)) {
            (None, None) => (a, b),
            (None, Some(0.5)) => self.binary(a, BinaryFn::Mul)?,
            (Some(0.5), None) => self.binary(b, BinaryFn::Mul)?,
            _ => return None,
        };
        let halved = self.number(a).or(self.number(b)).is_some();
        let known = self.parts.clone();
        [(first, second), (second, first)].into_iter().find_map(|(x, sum)| {
            self.parts.clone_from(&known);
            self.gelu_of(x, sum, halved)
        })
    }

    fn gelu_of(&mut self, x: ValueId, sum: ValueId, halved: bool) -> Option<(Smooth, ValueId)> {
        let before = self.parts.clone();
        if !halved
            && let Some(whole) = self.with_number(x, BinaryFn::Mul, 0.5)
            && let Some(found) = self.one_plus(sum, whole)
        {
            return Some(found);
        }
        self.parts = before;
        let sum = if halved { sum } else { self.with_number(sum, BinaryFn::Mul, 0.5)? };
        self.one_plus(sum, x)
    }

    fn one_plus(&mut self, sum: ValueId, x: ValueId) -> Option<(Smooth, ValueId)> {
        let smooth = self.with_number(sum, BinaryFn::Add, 1.0)?;
        if let Some(scaled) = self.unary(smooth, UnaryFn::Erf) {
            return (self.root_of_half(scaled)? == x).then_some((Smooth::Gelu, x));
        }
        let scaled = self.unary(smooth, UnaryFn::Tanh)?;
        let terms = self.with_number(scaled, BinaryFn::Mul, (2.0 / std::f64::consts::PI).sqrt())?;
        let small = self.with(terms, BinaryFn::Add, x)?;
        let cube = self.with_number(small, BinaryFn::Mul, 0.044715)?;
        self.is_cube(cube, x).then_some((Smooth::GeluTanh, x))
    }

    /// What is multiplied with `1/√2` or divided by `√2`.
    fn root_of_half(&mut self, scaled: ValueId) -> Option<ValueId> {
        let product = self.with_number(scaled, BinaryFn::Mul, std::f64::consts::FRAC_1_SQRT_2);
        product.or_else(|| {
            let (x, root) = self.binary(scaled, BinaryFn::Div)?;
            self.is_number(root, std::f64::consts::SQRT_2).then_some(x)
        })
    }

    fn is_cube(&mut self, cube: ValueId, x: ValueId) -> bool {
        if let Some((base, exponent)) = self.binary(cube, BinaryFn::Pow) {
            return base == x && self.is_number(exponent, 3.0);
        }
        let square = self.with(cube, BinaryFn::Mul, x);
        square.and_then(|square| self.binary(square, BinaryFn::Mul)) == Some((x, x))
    }

    /// The other operand of a function of a number.
    fn with_number(&mut self, value: ValueId, func: BinaryFn, number: f64) -> Option<ValueId> {
        let (a, b) = self.operands(value, func)?;
        let other = if self.is_number(b, number) { a } else { self.is_number(a, number).then_some(b)? };
        self.take(value);
        Some(other)
    }

    /// As above, of a known operand.
    fn with(&mut self, value: ValueId, func: BinaryFn, known: ValueId) -> Option<ValueId> {
        let (a, b) = self.operands(value, func)?;
        let other = if a == known { b } else { (b == known).then_some(a)? };
        self.take(value);
        Some(other)
    }

    fn binary(&mut self, value: ValueId, func: BinaryFn) -> Option<(ValueId, ValueId)> {
        let operands = self.operands(value, func)?;
        self.take(value);
        Some(operands)
    }

    fn unary(&mut self, value: ValueId, func: UnaryFn) -> Option<ValueId> {
        let node = self.maker(value).filter(|&node| self.func.nodes[node].op == Op::Unary(func))?;
        self.take(value);
        Some(self.func.nodes[node].operands[0])
    }

    fn operands(&self, value: ValueId, func: BinaryFn) -> Option<(ValueId, ValueId)> {
        let node = self.maker(value).filter(|&node| self.func.nodes[node].op == Op::Binary(func))?;
        let operands = &self.func.nodes[node].operands;
        Some((operands[0], operands[1]))
    }

    fn take(&mut self, value: ValueId) {
        self.parts.extend(self.maker(value));
    }

    fn maker(&self, value: ValueId) -> Option<NodeId> {
        match self.func.values[value].def {
            ValueDef::Node(node, _) => Some(node),
            ValueDef::Param(_) => None,
        }
    }

    fn number(&self, value: ValueId) -> Option<f64> {
        number_of(self.module, self.func, value)
    }

    /// Whether it is what the type has for a number.
    fn is_number(&self, value: ValueId, expected: f64) -> bool {
        let dtype = self.func.ty(value).dtype;
        // A model in f16 may have been one in f32.
        let rounded = [dtype.round(expected), dtype.round(f64::from(expected as f32))];
        self.number(value).is_some_and(|number| rounded.contains(&number))
    }
}
