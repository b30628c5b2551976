//! Finds GELUs that are written out op by op, as exporters do: one loop instead of up to eight. Only where the ops
//! are those of the composite's body, up to the order of a sum's or product's operands: no bit changes.

use super::Planner;
use crate::flat::{FlatNode, ValueIndex, Work};
use crate::recognise::Activation;
use pando_base::{BinaryFn, DType, UnaryFn};
use pando_graph::Op;
use rustc_hash::FxHashMap;

/// What `value` is the GELU of, and which, if everything between is made in the group that `makers` are of.
pub(super) fn gelu_of(
    planner: &Planner,
    makers: &FxHashMap<ValueIndex, usize>,
    value: ValueIndex,
) -> Option<(Activation, ValueIndex)> {
    let group = Group { planner, makers };
    let [a, b] = group.binary(value, BinaryFn::Mul)?;
    if planner.flat.values[value].dtype != DType::F32 {
        return None;
    }
    [(a, b), (b, a)].into_iter().find_map(|(half, sum)| {
        let x = group.with_constant(half, BinaryFn::Mul, 0.5)?;
        let smooth = group.with_constant(sum, BinaryFn::Add, 1.0)?;
        group.is_of_erf(smooth, x).or(group.is_of_tanh(smooth, x)).map(|activation| (activation, x))
    })
}

struct Group<'a, 'b> {
    planner: &'a Planner<'b>,
    makers: &'a FxHashMap<ValueIndex, usize>,
}

impl Group<'_, '_> {
    /// `erf(x / √2)`.
    fn is_of_erf(&self, erf: ValueIndex, x: ValueIndex) -> Option<Activation> {
        let scaled = self.unary(erf, UnaryFn::Erf)?;
        let of = self.with_constant(scaled, BinaryFn::Mul, std::f32::consts::FRAC_1_SQRT_2)?;
        (of == x).then_some(Activation::Gelu)
    }

    /// `tanh(√(2/π) · (x + 0.044715 x³))`.
    fn is_of_tanh(&self, tanh: ValueIndex, x: ValueIndex) -> Option<Activation> {
        let scaled = self.unary(tanh, UnaryFn::Tanh)?;
        let sum = self.with_constant(scaled, BinaryFn::Mul, 0.797_884_6)?;
        let small = self.with(sum, BinaryFn::Add, x)?;
        let cube = self.with_constant(small, BinaryFn::Mul, 0.044715)?;
        self.is_cube(cube, x).then_some(Activation::GeluTanh)
    }

    fn is_cube(&self, cube: ValueIndex, x: ValueIndex) -> bool {
        let is_power = |[base, exponent]: [ValueIndex; 2]| base == x && self.is_constant(exponent, 3.0);
        let is_square = |square| self.binary(square, BinaryFn::Mul) == Some([x, x]);
        self.binary(cube, BinaryFn::Pow).is_some_and(is_power)
            || self.with(cube, BinaryFn::Mul, x).is_some_and(is_square)
    }

    /// The other operand of `func` of a constant, whose order does not matter.
    fn with_constant(&self, value: ValueIndex, func: BinaryFn, constant: f32) -> Option<ValueIndex> {
        let [a, b] = self.binary(value, func)?;
        let is_constant = |value| self.is_constant(value, constant);
        if is_constant(b) { Some(a) } else { is_constant(a).then_some(b) }
    }

    /// As above, of a known operand.
    fn with(&self, value: ValueIndex, func: BinaryFn, known: ValueIndex) -> Option<ValueIndex> {
        let [a, b] = self.binary(value, func)?;
        if a == known { Some(b) } else { (b == known).then_some(a) }
    }

    fn is_constant(&self, value: ValueIndex, constant: f32) -> bool {
        !self.makers.contains_key(&value) && self.planner.constant_of(value) == Some(constant.into())
    }

    fn binary(&self, value: ValueIndex, func: BinaryFn) -> Option<[ValueIndex; 2]> {
        let node =
            self.maker(value).filter(|node| matches!(node.work, Work::Op(Op::Binary(f)) if f == func))?;
        node.operands.as_slice().try_into().ok()
    }

    fn unary(&self, value: ValueIndex, func: UnaryFn) -> Option<ValueIndex> {
        let node =
            self.maker(value).filter(|node| matches!(node.work, Work::Op(Op::Unary(f)) if f == func))?;
        node.operands.first().copied()
    }

    fn maker(&self, value: ValueIndex) -> Option<&FlatNode> {
        self.makers.get(&value).map(|&node| &self.planner.flat.nodes[node])
    }
}
