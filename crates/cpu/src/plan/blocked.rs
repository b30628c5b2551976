//! Makes steps of convolutions and pools over blocks of channels (`plan/layout.rs` says which these are), and
//! moves the elementwise nodes behind a convolution into it: scale and shift per channel (batch norm as it
//! is, so that no bit changes), a residual, bounds. What else follows becomes its epilogue as usual.

use super::layout::BlockedConv;
use super::{Place, Planner};
use crate::flat::{FlatNode, FlatType, ValueIndex, Work};
use crate::kernel::conv::{Tap, tiles};
use crate::kernel::elementwise;
use crate::kernel::finish::pass_loop;
use crate::kernel::lanes::LANES;
use crate::kernel::winograd::transforms;
use crate::recognise::{Activation, Composite};
use crate::step::Kind;
use crate::step::conv::finish::{FinishSpec, Pass, PerChannel};
use crate::step::conv::pack::Packing as Pack;
use crate::step::conv::pool::Pool;
use crate::step::conv::shuffle::Shuffle;
use crate::step::conv::stage::Stage;
use crate::step::conv::winograd::{self, Winograd, suits};
use crate::step::conv::{Conv, Input};
use crate::step::packing::Packing;
use crate::view::View;
use pando_base::{BinaryFn, DType, ReduceFn};
use pando_graph::{Op, ReduceWindow};

/// The parts of a finish in the order kernels apply them.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum Part {
    Scale,
    Shift,
    Residual,
    Low,
    High,
}

/// What a node adds to a finish.
enum Addition {
    Operand(Part, View),
    Bound(Part, f32),
}

impl Addition {
    fn part(&self) -> Part {
        match self {
            Addition::Operand(part, _) | Addition::Bound(part, _) => *part,
        }
    }
}

/// Nodes that one finish does.
#[derive(Default)]
struct Chain {
    spec: FinishSpec,
    operands: Vec<View>,
    nodes: Vec<usize>,
    result: ValueIndex,
}

impl Chain {
    fn add(&mut self, addition: Addition, first: usize) {
        match addition {
            Addition::Operand(part, view) => {
                let index = first + self.operands.len();
                let image = if view.sizes[0] > 1 { view.strides[0] as usize } else { 0 };
                match part {
                    Part::Scale => self.spec.scale = Some(PerChannel { index, image }),
                    Part::Shift => self.spec.shift = Some(PerChannel { index, image }),
                    _ => self.spec.residual = Some(index),
                }
                self.operands.push(view);
            }
            Addition::Bound(Part::Low, bound) => self.spec.low = Some(bound),
            Addition::Bound(_, bound) => self.spec.high = Some(bound),
        }
    }
}

