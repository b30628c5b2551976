//! Which images lie in blocks of channels. The direct kernels (`kernel/conv.rs`) make and read
//! `[images, channel blocks, height, width, LANES]`, so that a register holds the channels of one pixel. Here a
//! flat function is rewritten so that such values have these five dimensions: to everything after this pass
//! they are tensors like any other, and elementwise groups, epilogues, memory need to know nothing.
//!
//! Blocks begin at convolutions and go on through elementwise ops, pooling, padding, slices and concatenations
//! of whole blocks, and reductions of whole images; other users get the plain form, reordered once. Lanes
//! behind the last channel hold anything at all: nobody reads them but lane by lane.
//!
//! Before: any flat function. After: one with the same results, bit for bit but for the order of sums
//! inside a convolution, a pool or a reduction; all of a choice that depends on shapes alone. Cost: linear.

use super::phases::phases;
use crate::constants::Constant;
use crate::flat::{Flat, FlatNode, FlatType, ValueIndex, Work};
use crate::kernel::lanes::LANES;
use crate::recognise::Composite;
use crate::view::Sizes;
use pando_base::{DType, ReduceFn, Shape, Tensor};
use pando_graph::{Conv, Dim, Op, Pad, ReduceWindow, Slice, known_dims};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// A convolution whose result lies in blocks.
#[derive(Clone, Debug)]
pub struct BlockedConv {
    pub conv: Conv,
    /// Images, channels, height, width.
    pub from: [usize; 4],
    pub to: [usize; 4],
    pub window: [usize; 2],
    /// Whether the operand lies in blocks too.
    pub blocked_input: bool,
}

impl BlockedConv {
    pub fn multiply_adds(&self) -> u64 {
        let inputs = self.from[1] as u64 / self.conv.groups.max(1);
        let results: u64 = self.to.iter().map(|&size| size as u64).product();
        results * inputs * (self.window[0] * self.window[1]) as u64
    }

    pub fn is_depthwise(&self) -> bool {
        is_depthwise(&self.conv, self.from[1], self.to[1])
    }

    /// Whether the gradient of the kernel is made over blocks: groups fill theirs.
    pub fn has_kernel_gradient(&self) -> bool {
        let groups = self.conv.groups.max(1) as usize;
        let whole = |channels: usize| (channels / groups).is_multiple_of(LANES);
        let suits = groups == 1 || self.is_depthwise() || whole(self.from[1]) && whole(self.to[1]);
        suits && self.is_worthy()
    }

    /// Whether the sizes are those for which blocks are made.
    pub fn is_worthy(&self) -> bool {
        let (conv, from, to) = (&self.conv, &self.from, &self.to);
        let strides = (0..2).all(|axis| to[axis + 2] <= 1 || conv.strides[axis] <= MAX_STRIDE);
        let dense = (0..2).all(|axis| from[axis + 2] <= 1 || conv.input_dilation[axis] == 1);
        let padded = |axis: usize| {
            let padding = conv.padding[axis];
            from[axis + 2]
                .saturating_add(padding.0.unsigned_abs() as usize + padding.1.unsigned_abs() as usize)
        };
        let elements = from[1].max(LANES).checked_mul(padded(0)).and_then(|size| size.checked_mul(padded(1)));
        strides && dense && elements.is_some_and(|size| size <= MAX_ELEMENTS) && to[1] >= MIN_CHANNELS
    }
}

/// Strides beyond are copies into as many phases: such convolutions are products with little to share.
const MAX_STRIDE: u64 = 4;
/// Fewer result channels would leave most lanes empty.
const MIN_CHANNELS: usize = 8;
/// Offsets inside an image are 32 bits.
const MAX_ELEMENTS: usize = 1 << 30;

fn is_depthwise(conv: &Conv, from: usize, to: usize) -> bool {
    conv.groups as usize == from && from == to
}

/// The sizes of a value that may lie in blocks.
fn image(ty: &FlatType) -> Option<[usize; 4]> {
    ty.sizes.as_slice().try_into().ok()
}

fn f32_image(ty: &FlatType) -> Option<[usize; 4]> {
    image(ty).filter(|_| ty.dtype == DType::F32)
}

