//! Which nodes are one product of bytes with all that follows: from what is rounded back to a convolution or dot of
//! centred bytes in i32, or of dequantised ones in f32.
//!
//! Sums of integers are exact; in f32 they are not, and the sums of dequantised numbers are taken as
//! `sums of codes · scales`: fewer roundings than the graph has. Scales that follow each other are multiplied beforehand.
//! What is integers by the standard (QLinearConv, QLinearMatMul) has one scale and keeps every bit; what is between
//! DequantizeLinear and QuantizeLinear may move by one step where the value lay within some 1e-6 of the middle of two, as
//! it does in ONNX Runtime, which does the same.

use super::known::{Known, Numbers, Real, range_of};
use crate::flat::{FlatNode, ValueIndex, Work};
use crate::kernel::bytes::{Output, Residual};
use crate::plan::range::range;
use pando_base::{BinaryFn, DType};
use pando_graph::{Conv, Dot, Op};
use rustc_hash::FxHashMap;

/// Ops of a chain.
const LENGTH: usize = 16;

/// Weights as i8 when they are converted.
#[derive(Clone, Copy, Debug)]
pub enum Weights {
    /// These bytes, less 128 where they are u8.
    Codes(ValueIndex),
    /// A constant in i32 whose elements fit.
    Wide(ValueIndex),
}

#[derive(Clone, Debug)]
pub enum Zero {
    Number(f32),
    /// A scalar of i32.
    Value(ValueIndex),
}

/// A product of bytes: its node, and what the values in it are.
#[derive(Clone, Debug)]
pub struct Base {
    pub node: usize,
    /// `None`: a dot over the last axis of x, and this axis of the weights.
    pub conv: Option<Conv>,
    pub weight_axis: usize,
    pub x: ValueIndex,
    pub zero: Zero,
    pub w: Weights,
    /// Of the sums, by output channel or column; `None`: they are integers.
    scale: Option<Numbers>,
    /// The axis of the result that has them.
    axis: usize,
    outputs: usize,
}

impl Base {
    fn is_dot_of_integers(&self) -> bool {
        self.conv.is_none() && self.scale.is_none()
    }
}

/// All that a step needs to know.
#[derive(Clone, Debug)]
pub struct Product {
    pub base: Base,
    pub added: Vec<i32>,
    pub scale: Vec<f32>,
    pub shift: Vec<f32>,
    pub low: f32,
    pub high: f32,
    pub residual: Option<(Residual, ValueIndex)>,
    pub output: Output,
    /// The scale of codes that the sums were rounded to.
    rounded: Option<f32>,
}

/// From the result backwards.
enum Link {
    Times(Numbers),
    Over(Numbers),
    Plus(Numbers),
    /// In i32.
    Added(Numbers),
    Low(f32),
    High(f32),
    /// And the lowest code of its type.
    Residual(Real, f32),
    /// Rounded to codes between these, counted from their zero point, which stand for reals.
    Requantised {
        low: f32,
        high: f32,
        scale: f32,
    },
}

/// The products of a function, by the nodes whose results they compute.
pub fn products(known: &Known, has_unit: bool) -> FxHashMap<usize, Product> {
    let mut found = FxHashMap::default();
    let mut taken = vec![false; known.flat.nodes.len()];
    let nodes = || known.flat.nodes.iter().enumerate().rev();
    // Later ones first: an addition takes in the product before it.
    for (index, node) in nodes().filter(|(_, node)| node.results.len() == 1) {
        let product = quantised(known, node.results[0]);
        if let Some(product) = product.filter(|product| !(has_unit && product.base.is_dot_of_integers()))
            && !std::mem::replace(&mut taken[product.base.node], true)
        {
            found.insert(index, product);
        }
    }
    for (index, _) in nodes() {
        if !taken[index]
            && let Some((root, product)) = unquantised(known, index)
        {
            found.insert(root, product);
        }
    }
    found
}

fn quantised(known: &Known, codes: ValueIndex) -> Option<Product> {
    let quantised = known.quantised(codes)?;
    let (links, base) = before(known, quantised.before, false, LENGTH)?;
    let (low, high) = range_of(known.dtype(codes))?;
    let mut product = apply(base, links)?;
    let (moved, zero) = if quantised.rounds_last { (quantised.zero, 0.0) } else { (0.0, quantised.zero) };
    product.moved(moved);
    product.bound(BinaryFn::Max, low - zero);
    product.bound(BinaryFn::Min, high - zero);
    // Signed codes are held as unsigned ones, 128 more.
    product.output = Output::U8((zero - low) as u8);
    Some(product)
}