impl Planner<'_> {
    pub(super) fn blocked_conv(&mut self, conv: &BlockedConv, node: &FlatNode) {
        let operands = self.operands(node);
        let [x, kernel]: [View; 2] = operands.try_into().expect("conv has two operands");
        let x = self.dense(x);
        if let Some((kind, kernel)) = self.unit_conv(conv, &kernel) {
            return self.emit_conv(kind, [kernel, x], node.results[0]);
        }
        if conv.blocked_input
            && suits(&conv.conv, conv.window, [conv.from[1], conv.to[1]], [conv.to[2], conv.to[3]])
        {
            let (kind, kernel) = self.winograd(conv, kernel);
            return self.emit_conv(kind, [kernel, x], node.results[0]);
        }
        let tiles = tiles(self.options.isa);
        let input = match (conv.is_depthwise(), conv.blocked_input) {
            (true, _) => Input::Depthwise,
            (_, true) => Input::Blocked,
            (_, false) => Input::Plain,
        };
        let pack = packing(conv, input, tiles.blocks);
        let stage = stage(conv, input);
        let flat = !stage.copies && conv.window == [1, 1] && conv.from[2..] == conv.to[2..];
        let taps = match input {
            Input::Depthwise => vec![window_taps(conv, &stage, (0, 0, LANES))],
            _ => (0..pack.groups).map(|group| group_taps(conv, &stage, &pack, group)).collect(),
        };
        let (pieces, elements) = (pack.pieces(), pack.elements());
        let kernel = self.packed(Packing::Conv(pack), kernel, elements);
        let [_, _, height, width] = conv.to;
        let kind = Kind::Conv(Conv {
            images: conv.to[0],
            rows: if flat { 1 } else { height },
            columns: if flat { height * width } else { width },
            blocks: conv.to[1].div_ceil(LANES),
            input,
            stage,
            pieces,
            taps,
            tiles,
            multiply_adds: conv.multiply_adds(),
            finish: FinishSpec::default(),
            epilogue: None,
        });
        self.emit_conv(kind, [kernel, x], node.results[0]);
    }

    fn winograd(&mut self, conv: &BlockedConv, kernel: View) -> (Kind, View) {
        let tiles = tiles(self.options.isa);
        let pack = winograd::Packing { outputs: conv.to[1], inputs: conv.from[1], blocks: tiles.blocks };
        let elements = pack.elements();
        let kernel = self.packed(Packing::Winograd(pack), kernel, elements);
        let kind = Kind::Winograd(Winograd {
            images: conv.to[0],
            inputs: conv.from[1],
            outputs: conv.to[1],
            from: [conv.from[2], conv.from[3]],
            to: [conv.to[2], conv.to[3]],
            low: [conv.conv.padding[0].0, conv.conv.padding[1].0],
            tiles,
            transforms: transforms(self.options.isa),
            multiply_adds: conv.multiply_adds(),
            finish: FinishSpec::default(),
            epilogue: None,
        });
        (kind, kernel)
    }

    /// Appends a convolution with as much of what follows its result as kernels can do.
    fn emit_conv(&mut self, mut kind: Kind, operands: [View; 2], result: ValueIndex) {
        let chain = self.chain(result, self.only_user(result), operands.len());
        chain.nodes.iter().for_each(|&node| self.groups.take(node));
        match &mut kind {
            Kind::Conv(conv) => conv.finish = chain.spec,
            Kind::Winograd(winograd) => winograd.finish = chain.spec,
            Kind::UnitConv(conv) => conv.finish = chain.spec,
            _ => unreachable!("only convolutions have finishes"),
        }
        let (result, mut inputs) = (chain.result, Vec::from(operands));
        inputs.extend(chain.operands);
        let sizes = self.flat.values[result].sizes.clone();
        self.views[result] = Some(self.emit(kind, inputs, DType::F32, &sizes));
    }

    /// Follows the users of a value, from `user` on, as far as kernels can do their work. Operands will be the
    /// step's from `first` on.
    fn chain(&mut self, mut value: ValueIndex, mut user: Option<usize>, first: usize) -> Chain {
        let mut chain = Chain { result: value, ..Chain::default() };
        let mut last = None;
        while self.options.fuse
            && let Some(node) = user
            && let Some(addition) = self.addition(node, value)
            && last.is_none_or(|last| last < addition.part())
        {
            last = Some(addition.part());
            chain.add(addition, first);
            chain.nodes.push(node);
            value = self.flat.nodes[node].results[0];
            user = self.only_user(value);
        }
        if self.options.fuse
            && let Some((activation, nodes)) = self.activation(value, user)
        {
            value = self.flat.nodes[nodes[nodes.len() - 1]].results[0];
            chain.spec.activation = Some(elementwise::activation(self.options.isa, activation));
            chain.nodes.extend(nodes);
        }
        chain.result = value;
        chain
    }

    /// The activation that follows a value, and its nodes: `x · sigmoid(x)` may come as two.
    fn activation(&self, value: ValueIndex, user: Option<usize>) -> Option<(Activation, Vec<usize>)> {
        let known = |node: usize| match self.flat.nodes[node].work {
            Work::Composite(Composite::Activation(known)) => Some(known),
            _ => None,
        };
        let smooth = |known: &Activation| matches!(known, Activation::Sigmoid | Activation::Silu);
        if let Some(node) = user {
            return known(node).filter(smooth).map(|known| (known, vec![node]));
        }
        let &[gate, product] = self.users[value].as_slice() else { return None };
        let sigmoid = self.flat.nodes[gate].results[0];
        let operands = &self.flat.nodes[product].operands;
        let is_product = matches!(self.flat.nodes[product].work, Work::Op(Op::Binary(BinaryFn::Mul)))
            && (operands.as_slice() == [value, sigmoid] || operands.as_slice() == [sigmoid, value]);
        let inside = !self.flat.results.contains(&value) && self.only_user(sigmoid) == Some(product);
        let silu = known(gate) == Some(Activation::Sigmoid) && is_product && inside;
        silu.then_some((Activation::Silu, vec![gate, product]))
    }

    /// A group as a pass over an image in blocks, if that does all of its nodes.
    pub(super) fn pass(&mut self, root: usize, members: &[usize]) -> Option<View> {
        let node = &self.flat.nodes[members[0]];
        if !self.options.fuse {
            return None;
        }
        let start = node.operands.iter().copied().find(|&value| {
            let view = self.views[value].as_ref();
            view.is_some_and(|view| view.sizes.len() == 5 && view.sizes[4] == LANES && view.is_dense())
        })?;
        let chain = self.chain(start, Some(members[0]), 1);
        // Activations alone are cheaper as programs.
        if chain.nodes != members
            || chain.spec.operands() == 0 && chain.spec.low.or(chain.spec.high).is_none()
        {
            return None;
        }
        let x = self.view(start);
        // Better done by the step that makes the operand.
        if self.product_behind(root, 0, std::slice::from_ref(&x), x.dtype).is_some() {
            return None;
        }
        let ty = &self.flat.values[self.flat.nodes[root].results[0]];
        let (blocks, pixels) = (x.sizes[1], x.sizes[2] * x.sizes[3]);
        let pass = Pass { finish: chain.spec, pass: pass_loop(self.options.isa), blocks, pixels };
        let inputs = [x].into_iter().chain(chain.operands).collect();
        Some(self.emit(Kind::Pass(pass), inputs, ty.dtype, &ty.sizes))
    }

    fn only_user(&self, value: ValueIndex) -> Option<usize> {
        let &[user] = self.users[value].as_slice() else { return None };
        (!self.flat.results.contains(&value)).then_some(user)
    }

    /// What a node does to a value, if a finish can.
    fn addition(&mut self, node: usize, value: ValueIndex) -> Option<Addition> {
        let node = &self.flat.nodes[node];
        let Work::Op(Op::Binary(func)) = &node.work else { return None };
        let &[a, b] = node.operands.as_slice() else { return None };
        let other = if a == value { b } else { a };
        let view = if a == b { None } else { self.available(other) }?;
        let per_channel = is_per_channel(&view);
        let bound = || self.uniform(&view);
        match func {
            BinaryFn::Mul if per_channel => Some(Addition::Operand(Part::Scale, view)),
            BinaryFn::Add if per_channel => Some(Addition::Operand(Part::Shift, view)),
            BinaryFn::Add if view.is_dense() => Some(Addition::Operand(Part::Residual, view)),
            // Bounds for which one comparison does what the function says.
            BinaryFn::Max => bound()
                .filter(|low| low.to_bits() != (-0f32).to_bits())
                .map(|low| Addition::Bound(Part::Low, low)),
            BinaryFn::Min => {
                bound().filter(|&high| high != 0.0).map(|high| Addition::Bound(Part::High, high))
            }
            _ => None,
        }
    }

    /// A value that is planned, or can be at once: broadcasts of what is there stand where they are first used.
    fn available(&mut self, value: ValueIndex) -> Option<View> {
        if self.views[value].is_none() {
            let (index, flat) = (self.makers[value]?, self.flat);
            let node = &flat.nodes[index];
            let moves = match &node.work {
                Work::Constant(_) => true,
                Work::Op(op) => matches!(op, Op::Broadcast { .. } | Op::Reshape { .. } | Op::Pad(_)),
                _ => false,
            };
            let own = moves && self.groups.root(index).is_none();
            if !own || !node.operands.iter().all(|&operand| self.available(operand).is_some()) {
                return None;
            }
            self.node(index, node).ok()?;
        }
        self.views[value].clone()
    }

    /// The number that all elements of a constant are.
    fn uniform(&self, view: &View) -> Option<f32> {
        let Some(Place::Const(tensor)) = &self.buffers[view.buffer].place else { return None };
        let elements = tensor.as_slice::<f32>()?;
        let (low, high) = view.extent()?;
        let elements = elements.get(usize::try_from(low).ok()?..=usize::try_from(high).ok()?)?;
        let first = *elements.first()?;
        let same = elements.iter().all(|element| element.to_bits() == first.to_bits());
        (same && !first.is_nan()).then_some(first)
    }

    pub(super) fn shuffle(&mut self, channels: usize, groups: usize, node: &FlatNode) -> View {
        let x = self.view(node.operands[0]);
        let x = self.dense(x);
        let (pixels, sizes) = (x.sizes[2] * x.sizes[3], x.sizes.clone());
        self.emit(Kind::Shuffle(Shuffle { channels, groups, pixels }), vec![x], DType::F32, &sizes)
    }

    /// A window or reduction over blocks, if this is one.
    pub(super) fn pool(&mut self, pool: Pool, x: View, ty: &FlatType) -> View {
        let x = self.dense(x);
        self.emit(Kind::Pool(pool), vec![x], DType::F32, &ty.sizes)
    }

    /// For images in blocks: windows over pixels of f32.
    pub(super) fn window_pool(&self, window: &ReduceWindow, x: &View, ty: &FlatType) -> Option<Pool> {
        let across = |axis: usize| {
            window.window[axis] == 1 && window.strides[axis] == 1 && window.padding[axis] == (0, 0)
        };
        let over_pixels = window.window.len() == 5 && [0, 1, 4].into_iter().all(across);
        // Steps that are never taken may be absurdly large.
        let step = |taken: bool, step: u64| if taken { step as usize } else { 1 };
        let mut pool = self.whole_pool(window.func, x).filter(|_| over_pixels)?;
        for axis in 0..2 {
            pool.to[axis] = ty.sizes[axis + 2];
            pool.window[axis] = window.window[axis + 2] as usize;
            pool.strides[axis] = step(pool.to[axis] > 1, window.strides[axis + 2]);
            pool.dilation[axis] = step(pool.window[axis] > 1, window.dilation[axis + 2]);
            pool.low[axis] = window.padding[axis + 2].0;
        }
        Some(pool)
    }

    /// For images in blocks: the whole of each plane.
    pub(super) fn whole_pool(&self, func: ReduceFn, x: &View) -> Option<Pool> {
        let &[_, _, height, width, LANES] = x.sizes.as_slice() else { return None };
        let known = matches!(func, ReduceFn::Max | ReduceFn::Sum) && x.dtype == DType::F32;
        known.then_some(Pool {
            isa: self.options.isa,
            max: func == ReduceFn::Max,
            from: [height, width],
            to: [1, 1],
            window: [height, width],
            strides: [1, 1],
            low: [0, 0],
            dilation: [1, 1],
        })
    }
}