pub(super) fn blocked_sizes([images, channels, height, width]: [usize; 4]) -> Sizes {
    Sizes::from_slice(&[images, channels.div_ceil(LANES), height, width, LANES])
}

pub(super) fn dims(sizes: &[usize]) -> pando_graph::Dims {
    known_dims(&sizes.iter().map(|&size| size as u64).collect::<Vec<u64>>())
}

/// The function with images in blocks where convolutions make them so.
pub fn blocked(flat: Flat) -> Flat {
    let has_blocks = |node: &FlatNode| {
        let gradient = is_of_blocks(&node.work) || phases(&flat, node).is_some();
        gradient || blocked_conv(&flat, node).is_some()
    };
    if !flat.nodes.iter().any(has_blocks) {
        return flat;
    }
    let (count, shuffles) = (flat.values.len(), shuffles(&flat));
    let mut layout = Layout {
        sources: vec![Source::Other; count],
        plain: vec![None; count],
        blocks: vec![None; count],
        old: Flat { values: flat.values, ..Flat::default() },
        new: Flat::default(),
        name: "".into(),
    };
    for &param in &flat.params {
        let ty = layout.old.values[param].clone();
        let value = layout.value(ty);
        layout.plain[param] = Some(value);
        layout.new.params.push(value);
    }
    // Reshape, transpose and reshape, the channels in another order: the last one's node does it all.
    let mut skipped = Vec::new();
    for (index, node) in flat.nodes.into_iter().enumerate() {
        let begins = shuffles.get(&index).filter(|_| layout.blocks[node.operands[0]].is_some());
        match begins {
            Some(shuffle) => {
                layout.shuffle(node.operands[0], shuffle);
                skipped.extend(shuffle.nodes);
            }
            None if skipped.contains(&index) => {}
            None => layout.node(node),
        }
    }
    let results = flat.results.iter().map(|&value| layout.plain(value)).collect();
    Flat { results, ..layout.new }
}

/// Whether only steps over blocks do this work.
fn is_of_blocks(work: &Work) -> bool {
    matches!(
        work,
        Work::KernelGradient(_)
            | Work::BatchNorm { .. }
            | Work::BatchNormGradient { .. }
            | Work::PoolGradient(_)
    )
}

/// Set if the node is a convolution to be done in blocks.
fn blocked_conv(flat: &Flat, node: &FlatNode) -> Option<BlockedConv> {
    let Work::Op(Op::Conv(conv)) = &node.work else { return None };
    let [from, kernel] = [0, 1].map(|side| f32_image(&flat.values[node.operands[side]]));
    let (from, [_, _, height, width], to) = (from?, kernel?, f32_image(&flat.values[node.results[0]])?);
    let conv = BlockedConv { conv: conv.clone(), from, to, window: [height, width], blocked_input: false };
    conv.is_worthy().then_some(conv)
}

/// Nodes that put channels in another order.
struct Shuffle {
    channels: usize,
    groups: usize,
    /// The transpose and the second reshape.
    nodes: [usize; 2],
    result: ValueIndex,
}

/// By the first reshape: `[images, groups × each, …]` to `[images, each × groups, …]`.
fn shuffles(flat: &Flat) -> FxHashMap<usize, Shuffle> {
    let users = flat.users();
    let only_user = |node: usize| match users[flat.nodes[node].results[0]].as_slice() {
        &[user] if !flat.results.contains(&flat.nodes[node].results[0]) => Some(user),
        _ => None,
    };
    let reshape = |node: usize| matches!(flat.nodes[node].work, Work::Op(Op::Reshape { .. }));
    let found = (0..flat.nodes.len()).filter(|&first| reshape(first)).filter_map(|first| {
        let second = only_user(first)?;
        let third = only_user(second).filter(|&third| reshape(third))?;
        let Work::Op(Op::Transpose { perm }) = &flat.nodes[second].work else { return None };
        let from = &flat.values[flat.nodes[first].operands[0]];
        let split = &flat.values[flat.nodes[first].results[0]].sizes;
        let result = flat.nodes[third].results[0];
        let [images, channels, height, width] = f32_image(from)?;
        let &[_, groups, each, ..] = split.as_slice() else { return None };
        let expected = split.as_slice() == [images, groups, each, height, width]
            && perm.as_slice() == [0, 2, 1, 3, 4]
            && flat.values[result].sizes == from.sizes
            && from.sizes.iter().all(|&size| size > 0);
        expected.then_some((first, Shuffle { channels, groups, nodes: [second, third], result }))
    });
    found.collect()
}

