//! Batches of images, some at a time. What a network of convolutions does with an image does not depend on the
//! others, but its intermediate results for all of them exceed the caches: done layer by layer, a batch of 16
//! goes through memory at every layer. So the part of a function that treats images alike becomes the body
//! of a loop over a few of them, whose arena is as much smaller.
//!
//! Before: a flat function with images in blocks. After: one with the same results, bit for bit: every op of
//! the body computes an image as if it were alone. Products stay outside: they share their weights among images.
//! Cost: linear.

use crate::constants::Constant;
use crate::flat::{Flat, FlatNode, FlatType, ValueIndex, Work};
use crate::recognise::Composite;
use pando_graph::{Dim, Dims, Op};

/// Small broadcasts arrive as constants; larger constants are what they are.
const MOST_COMPARED: usize = 1 << 16;
/// Bytes of an intermediate result below which a batch stays in the caches as it is.
const LARGE_BYTES: usize = 4 << 20;

/// How a value depends on the images.
#[derive(Clone, Copy, PartialEq)]
enum State {
    /// Computed from constants and steady parameters alone.
    Constant,
    /// As [`State::Constant`], and the same for every image: along axis 0 all parts are alike.
    Alike,
    /// Each image's part, along axis 0, from that image alone.
    PerImage,
    Other,
}

impl State {
    fn is_constant(self) -> bool {
        matches!(self, State::Constant | State::Alike)
    }

    /// Whether an image's part can be told.
    fn has_parts(self) -> bool {
        matches!(self, State::PerImage | State::Alike)
    }
}

/// The function with its images in a loop, `threads` at a time, where that is worth it. `steady`: parameters that are
/// weights.
pub fn split(flat: Flat, threads: usize, steady: &[usize]) -> Flat {
    let first = flat.nodes.iter().find_map(|node| match &node.work {
        Work::BlockedConv(conv) => Some(conv.from[0]),
        _ => None,
    });
    let Some(images) = first else { return flat };
    let at_once = if images.is_multiple_of(threads) { threads } else { 1 };
    if images <= at_once {
        return flat;
    }
    let states = states(&flat, images, steady);
    let bytes = |ty: &FlatType| ty.sizes.iter().product::<usize>() * ty.dtype.size_bytes() as usize;
    let values = flat.values.iter().zip(&states).filter(|&(_, &state)| state == State::PerImage);
    let largest = values.map(|(ty, _)| bytes(ty)).max().unwrap_or(0);
    if largest < LARGE_BYTES { flat } else { Split { states, images, at_once }.run(flat) }
}

fn states(flat: &Flat, images: usize, steady: &[usize]) -> Vec<State> {
    let mut states = vec![State::Other; flat.values.len()];
    for (index, &param) in flat.params.iter().enumerate() {
        if steady.contains(&index) {
            states[param] = State::Constant;
        } else if flat.values[param].sizes.first() == Some(&images) {
            states[param] = State::PerImage;
        }
    }
    for node in &flat.nodes {
        let state = state(flat, &states, node, images);
        node.results.iter().for_each(|&value| states[value] = state);
    }
    states
}

fn state(flat: &Flat, states: &[State], node: &FlatNode, images: usize) -> State {
    let copied = matches!(node.work, Work::Op(_) | Work::Constant(_) | Work::Composite(_));
    let constant = copied && node.operands.iter().all(|&value| states[value].is_constant());
    let first = |&value: &ValueIndex| flat.values[value].sizes.first() == Some(&images);
    let parts = node.results.iter().all(first) && keeps_apart(flat, states, node, images);
    match (constant, parts) {
        (true, true) => State::Alike,
        (true, false) => State::Constant,
        (false, true) => State::PerImage,
        (false, false) => State::Other,
    }
}

