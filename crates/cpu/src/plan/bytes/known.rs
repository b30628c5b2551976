//! What the values of a flat function are: numbers, bytes that stand for reals, reals that become bytes.

use crate::flat::{Flat, FlatNode, ValueIndex, Work};
use pando_base::{BinaryFn, DType, UnaryFn};
use pando_graph::Op;

/// Ops looked through.
const DEPTH: usize = 6;

/// Constant numbers: one, or one per index of an axis of the value that they were found for.
#[derive(Clone, Debug, PartialEq)]
pub struct Numbers {
    pub values: Vec<f64>,
    pub axis: Option<usize>,
}

impl Numbers {
    pub fn one(value: f64) -> Numbers {
        Numbers { values: vec![value], axis: None }
    }

    /// The number that all are.
    pub fn uniform(&self) -> Option<f32> {
        let first = *self.values.first()?;
        self.values.iter().all(|&value| value == first).then_some(first as f32)
    }

    pub fn at(&self, index: usize) -> f64 {
        self.values[if self.axis.is_some() { index } else { 0 }]
    }

    pub fn are_positive(&self) -> bool {
        self.values.iter().all(|&value| (value as f32).is_normal() && value > 0.0)
    }
}

/// `(codes - zero) · scale`; scales are positive and finite.
#[derive(Clone, Debug)]
pub struct Real {
    pub codes: ValueIndex,
    pub zero: Numbers,
    pub scale: Numbers,
}

impl Real {
    /// Zero point and scale, if they are the same for all elements.
    pub fn uniform(&self) -> Option<(f32, f32)> {
        Some((self.zero.uniform()?, self.scale.uniform()?))
    }
}

/// A value rounded, moved by a zero point and cut to the range of its type.
pub struct Quantised {
    pub before: ValueIndex,
    pub zero: f32,
    /// The zero point is added before it is rounded: halves go to even codes, not to even distances from it.
    pub rounds_last: bool,
}

pub struct Known<'a> {
    pub flat: &'a Flat,
    pub makers: Vec<Option<usize>>,
    pub users: Vec<Vec<usize>>,
    is_result: Vec<bool>,
    is_constant: Vec<bool>,
}

/// The codes of a type of bytes.
pub fn range_of(dtype: DType) -> Option<(f32, f32)> {
    match dtype {
        DType::U8 => Some((0.0, 255.0)),
        DType::I8 => Some((-128.0, 127.0)),
        _ => None,
    }
}