/// One number per channel, for all images or for each: the lanes of a block are neighbours, blocks follow each
/// other, pixels are alike.
fn is_per_channel(view: &View) -> bool {
    let along = |axis: usize, stride: isize| view.sizes[axis] <= 1 || view.strides[axis] == stride;
    let expected = [(1, LANES as isize), (2, 0), (3, 0), (4, 1)];
    view.sizes.len() == 5
        && view.sizes[4] == LANES
        && (view.sizes[0] <= 1 || view.strides[0] >= 0)
        && expected.into_iter().all(|(axis, stride)| along(axis, stride))
}

fn packing(conv: &BlockedConv, input: Input, blocks: usize) -> Pack {
    let groups = conv.conv.groups as usize;
    Pack {
        outputs: conv.to[1],
        inputs: conv.from[1] / groups.max(1),
        groups,
        window: conv.window[0] * conv.window[1],
        lanes: if input == Input::Plain { 1 } else { LANES },
        blocks,
        depthwise: input == Input::Depthwise,
    }
}

pub(super) fn stage(conv: &BlockedConv, input: Input) -> Stage {
    stage_of(conv, input, 4)
}

/// For a task that keeps so many bytes of each input.
pub(super) fn stage_of(conv: &BlockedConv, input: Input, input_bytes: usize) -> Stage {
    let [_, channels, height, width] = conv.from;
    let [from, to] = [[height, width], [conv.to[2], conv.to[3]]];
    let low = [conv.conv.padding[0].0, conv.conv.padding[1].0];
    // Steps that are never taken may be absurdly large.
    let step = |taken: bool, step: u64| if taken { step as usize } else { 1 };
    let strides = [0, 1].map(|axis| step(to[axis] > 1, conv.conv.strides[axis]));
    let lanes = if input == Input::Plain { 1 } else { LANES };
    let channels = if input == Input::Plain { channels } else { channels.div_ceil(LANES) };
    let as_it_is = low == [0; 2] && conv.conv.padding.iter().all(|pair| pair.1 <= 0) && strides == [1; 2];
    let mut stage = Stage { channels, lanes, from, low, strides, phases: vec![[0; 2]], ..Stage::default() };
    if as_it_is {
        (stage.plane, stage.task_rows) = (from, rows_for(to[0], channels * width * lanes * input_bytes));
        return stage;
    }
    stage.copies = true;
    stage.phases = phases(conv, strides);
    let reach = |axis: usize| offsets(conv, axis).last().map_or(0, |last| last / strides[axis]);
    let columns = to[1] + reach(1);
    // Depthwise tasks copy one channel block at a time, which should stay in the L2 cache with the results.
    let copied = if input == Input::Depthwise { 2 } else { channels };
    stage.task_rows = rows_for(to[0], copied * stage.phases.len() * columns * lanes * input_bytes);
    stage.plane = [stage.task_rows + reach(0), columns];
    stage
}