/// Whether an image's part of the results depends on its part of the operands alone.
fn keeps_apart(flat: &Flat, states: &[State], node: &FlatNode, images: usize) -> bool {
    let state = |index: usize| states[node.operands[index]];
    let all = || node.operands.iter().all(|&value| states[value].has_parts());
    let op = match &node.work {
        Work::BlockedConv(_) => return state(0).has_parts() && state(1).is_constant(),
        Work::Composite(Composite::Activation(_)) | Work::Shuffle { .. } => return all(),
        Work::Constant(constant) => {
            // What is packed only is a weight, which all images share.
            return constant.held().is_some_and(|tensor| are_alike(tensor.bytes(), images));
        }
        Work::Op(op) => op,
        _ => return false,
    };
    match op {
        Op::Broadcast { axes, .. } => {
            let source = &flat.values[node.operands[0]].sizes;
            let spread = axes.iter().zip(source).all(|(&axis, &size)| axis != 0 || size == 1);
            spread && state(0).is_constant() || axes.first() == Some(&0) && all()
        }
        Op::Pad(pad) => {
            let whole = pad.low[0] == 0 && pad.high[0] == 0 && pad.interior[0] == 0;
            whole && state(0).has_parts() && state(1).is_constant()
        }
        Op::Conv(_) => state(0).has_parts() && state(1).is_constant(),
        Op::Concat { axis } => *axis != 0 && all(),
        Op::Slice(slice) => slice.begin[0] == 0 && slice.step[0] == 1 && all(),
        Op::Transpose { perm } => perm.first() == Some(&0) && all(),
        Op::Reverse { axes } => !axes.contains(&0) && all(),
        Op::Reduce { axes, .. } => !axes.contains(&0) && all(),
        Op::ReduceWindow(window) => {
            window.window[0] == 1 && window.strides[0] == 1 && window.padding[0] == (0, 0) && all()
        }
        Op::Reshape { .. } => all(),
        Op::Bitcast(_) => false,
        _ => op.is_elementwise() && all(),
    }
}

fn are_alike(bytes: &[u8], images: usize) -> bool {
    let size = bytes.len() / images;
    size > 0 && bytes.len() <= MOST_COMPARED && bytes.chunks_exact(size).all(|part| part == &bytes[..size])
}

struct Split {
    states: Vec<State>,
    images: usize,
    at_once: usize,
}

impl Split {
    fn run(&self, flat: Flat) -> Flat {
        let mut body = Flat::default();
        let mut outer = Flat { values: flat.values.clone(), params: flat.params.clone(), ..Flat::default() };
        for (ty, &state) in flat.values.iter().zip(&self.states) {
            body.values.push(if state == State::PerImage { self.fewer(ty) } else { ty.clone() });
        }
        let per_image = |value: &ValueIndex| self.states[*value] == State::PerImage;
        let moves = |node: &FlatNode| node.results.iter().all(per_image) && !node.results.is_empty();
        body.params = flat.params.iter().copied().filter(per_image).collect();
        let stay = flat.nodes.iter().filter(|node| !moves(node)).flat_map(|node| &node.operands);
        let mut used: Vec<ValueIndex> = stay.chain(&flat.results).copied().filter(per_image).collect();
        used.sort_unstable();
        used.dedup();
        body.results = used.into_iter().filter(|value| !flat.params.contains(value)).collect();
        outer.results = flat.results;
        let (mut operands, results) = (body.params.clone(), body.results.clone());
        let mut parts = vec![None; self.states.len()];
        for node in flat.nodes {
            if moves(&node) {
                let operands = self.operands(&node, &parts);
                body.nodes.push(FlatNode { work: self.work(node.work), operands, ..node });
                continue;
            }
            if node.results.iter().all(|&value| self.states[value].is_constant()) {
                body.nodes.push(copy(&node));
                if let [value] = node.results[..]
                    && self.states[value] == State::Alike
                {
                    self.part(&node, value, &mut body, &mut parts);
                }
            }
            outer.nodes.push(node);
        }
        let count = self.images / self.at_once;
        let name = body.nodes.last().map_or_else(|| "".into(), |node| node.name.clone());
        let mut body = without_unused(body);
        let parts = body.params.len();
        let is_read = |value: &ValueIndex| body.nodes.iter().any(|node| node.operands.contains(value));
        let whole = flat.params.iter().filter(|&&value| !per_image(&value) && is_read(&value));
        operands.extend(whole.copied().collect::<Vec<ValueIndex>>());
        body.params = operands.clone();
        let work = Work::Images { count, parts, body: Box::new(body) };
        // Only parameters go in.
        outer.nodes.insert(0, FlatNode { work, operands, results, name });
        without_unused(outer)
    }