/// What is known of an old value's origin.
#[derive(Clone)]
enum Source {
    Broadcast(ValueIndex, Vec<usize>),
    Other,
}

pub(super) struct Layout {
    /// Types only.
    pub(super) old: Flat,
    pub(super) new: Flat,
    sources: Vec<Source>,
    /// New values by old ones: as they were, and in blocks.
    pub(super) plain: Vec<Option<ValueIndex>>,
    pub(super) blocks: Vec<Option<ValueIndex>>,
    /// Of the old node at hand: what is made for it bears its name.
    pub(super) name: Arc<str>,
}

impl Layout {
    pub(super) fn value(&mut self, ty: FlatType) -> ValueIndex {
        self.new.values.push(ty);
        self.new.values.len() - 1
    }

    /// A value of an old one's type.
    fn value_like(&mut self, old: ValueIndex) -> ValueIndex {
        let ty = self.old.values[old].clone();
        self.value(ty)
    }

    pub(super) fn push(
        &mut self,
        work: Work,
        operands: Vec<ValueIndex>,
        dtype: DType,
        sizes: Sizes,
    ) -> ValueIndex {
        let result = self.value(FlatType { dtype, sizes });
        let name = self.name.clone();
        self.new.nodes.push(FlatNode { work, operands, results: vec![result], name });
        result
    }

    pub(super) fn op(&mut self, op: Op, operand: ValueIndex, sizes: &[usize]) -> ValueIndex {
        let dtype = self.new.values[operand].dtype;
        self.push(Work::Op(op), vec![operand], dtype, Sizes::from_slice(sizes))
    }

    pub(super) fn reshape(&mut self, x: ValueIndex, sizes: &[usize]) -> ValueIndex {
        self.op(Op::Reshape { dims: dims(sizes) }, x, sizes)
    }

    fn node(&mut self, node: FlatNode) {
        self.name = node.name.clone();
        if let Some(phases) = phases(&self.old, &node) {
            self.phases(&node, &phases);
        } else if let Some(mut conv) = blocked_conv(&self.old, &node) {
            let operand = node.operands[0];
            // Depthwise kernels know only blocks; others read planes as well.
            conv.blocked_input = conv.is_depthwise() || self.blocks[operand].is_some();
            let x = if conv.blocked_input { self.in_blocks(operand) } else { self.plain(operand) };
            let kernel = self.plain(node.operands[1]);
            let sizes = blocked_sizes(conv.to);
            let result = self.push(Work::BlockedConv(Box::new(conv)), vec![x, kernel], DType::F32, sizes);
            self.blocks[node.results[0]] = Some(result);
        } else if let Work::KernelGradient(conv) = &node.work {
            self.kernel_gradient(&node, conv);
        } else if let Work::PoolGradient(window) = &node.work {
            let operands = node.operands.iter().map(|&value| self.in_blocks(value)).collect();
            self.done(&node, Work::PoolGradient(window_in_blocks(window)), operands);
        } else if let Work::BatchNorm { epsilon } = node.work {
            self.batch_norm(&node, epsilon);
        } else if let Work::BatchNormGradient { epsilon } = node.work {
            self.batch_norm_gradient(&node, epsilon);
        } else if !self.continues(&node) {
            self.as_before(node);
        }
    }