fn rows_for(rows: usize, row_bytes: usize) -> usize {
    Conv::rows_per_task(rows, row_bytes)
}

/// Distances of the window's elements along an axis, in padded pixels.
fn offsets(conv: &BlockedConv, axis: usize) -> Vec<usize> {
    let dilation = if conv.window[axis] > 1 { conv.conv.kernel_dilation[axis] as usize } else { 1 };
    (0..conv.window[axis]).map(|element| element * dilation).collect()
}

fn phases(conv: &BlockedConv, strides: [usize; 2]) -> Vec<[usize; 2]> {
    let mut phases = Vec::new();
    for y in offsets(conv, 0) {
        for x in offsets(conv, 1) {
            let phase = [y % strides[0], x % strides[1]];
            if !phases.contains(&phase) {
                phases.push(phase);
            }
        }
    }
    if phases.is_empty() { vec![[0; 2]] } else { phases }
}

/// The window over some lanes of one plane: block, first lane, lanes.
pub(super) fn window_taps(
    conv: &BlockedConv,
    stage: &Stage,
    (block, first, lanes): (usize, usize, usize),
) -> Vec<Tap> {
    let columns = offsets(conv, 1);
    let rows = offsets(conv, 0).into_iter();
    let places = rows.flat_map(|y| columns.iter().map(move |&x| [y, x]));
    let base = block * stage.channel_elements() + first;
    places.map(|at| Tap { offset: (base + stage.position(at)) as u32, lanes: lanes as u32 }).collect()
}

fn group_taps(conv: &BlockedConv, stage: &Stage, pack: &Pack, group: usize) -> Vec<Tap> {
    let blocks = pack.input_blocks(group).into_iter();
    blocks.flat_map(|block| window_taps(conv, stage, block)).collect()
}