/// A product whose result nobody quantises, with what follows as far as one user reads it.
fn unquantised(known: &Known, index: usize) -> Option<(usize, Product)> {
    let base = base(known, index)?;
    if base.scale.is_none() {
        // Dots have kernels of their own for that.
        base.conv.as_ref()?;
        let product = Product { output: Output::I32, ..apply(base, Vec::new())? };
        return Some((index, product));
    }
    let (mut root, mut best) = (index, apply(base, Vec::new())?);
    while let Some(user) = known.only_user(known.flat.nodes[root].results[0]) {
        let &[result] = known.flat.nodes[user].results.as_slice() else { break };
        let longer = chain(known, result, true, LENGTH).filter(|(_, base)| base.node == index);
        let Some(product) = longer.and_then(|(links, base)| apply(base, links)) else { break };
        (root, best) = (user, product);
    }
    Some((root, Product { output: Output::F32, ..best }))
}

/// The chain of a value that nobody else reads: it would be computed again.
fn before(known: &Known, value: ValueIndex, added: bool, length: usize) -> Option<(Vec<Link>, Base)> {
    known.only_user(value)?;
    chain(known, value, added, length)
}

fn chain(known: &Known, value: ValueIndex, added: bool, length: usize) -> Option<(Vec<Link>, Base)> {
    let (length, index) = (length.checked_sub(1)?, known.makers[value]?);
    if let Some(base) = base(known, index) {
        return Some((Vec::new(), base));
    }
    let on = |value: ValueIndex, link: Link| {
        let (mut links, base) = before(known, value, added, length)?;
        links.push(link);
        Some((links, base))
    };
    let node = &known.flat.nodes[index];
    if let Some(real) = known.real(value).filter(|_| added) {
        let quantised = known.quantised(real.codes).filter(|_| known.is_private(value, real.codes))?;
        let ((zero, scale), (low, high)) = (real.uniform()?, range_of(known.dtype(real.codes))?);
        // Where it is rounded matters to what it stands for.
        let same = zero == quantised.zero && (zero == 0.0 || !quantised.rounds_last);
        let (mut links, base) = before(known, quantised.before, true, length).filter(|_| same)?;
        links.push(Link::Requantised { low: low - zero, high: high - zero, scale });
        return Some((links, base));
    }
    let func = match &node.work {
        Work::Op(Op::Convert(DType::F32)) if known.dtype(node.operands[0]) == DType::I32 => {
            return before(known, node.operands[0], added, length);
        }
        Work::Op(Op::Binary(func)) => *func,
        _ => return None,
    };
    let (a, b) = (node.operands[0], node.operands[1]);
    let (x, numbers) = match (known.numbers(b), known.numbers(a)) {
        (Some(numbers), _) => (a, numbers),
        (None, Some(numbers)) if !matches!(func, BinaryFn::Sub | BinaryFn::Div) => (b, numbers),
        _ if func == BinaryFn::Add && !added => return with_residual(known, [a, b], length),
        _ => return None,
    };
    let uniform = || numbers.uniform().filter(|number| !number.is_nan());
    match (func, known.dtype(value)) {
        (BinaryFn::Add, DType::I32) => on(x, Link::Added(numbers)),
        (_, DType::I32) => None,
        (BinaryFn::Add, _) => on(x, Link::Plus(numbers)),
        (BinaryFn::Mul, _) if numbers.are_positive() => on(x, Link::Times(numbers)),
        (BinaryFn::Div, _) if numbers.are_positive() => on(x, Link::Over(numbers)),
        (BinaryFn::Max, _) => on(x, Link::Low(uniform()?)),
        (BinaryFn::Min, _) => on(x, Link::High(uniform()?)),
        _ => None,
    }
}

/// A sum of a product and of bytes of the result's sizes.
fn with_residual(known: &Known, values: [ValueIndex; 2], length: usize) -> Option<(Vec<Link>, Base)> {
    [values, [values[1], values[0]]].into_iter().find_map(|[x, other]| {
        let real = known.real(other)?;
        let (low, _) = range_of(known.dtype(real.codes))?;
        let (mut links, base) = before(known, x, true, length)?;
        links.push(Link::Residual(real, low));
        Some((links, base))
    })
}

fn apply(base: Base, links: Vec<Link>) -> Option<Product> {
    let (outputs, axis) = (base.outputs, base.axis);
    let scale = match &base.scale {
        Some(numbers) => (0..outputs).map(|index| numbers.at(index) as f32).collect(),
        None => vec![1.0; outputs],
    };
    let mut product = Product {
        base,
        added: vec![0; outputs],
        scale,
        shift: vec![0.0; outputs],
        low: f32::NEG_INFINITY,
        high: f32::INFINITY,
        residual: None,
        output: Output::F32,
        rounded: None,
    };
    for link in links {
        product.link(link, axis)?;
    }
    let finite = product.scale.iter().chain(&product.shift).all(|number| number.is_finite());
    // Codes that nothing is added to are better read as they are.
    let whole = product.rounded.is_none() || product.residual.is_some();
    (finite && whole).then_some(product)
}