    fn kernel_gradient(&mut self, node: &FlatNode, conv: &BlockedConv) {
        let &[x, gradient] = node.operands.as_slice() else { unreachable!("of an input and a gradient") };
        let mut conv = conv.clone();
        // Planes of few channels are read as they are; others are in blocks for other readers, too.
        conv.blocked_input = conv.is_depthwise() || self.blocks[x].is_some() || conv.from[1] >= MIN_CHANNELS;
        let x = if conv.blocked_input { self.in_blocks(x) } else { self.plain(x) };
        let gradient = self.in_blocks(gradient);
        let result = node.results[0];
        let sizes = self.old.values[result].sizes.clone();
        let work = Work::KernelGradient(Box::new(conv));
        self.plain[result] = Some(self.push(work, vec![x, gradient], DType::F32, sizes));
    }

    fn shuffle(&mut self, operand: ValueIndex, shuffle: &Shuffle) {
        let (x, sizes) = (self.in_blocks(operand), self.sizes_in_blocks(operand));
        let work = Work::Shuffle { channels: shuffle.channels, groups: shuffle.groups };
        self.blocks[shuffle.result] = Some(self.push(work, vec![x], DType::F32, sizes));
    }

    /// The node on plain values.
    fn as_before(&mut self, node: FlatNode) {
        if let Work::Op(Op::Broadcast { axes, .. }) = &node.work {
            self.sources[node.results[0]] = Source::Broadcast(node.operands[0], axes.clone());
        }
        let operands = node.operands.iter().map(|&value| self.plain(value)).collect();
        let results: Vec<ValueIndex> = node.results.iter().map(|&value| self.value_like(value)).collect();
        for (&old, &new) in node.results.iter().zip(&results) {
            self.plain[old] = Some(new);
        }
        self.new.nodes.push(FlatNode { work: node.work, operands, results, name: node.name });
    }

    /// Does the node on blocks if it works on blocks already and can.
    fn continues(&mut self, node: &FlatNode) -> bool {
        let all = || node.operands.iter().chain(&node.results);
        let images = all().all(|&value| image(&self.old.values[value]).is_some());
        let any = node.operands.iter().any(|&operand| self.blocks[operand].is_some());
        if !any || node.results.len() != 1 {
            return false;
        }
        let floats = images && all().all(|&value| self.old.values[value].dtype == DType::F32);
        match &node.work {
            Work::Composite(Composite::Activation(_)) if images => self.elementwise(node),
            Work::Op(Op::Bitcast(_)) => return false,
            Work::Op(op) if images && op.is_elementwise() => self.elementwise(node),
            Work::Op(Op::Concat { axis: 1 }) if images && self.joins_whole_blocks(&node.operands) => {
                self.elementwise(node);
            }
            Work::Op(Op::ReduceWindow(window)) if floats && over_pixels(window) => {
                self.one_operand(node, Op::ReduceWindow(window_in_blocks(window)));
            }
            Work::Op(Op::Pad(pad)) if pads_pixels(pad) && self.blocks[node.operands[0]].is_some() => {
                self.pad(node, pad);
            }
            Work::Op(Op::Slice(slice)) if begins_a_block(slice) => {
                let slice = slice_in_blocks(slice, &self.sizes_in_blocks(node.results[0]));
                self.one_operand(node, Op::Slice(slice));
            }
            Work::Op(Op::Reduce { func, axes }) if is_whole_image(axes) => self.reduce(node, *func),
            _ => return false,
        }
        true
    }

    pub(super) fn sizes_in_blocks(&self, value: ValueIndex) -> Sizes {
        blocked_sizes(image(&self.old.values[value]).expect("only images lie in blocks"))
    }

    /// The result of a node on blocks.
    pub(super) fn done(&mut self, node: &FlatNode, work: Work, operands: Vec<ValueIndex>) {
        let result = node.results[0];
        let (dtype, sizes) = (self.old.values[result].dtype, self.sizes_in_blocks(result));
        self.blocks[result] = Some(self.push(work, operands, dtype, sizes));
    }

    /// The same op, all operands in blocks.
    fn elementwise(&mut self, node: &FlatNode) {
        let operands = node.operands.iter().map(|&value| self.in_blocks(value)).collect();
        let work = match &node.work {
            Work::Op(op) => Work::Op(op.clone()),
            Work::Composite(composite) => Work::Composite(*composite),
            _ => unreachable!("the caller has looked"),
        };
        self.done(node, work, operands);
    }