impl Known<'_> {
    pub fn of(flat: &Flat) -> Known<'_> {
        let mut is_result = vec![false; flat.values.len()];
        flat.results.iter().for_each(|&value| is_result[value] = true);
        let mut is_constant = vec![false; flat.values.len()];
        for node in &flat.nodes {
            let pure = matches!(node.work, Work::Constant(_) | Work::Op(_));
            let constant = pure && node.operands.iter().all(|&value| is_constant[value]);
            node.results.iter().for_each(|&value| is_constant[value] = constant);
        }
        Known { flat, makers: flat.makers(), users: flat.users(), is_result, is_constant }
    }

    pub fn dtype(&self, value: ValueIndex) -> DType {
        self.flat.values[value].dtype
    }

    pub fn sizes(&self, value: ValueIndex) -> &[usize] {
        &self.flat.values[value].sizes
    }

    pub fn maker(&self, value: ValueIndex) -> Option<&FlatNode> {
        self.makers[value].map(|node| &self.flat.nodes[node])
    }

    pub fn is_constant(&self, value: ValueIndex) -> bool {
        self.is_constant[value]
    }

    /// The only user of a value that is no result.
    pub fn only_user(&self, value: ValueIndex) -> Option<usize> {
        let &[user] = self.users[value].as_slice() else { return None };
        (!self.is_result[value]).then_some(user)
    }

    /// Whether a value, the codes it is made of and all between have one user.
    pub fn is_private(&self, value: ValueIndex, codes: ValueIndex) -> bool {
        let mut value = value;
        while value != codes && self.only_user(value).is_some() {
            let operands = self.maker(value).map_or(&[][..], |node| &node.operands);
            let Some(&next) = operands.iter().find(|&&operand| !self.is_constant(operand)) else {
                return false;
            };
            value = next;
        }
        value == codes && self.only_user(codes).is_some()
    }

    pub fn unary(&self, value: ValueIndex, func: UnaryFn) -> Option<ValueIndex> {
        let node = self.maker(value)?;
        matches!(&node.work, Work::Op(Op::Unary(found)) if *found == func).then(|| node.operands[0])
    }

    pub fn binary(&self, value: ValueIndex, func: BinaryFn) -> Option<[ValueIndex; 2]> {
        let node = self.maker(value)?;
        let same = matches!(&node.work, Work::Op(Op::Binary(found)) if *found == func);
        same.then(|| [node.operands[0], node.operands[1]])
    }

    /// What a value is converted from.
    pub fn converted(&self, value: ValueIndex) -> Option<ValueIndex> {
        let node = self.maker(value)?;
        matches!(node.work, Work::Op(Op::Convert(_))).then(|| node.operands[0])
    }

    pub fn numbers(&self, value: ValueIndex) -> Option<Numbers> {
        if self.is_constant(value) { self.numbers_to(value, DEPTH) } else { None }
    }

    fn numbers_to(&self, value: ValueIndex, depth: usize) -> Option<Numbers> {
        let node = self.maker(value)?;
        let operand = |index: usize| self.numbers_to(node.operands[index], depth.checked_sub(1)?);
        let sizes = self.sizes(value);
        let number = self.dtype(value) == DType::F32 || self.dtype(value).is_int();
        match &node.work {
            _ if !number => None,
            Work::Constant(constant) if !constant.is_large() => summary(&constant.held()?.to_f64(), sizes),
            Work::Op(Op::Convert(DType::F32 | DType::I32)) if self.dtype(node.operands[0]).is_int() => {
                operand(0)
            }
            Work::Op(Op::Broadcast { axes, .. }) => {
                let numbers = operand(0)?;
                // A dimension of one is spread, too: then its numbers are one.
                let axis = numbers.axis.map(|axis| axes[axis]);
                Some(Numbers { axis, ..numbers })
            }
            Work::Op(Op::Reshape { .. }) => {
                let numbers = operand(0)?;
                let Some(_) = numbers.axis else { return Some(numbers) };
                let count = numbers.values.len();
                let whole = sizes.iter().product::<usize>() == count;
                let axis = sizes.iter().position(|&size| size == count).filter(|_| whole)?;
                Some(Numbers { axis: Some(axis), ..numbers })
            }
            Work::Op(Op::Binary(func @ (BinaryFn::Mul | BinaryFn::Div)))
                if self.dtype(value) == DType::F32 =>
            {
                let (a, b) = (operand(0)?, operand(1)?);
                let axis = a.axis.or(b.axis);
                let same = a.axis.is_none_or(|a| axis == Some(a)) && b.axis.is_none_or(|b| axis == Some(b));
                let count = a.values.len().max(b.values.len());
                let apply = |index: usize| {
                    let (a, b) = (a.at(index) as f32, b.at(index) as f32);
                    f64::from(if *func == BinaryFn::Mul { a * b } else { a / b })
                };
                same.then(|| Numbers { values: (0..count).map(apply).collect(), axis })
            }
            _ => None,
        }
    }

    pub fn real(&self, value: ValueIndex) -> Option<Real> {
        let scaled =
            self.binary(value, BinaryFn::Mul).and_then(|[a, b]| match (self.numbers(b), self.numbers(a)) {
                (Some(scale), _) => Some((a, scale)),
                (None, Some(scale)) => Some((b, scale)),
                _ => None,
            });
        // A scale of one is gone.
        let (x, scale) = scaled.unwrap_or_else(|| (value, Numbers::one(1.0)));
        let (x, zero) = match self.binary(x, BinaryFn::Sub) {
            Some([x, zero]) => (x, self.numbers(zero)?),
            None => (x, Numbers::one(0.0)),
        };
        let codes = self.converted(x).filter(|_| self.dtype(x) == DType::F32)?;
        let whole = |&zero: &f64| zero.fract() == 0.0 && zero.abs() <= 255.0;
        let suits = range_of(self.dtype(codes)).is_some() && zero.values.iter().all(whole);
        (suits && scale.are_positive()).then_some(Real { codes, zero, scale })
    }

    pub fn quantised(&self, codes: ValueIndex) -> Option<Quantised> {
        let (low, high) = range_of(self.dtype(codes))?;
        let bound = |value: ValueIndex, func: BinaryFn, bound: f32| {
            let [a, b] = self.binary(value, func)?;
            (self.numbers(b)?.uniform()? == bound).then_some(a)
        };
        let value = self.converted(codes).filter(|&value| self.dtype(value) == DType::F32)?;
        let value = bound(value, BinaryFn::Min, high)?;
        let value = bound(value, BinaryFn::Max, low)?;
        let is_zero = |zero: &f32| zero.fract() == 0.0 && (low..=high).contains(zero);
        let moved = |value: ValueIndex| {
            let [before, zero] = self.binary(value, BinaryFn::Add)?;
            Some((before, self.numbers(zero)?.uniform().filter(is_zero)?))
        };
        if let Some(last) = self.unary(value, UnaryFn::Round) {
            let (before, zero) = moved(last).unwrap_or((last, 0.0));
            return Some(Quantised { before, zero, rounds_last: true });
        }
        let (rounded, zero) = moved(value)?;
        Some(Quantised { before: self.unary(rounded, UnaryFn::Round)?, zero, rounds_last: false })
    }

    /// Bytes and the number that is taken from them in i32: a value, if it is not zero.
    pub fn centred(&self, value: ValueIndex) -> Option<(ValueIndex, Option<ValueIndex>)> {
        let bytes = |value: ValueIndex| {
            let x = self.converted(value)?;
            range_of(self.dtype(x)).map(|_| x)
        };
        if self.dtype(value) != DType::I32 {
            return None;
        }
        if let Some(x) = bytes(value) {
            return Some((x, None));
        }
        let [x, zero] = self.binary(value, BinaryFn::Sub)?;
        Some((bytes(x)?, Some(zero)))
    }

    /// The scalar that is everywhere in a broadcast.
    pub fn spread(&self, value: ValueIndex) -> Option<ValueIndex> {
        let node = self.maker(value)?;
        let broadcast = matches!(node.work, Work::Op(Op::Broadcast { .. }));
        let scalar = node.operands.first().copied().filter(|_| broadcast)?;
        self.sizes(scalar).iter().all(|&size| size == 1).then_some(scalar)
    }
}

/// One number, or one per index of an axis, if the elements are nothing more.
fn summary(elements: &[f64], sizes: &[usize]) -> Option<Numbers> {
    let first = *elements.first()?;
    if elements.iter().all(|&element| element == first) {
        return Some(Numbers::one(first));
    }
    (0..sizes.len()).find_map(|axis| {
        let inner: usize = sizes[axis + 1..].iter().product();
        let values: Vec<f64> = (0..sizes[axis]).map(|index| elements[index * inner]).collect();
        let same =
            elements.iter().enumerate().all(|(at, &element)| element == values[at / inner % sizes[axis]]);
        same.then_some(Numbers { values, axis: Some(axis) })
    })
}
