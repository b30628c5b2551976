//! Makes steps of convolutions and pools over blocks of channels (`plan/layout.rs` says which these are), and
//! moves the elementwise nodes behind a convolution into it: scale and shift per channel (batch norm as it
//! is, so that no bit changes), a residual, bounds. What else follows becomes its epilogue as usual.

use super::layout::BlockedConv;
use super::{Place, Planner};
use crate::flat::{FlatNode, FlatType, ValueIndex, Work};
use crate::kernel::conv::{Tap, tiles};
use crate::kernel::lanes::LANES;
use crate::step::Kind;
use crate::step::conv::pack::Packing as Pack;
use crate::step::conv::pool::Pool;
use crate::step::conv::stage::Stage;
use crate::step::conv::{Conv, FinishSpec, Input};
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

impl Planner<'_> {
    pub(super) fn blocked_conv(&mut self, conv: &BlockedConv, node: &FlatNode) {
        let operands = self.operands(node);
        let [x, kernel]: [View; 2] = operands.try_into().expect("conv has two operands");
        let (x, kernel) = (self.dense(x), self.dense(kernel));
        let tiles = tiles(self.options.isa);
        let input = match (conv.is_depthwise(), conv.blocked_input) {
            (true, _) => Input::Depthwise,
            (_, true) => Input::Blocked,
            (_, false) => Input::Plain,
        };
        let pack = packing(conv, input, tiles.blocks);
        let stage = stage(conv, input);
        let flat = !stage.copies && conv.window == [1, 1];
        let taps = match input {
            Input::Depthwise => vec![window_taps(conv, &stage, (0, 0, LANES))],
            _ => (0..pack.groups).map(|group| group_taps(conv, &stage, &pack, group)).collect(),
        };
        let (pieces, elements) = (pack.pieces(), pack.elements());
        let kernel = self.packed(Packing::Conv(pack), kernel, elements);
        let (finish, mut extra, result) = self.finish_of(node.results[0]);
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
            finish,
            epilogue: None,
        });
        let mut inputs = vec![kernel, x];
        inputs.append(&mut extra);
        let sizes = self.flat.values[result].sizes.clone();
        self.views[result] = Some(self.emit(kind, inputs, DType::F32, &sizes));
    }

    /// Follows the users of a result as far as kernels can do their work. Gives the operands to add to the
    /// step, and the value that the step then computes.
    fn finish_of(&mut self, mut value: ValueIndex) -> (FinishSpec, Vec<View>, ValueIndex) {
        let (mut spec, mut operands, mut last) = (FinishSpec::default(), Vec::new(), None);
        while self.options.fuse
            && let Some(user) = self.only_user(value)
            && let Some(addition) = self.addition(user, value)
            && last.is_none_or(|last| last < addition.part())
        {
            last = Some(addition.part());
            match addition {
                Addition::Operand(part, view) => {
                    let index = Some(2 + operands.len());
                    match part {
                        Part::Scale => spec.scale = index,
                        Part::Shift => spec.shift = index,
                        _ => spec.residual = index,
                    }
                    operands.push(view);
                }
                Addition::Bound(Part::Low, bound) => spec.low = Some(bound),
                Addition::Bound(_, bound) => spec.high = Some(bound),
            }
            self.groups.take(user);
            value = self.flat.nodes[user].results[0];
        }
        (spec, operands, value)
    }

    fn only_user(&self, value: ValueIndex) -> Option<usize> {
        let &[user] = self.users[value].as_slice() else { return None };
        (!self.flat.results.contains(&value)).then_some(user)
    }

    /// What a node does to a value, if a finish can.
    fn addition(&self, node: usize, value: ValueIndex) -> Option<Addition> {
        let node = &self.flat.nodes[node];
        let Work::Op(Op::Binary(func)) = &node.work else { return None };
        let &[a, b] = node.operands.as_slice() else { return None };
        let other = if a == value { b } else { a };
        // Operands that are made later are not there yet; nor may the value meet itself.
        let view = self.views[other].clone().filter(|_| a != b)?;
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

/// One number per channel: the lanes of a block are neighbours, blocks follow each other, all else is alike.
fn is_per_channel(view: &View) -> bool {
    let along = |axis: usize, stride: isize| view.sizes[axis] <= 1 || view.strides[axis] == stride;
    let expected = [0, LANES as isize, 0, 0, 1];
    view.sizes.len() == 5 && view.sizes[4] == LANES && (0..5).all(|axis| along(axis, expected[axis]))
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

fn stage(conv: &BlockedConv, input: Input) -> Stage {
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
        (stage.plane, stage.task_rows) = (from, rows_for(to[0], channels * width * lanes * 4));
        return stage;
    }
    stage.copies = true;
    stage.phases = phases(conv, strides);
    let reach = |axis: usize| offsets(conv, axis).last().map_or(0, |last| last / strides[axis]);
    let columns = to[1] + reach(1);
    // Depthwise tasks copy one channel block at a time, which should stay in the L1 cache.
    let copied = if input == Input::Depthwise { 16 } else { channels };
    stage.task_rows = rows_for(to[0], copied * stage.phases.len() * columns * lanes * 4);
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
fn window_taps(conv: &BlockedConv, stage: &Stage, (block, first, lanes): (usize, usize, usize)) -> Vec<Tap> {
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