    fn one_operand(&mut self, node: &FlatNode, op: Op) {
        let x = self.in_blocks(node.operands[0]);
        self.done(node, Work::Op(op), vec![x]);
    }

    fn pad(&mut self, node: &FlatNode, pad: &Pad) {
        let mut pad = pad.clone();
        pad.low.push(0);
        pad.high.push(0);
        pad.interior.push(0);
        let (x, filler) = (self.in_blocks(node.operands[0]), self.plain(node.operands[1]));
        self.done(node, Work::Op(Op::Pad(pad)), vec![x, filler]);
    }

    fn joins_whole_blocks(&self, operands: &[ValueIndex]) -> bool {
        let (_, before) = operands.split_last().expect("concat has operands");
        operands.iter().all(|&value| self.blocks[value].is_some())
            && before.iter().all(|&value| self.old.values[value].sizes[1].is_multiple_of(LANES))
    }

    /// Sums of whole images: one number per channel, plain.
    fn reduce(&mut self, node: &FlatNode, func: ReduceFn) {
        let sizes = image(&self.old.values[node.operands[0]]);
        let [images, channels, ..] = sizes.expect("only images lie in blocks");
        let x = self.in_blocks(node.operands[0]);
        let blocks = channels.div_ceil(LANES);
        let reduced = self.op(Op::Reduce { func, axes: vec![2, 3] }, x, &[images, blocks, LANES]);
        self.plain[node.results[0]] = Some(self.without_tail(reduced, images, channels));
    }

    /// `[images, blocks, LANES]` as `[images, channels]`.
    fn without_tail(&mut self, x: ValueIndex, images: usize, channels: usize) -> ValueIndex {
        let wide = channels.next_multiple_of(LANES);
        let x = self.reshape(x, &[images, wide]);
        self.first_channels(x, &[images, wide], channels)
    }

    fn first_channels(&mut self, x: ValueIndex, sizes: &[usize], channels: usize) -> ValueIndex {
        if sizes[1] == channels {
            return x;
        }
        let mut end = sizes.to_vec();
        end[1] = channels;
        let slice = Slice { begin: vec![0; end.len()], end: dims(&end), step: vec![1; end.len()] };
        self.op(Op::Slice(slice), x, &end)
    }

    /// A value as it was.
    pub(super) fn plain(&mut self, value: ValueIndex) -> ValueIndex {
        if let Some(known) = self.plain[value] {
            return known;
        }
        let x = self.blocks[value].expect("operands stand before their uses");
        let sizes = image(&self.old.values[value]).expect("only images lie in blocks");
        let [images, channels, height, width] = sizes;
        let wide = [images, channels.next_multiple_of(LANES), height, width];
        let blocks = wide[1] / LANES;
        let result = if height * width == 1 {
            let flat = self.without_tail(x, images, channels);
            self.reshape(flat, &sizes)
        } else {
            let perm = vec![0, 1, 4, 2, 3];
            let x = self.op(Op::Transpose { perm }, x, &[images, blocks, LANES, height, width]);
            let x = self.reshape(x, &wide);
            self.first_channels(x, &wide, channels)
        };
        self.plain[value] = Some(result);
        result
    }

    /// A value in blocks.
    pub(super) fn in_blocks(&mut self, value: ValueIndex) -> ValueIndex {
        if let Some(known) = self.blocks[value] {
            return known;
        }
        let sizes = image(&self.old.values[value]).expect("only images lie in blocks");
        let broadcast = self.broadcast_in_blocks(value, sizes);
        let result = broadcast.unwrap_or_else(|| {
            let x = self.plain(value);
            self.reorder(x, sizes)
        });
        self.blocks[value] = Some(result);
        result
    }

    /// A plain image in blocks, zeros behind the last channel.
    fn reorder(&mut self, x: ValueIndex, [images, channels, height, width]: [usize; 4]) -> ValueIndex {
        let x = self.with_tail(x, &[images, channels, height, width], 1);
        let blocks = channels.div_ceil(LANES);
        if height * width == 1 {
            return self.reshape(x, &[images, blocks, 1, 1, LANES]);
        }
        let x = self.reshape(x, &[images, blocks, LANES, height, width]);
        let sizes = [images, blocks, height, width, LANES];
        self.op(Op::Transpose { perm: vec![0, 1, 3, 4, 2] }, x, &sizes)
    }