impl Product {
    fn link(&mut self, link: Link, axis: usize) -> Option<()> {
        let fits = |numbers: &Numbers| numbers.axis.is_none_or(|own| own == axis);
        let waits = self.rounded.is_some() && self.residual.is_none();
        if waits && !matches!(link, Link::Residual(..)) {
            return None;
        }
        match link {
            Link::Added(numbers) if fits(&numbers) => {
                let added = (0..self.added.len()).map(|index| numbers.at(index) as i32);
                self.added.iter_mut().zip(added).for_each(|(sum, added)| *sum = sum.wrapping_add(added));
            }
            Link::Times(numbers) if fits(&numbers) => return self.times(&numbers, |x, by| x * by),
            Link::Over(numbers) if fits(&numbers) => return self.times(&numbers, |x, by| x / by),
            Link::Plus(numbers) if fits(&numbers) => return self.plus(&numbers),
            Link::Low(bound) => self.bound(BinaryFn::Max, bound),
            Link::High(bound) => self.bound(BinaryFn::Min, bound),
            Link::Requantised { low, high, scale } => self.requantised(low, high, scale),
            Link::Residual(real, low) => return self.add(&real, low),
            _ => return None,
        }
        Some(())
    }

    fn times(&mut self, numbers: &Numbers, by: impl Fn(f32, f32) -> f32) -> Option<()> {
        let uniform = numbers.uniform();
        if let Some((residual, _)) = &mut self.residual {
            let number = uniform?;
            let Residual { factor, other, shift, low, high, .. } = residual;
            [factor, other, shift, low, high].into_iter().for_each(|part| *part = by(*part, number));
            return Some(());
        }
        if let Some(number) = uniform {
            (self.low, self.high) = (by(self.low, number), by(self.high, number));
        } else if self.low.is_finite() || self.high.is_finite() {
            return None;
        }
        for (index, (scale, shift)) in self.scale.iter_mut().zip(&mut self.shift).enumerate() {
            let number = numbers.at(index) as f32;
            (*scale, *shift) = (by(*scale, number), by(*shift, number));
        }
        Some(())
    }

    fn plus(&mut self, numbers: &Numbers) -> Option<()> {
        let bounded = self.low.is_finite() || self.high.is_finite() || self.residual.is_some();
        let shifts = self.shift.iter_mut().enumerate();
        (!bounded).then(|| shifts.for_each(|(index, shift)| *shift += numbers.at(index) as f32))
    }

    fn bound(&mut self, func: BinaryFn, bound: f32) {
        let (low, high) = match &mut self.residual {
            Some((residual, _)) => (&mut residual.low, &mut residual.high),
            None => (&mut self.low, &mut self.high),
        };
        let by = if func == BinaryFn::Max { f32::max } else { f32::min };
        (*low, *high) = (by(*low, bound), by(*high, bound));
    }

    /// All of it, its bounds too.
    fn moved(&mut self, by: f32) {
        match &mut self.residual {
            Some((Residual { shift, low, high, .. }, _)) => {
                [shift, low, high].into_iter().for_each(|part| *part += by);
            }
            None => {
                let bounds = [&mut self.low, &mut self.high];
                self.shift.iter_mut().chain(bounds).for_each(|part| *part += by);
            }
        }
    }

    /// Rounded to the codes of a tensor of its own, which stand for reals.
    fn requantised(&mut self, low: f32, high: f32, scale: f32) {
        self.bound(BinaryFn::Max, low);
        self.bound(BinaryFn::Min, high);
        self.rounded = Some(scale);
    }

    fn add(&mut self, real: &Real, low: f32) -> Option<()> {
        let (zero, scale) = real.uniform()?;
        let residual = Residual {
            rounds: self.rounded.is_some(),
            factor: self.rounded.unwrap_or(1.0),
            other: scale,
            // Signed codes are held as unsigned ones, 128 more.
            shift: (low - zero) * scale,
            low: f32::NEG_INFINITY,
            high: f32::INFINITY,
        };
        self.residual = Some((residual, real.codes));
        Some(())
    }
}