    /// The operands of a node on fewer images: of constants that are alike, the part for so many, where the
    /// node takes an image's part. Kernels, fillers and what is spread over images are whole.
    fn operands(&self, node: &FlatNode, parts: &[Option<ValueIndex>]) -> Vec<ValueIndex> {
        let taken = match &node.work {
            Work::BlockedConv(_) | Work::Op(Op::Pad(_) | Op::Conv(_)) => 1,
            Work::Op(Op::Broadcast { axes, .. }) if axes.first() != Some(&0) => 0,
            _ => node.operands.len(),
        };
        let of = |(index, &value): (usize, &ValueIndex)| {
            if index < taken { parts[value].unwrap_or(value) } else { value }
        };
        node.operands.iter().enumerate().map(of).collect()
    }

    /// Adds the part of a constant that is alike for all images.
    fn part(&self, node: &FlatNode, value: ValueIndex, body: &mut Flat, parts: &mut [Option<ValueIndex>]) {
        let work = match copy(node).work {
            Work::Constant(constant) => {
                let sizes = self.fewer(&body.values[value]).sizes;
                let shape: pando_base::Shape = sizes.iter().map(|&size| size as u64).collect();
                let tensor = constant.tensor();
                let mut part = pando_base::Tensor::zeros(tensor.dtype(), shape);
                let length = part.bytes().len();
                part.bytes_mut().copy_from_slice(&tensor.bytes()[..length]);
                Work::Constant(Constant::new(part))
            }
            work => self.work(work),
        };
        let operands = self.operands(node, parts);
        let ty = self.fewer(&body.values[value]);
        body.values.push(ty);
        let result = body.values.len() - 1;
        body.nodes.push(FlatNode { work, operands, results: vec![result], name: node.name.clone() });
        parts[value] = Some(result);
    }

    fn fewer(&self, ty: &FlatType) -> FlatType {
        let mut ty = ty.clone();
        ty.sizes[0] = self.at_once;
        ty
    }

    /// The work on fewer images.
    fn work(&self, work: Work) -> Work {
        let fewer = |mut dims: Dims| {
            dims[0] = Dim::Known(self.at_once as u64);
            dims
        };
        match work {
            Work::BlockedConv(mut conv) => {
                (conv.from[0], conv.to[0]) = (self.at_once, self.at_once);
                Work::BlockedConv(conv)
            }
            Work::Op(Op::Reshape { dims }) => Work::Op(Op::Reshape { dims: fewer(dims) }),
            Work::Op(Op::Broadcast { dims, axes }) => Work::Op(Op::Broadcast { dims: fewer(dims), axes }),
            Work::Op(Op::Slice(mut slice)) => {
                slice.end = fewer(slice.end);
                Work::Op(Op::Slice(slice))
            }
            work => work,
        }
    }
}

/// A node of constants.
fn copy(node: &FlatNode) -> FlatNode {
    let work = match &node.work {
        Work::Op(op) => Work::Op(op.clone()),
        Work::Constant(constant) => Work::Constant(constant.clone()),
        Work::Composite(composite) => Work::Composite(*composite),
        _ => unreachable!("the state says what is copied"),
    };
    FlatNode { work, operands: node.operands.clone(), results: node.results.clone(), name: node.name.clone() }
}

/// Without nodes whose results nobody reads: constants that only the other side does.
fn without_unused(mut flat: Flat) -> Flat {
    let mut used = vec![false; flat.values.len()];
    flat.results.iter().for_each(|&value| used[value] = true);
    for node in flat.nodes.iter().rev() {
        if node.results.iter().any(|&value| used[value]) {
            node.operands.iter().for_each(|&value| used[value] = true);
        }
    }
    flat.nodes.retain(|node| node.results.iter().any(|&value| used[value]));
    flat
}