    /// With zeros up to whole blocks along an axis.
    pub(super) fn with_tail(&mut self, x: ValueIndex, sizes: &[usize], axis: usize) -> ValueIndex {
        let mut wide = sizes.to_vec();
        wide[axis] = sizes[axis].next_multiple_of(LANES);
        if wide == sizes {
            return x;
        }
        let rank = sizes.len();
        let mut pad = Pad { low: vec![0; rank], high: vec![0; rank], interior: vec![0; rank] };
        pad.high[axis] = (wide[axis] - sizes[axis]) as i64;
        let dtype = self.new.values[x].dtype;
        let zero = Tensor::zeros(dtype, Shape::default());
        let zero = self.push(Work::Constant(Constant::new(zero)), Vec::new(), dtype, Sizes::new());
        self.push(Work::Op(Op::Pad(pad)), vec![x, zero], dtype, Sizes::from_slice(&wide))
    }

    /// A broadcast of what has at most one channel per lane: only that is reordered.
    fn broadcast_in_blocks(&mut self, value: ValueIndex, to: [usize; 4]) -> Option<ValueIndex> {
        let Source::Broadcast(source, axes) = self.sources[value].clone() else { return None };
        let sizes = self.old.values[source].sizes.to_vec();
        let blocks = to[1].div_ceil(LANES);
        let (x, axes) = match axes.as_slice() {
            [] => (self.plain(source), Vec::new()),
            [1] if sizes[0] == to[1] => {
                let x = self.plain(source);
                let x = self.with_tail(x, &sizes, 0);
                (self.reshape(x, &[blocks, LANES]), vec![1, 4])
            }
            [0, 1] if sizes[1] == to[1] => {
                let x = self.plain(source);
                let x = self.with_tail(x, &sizes, 1);
                (self.reshape(x, &[sizes[0], blocks, LANES]), vec![0, 1, 4])
            }
            [0, 1, 2, 3] if sizes[1] == to[1] => (self.in_blocks(source), vec![0, 1, 2, 3, 4]),
            [0, 1, 2, 3] if sizes[1] == 1 => (self.plain(source), vec![0, 1, 2, 3]),
            _ => return None,
        };
        let sizes = blocked_sizes(to);
        Some(self.op(Op::Broadcast { dims: dims(&sizes), axes }, x, &sizes))
    }
}

pub fn over_pixels(window: &ReduceWindow) -> bool {
    let plain =
        |axis: usize| window.window[axis] == 1 && window.strides[axis] == 1 && window.padding[axis] == (0, 0);
    matches!(window.func, ReduceFn::Max | ReduceFn::Sum)
        && plain(0)
        && plain(1)
        && super::reduce::is_small(&window.window)
}

fn window_in_blocks(window: &ReduceWindow) -> ReduceWindow {
    let mut window = window.clone();
    window.window.push(1);
    window.strides.push(1);
    window.padding.push((0, 0));
    window.dilation.push(1);
    window
}

fn pads_pixels(pad: &Pad) -> bool {
    pad.low.len() == 4
        && (0..2).all(|axis| pad.low[axis] == 0 && pad.high[axis] == 0 && pad.interior[axis] == 0)
}

fn is_whole_image(axes: &[usize]) -> bool {
    matches!(axes, [2, 3] | [3, 2])
}

fn begins_a_block(slice: &Slice) -> bool {
    slice.step.len() == 4 && slice.step[1] == 1 && (slice.begin[1] as usize).is_multiple_of(LANES)
}

fn slice_in_blocks(slice: &Slice, sizes: &[usize]) -> Slice {
    let mut slice = slice.clone();
    slice.begin[1] /= LANES as u64;
    slice.end[1] = Dim::Known(slice.begin[1] + sizes[1] as u64);
    slice.begin.push(0);
    slice.end.push(Dim::Known(LANES as u64));
    slice.step.push(1);
    slice
}