/// The product that a node is, if its operands are bytes.
fn base(known: &Known, node: usize) -> Option<Base> {
    let FlatNode { work, operands, results, .. } = &known.flat.nodes[node];
    let (conv, weight_axis) = match work {
        Work::Op(Op::Conv(conv)) if is_of_images(known, conv, operands) => (Some(conv.clone()), 1),
        Work::Op(Op::Dot(dot)) => (None, dot_axis(known, dot, operands)?),
        _ => return None,
    };
    let result = results[0];
    let sizes = known.sizes(result);
    let (axis, output_axis) = if conv.is_some() { (1, 0) } else { (sizes.len() - 1, 1 - weight_axis) };
    if sizes.contains(&0) || operands.iter().any(|&value| known.sizes(value).contains(&0)) {
        return None;
    }
    let (x, zero, w, scale) = match known.dtype(result) {
        DType::F32 => dequantised(known, [operands[0], operands[1]], output_axis)?,
        DType::I32 => integers(known, [operands[0], operands[1]])?,
        _ => return None,
    };
    let constant = !known.is_constant(x) && known.is_constant(operands[1]);
    let base = Base { node, conv, weight_axis, x, zero, w, scale, axis, outputs: sizes[axis] };
    constant.then_some(base)
}

fn is_of_images(known: &Known, conv: &Conv, operands: &[ValueIndex]) -> bool {
    const MOST: usize = 1 << 20;
    let [from, window] = [known.sizes(operands[0]), known.sizes(operands[1])];
    let padding = || conv.padding.iter().flat_map(|pair| [pair.0, pair.1]);
    // Lines are images of height 1.
    matches!(from.len(), 3 | 4)
        && conv.input_dilation.iter().all(|&step| step == 1)
        && padding().all(|edge| edge.unsigned_abs() <= MOST as u64)
        && conv.strides.iter().chain(&conv.kernel_dilation).all(|&step| step <= MOST as u64)
        && window[2..].iter().all(|&size| size <= 255)
        && from.iter().chain(window).all(|&size| size <= MOST)
}

/// The contracted axis of the right side: one matrix, and the last axis of the left side.
fn dot_axis(known: &Known, dot: &Dot, operands: &[ValueIndex]) -> Option<usize> {
    let &[(left, right)] = dot.contract.as_slice() else { return None };
    let matrix = known.sizes(operands[1]).len() == 2 && dot.batch.is_empty();
    (matrix && left + 1 == known.sizes(operands[0]).len()).then_some(right)
}

type Operands = (ValueIndex, Zero, Weights, Option<Numbers>);

/// So many products of bytes add up within an i32. Sums of integers wrap beyond, as they should; those of reals must not.
const MOST_TERMS: u64 = i32::MAX as u64 / (255 * 128);

fn dequantised(known: &Known, [x, w]: [ValueIndex; 2], output_axis: usize) -> Option<Operands> {
    let (x, w) = (known.real(x)?, known.real(w)?);
    let (zero, x_scale) = x.uniform()?;
    let sizes = known.sizes(w.codes);
    let terms =
        sizes.iter().enumerate().filter(|&(axis, _)| axis != output_axis).map(|(_, &size)| size as u64);
    if terms.product::<u64>() > MOST_TERMS {
        return None;
    }
    let none = if known.dtype(w.codes) == DType::U8 { 128.0 } else { 0.0 };
    let plain = w.zero.uniform() == Some(none) && w.scale.axis.is_none_or(|axis| axis == output_axis);
    let values = w.scale.values.iter().map(|&scale| f64::from(x_scale * scale as f32));
    let scale = Numbers { values: values.collect(), axis: w.scale.axis };
    plain.then_some((x.codes, Zero::Number(zero), Weights::Codes(w.codes), Some(scale)))
}

fn integers(known: &Known, [x, w]: [ValueIndex; 2]) -> Option<Operands> {
    let (x, zero) = known.centred(x)?;
    let zero = match zero {
        None => Zero::Number(0.0),
        Some(zero) => match known.numbers(zero).and_then(|zero| zero.uniform()) {
            Some(zero) => Zero::Number(zero),
            None => Zero::Value(known.spread(zero)?),
        },
    };
    let (low, high) = range(known.flat, &known.makers, w)?;
    let codes = known.centred(w).filter(|&(codes, zero)| {
        let zero = zero.map_or(Some(0.0), |zero| known.numbers(zero)?.uniform());
        zero == Some(if known.dtype(codes) == DType::U8 { 128.0 } else { 0.0 })
    });
    let fits = low >= i8::MIN.into() && high <= i8::MAX.into();
    let weights = match codes {
        Some((codes, _)) => Weights::Codes(codes),
        None if fits => Weights::Wide(w),
        None => return None,
    };
    Some((x, zero, weights, None))
}
