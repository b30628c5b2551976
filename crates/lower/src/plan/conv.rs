//! How a convolution is split: batch, output channels, the outermost two field dimensions, and, into partial sums,
//! input channels and the kernel's outermost dimension, each over an axis of a grid of tiles. A tile receives the
//! window of the input that its outputs need, so neighbours' inputs overlap.
//!
//! The gradient of a kernel is such a convolution, too, with the batch for input channels and the field for a kernel:
//! it lives from splitting the kernel, and from [`ConvMethod`]s that take channels and kernel positions together.
//!
//! Operands are not exchanged as those of a matrix product are. Stored weights stay the matrix unit's weights (see
//! [`Planner::matmul_plan`]), and with both operands computed the search was measured with the pointwise layers of
//! ResNet-50 and EfficientNet-B4 in f16, batches 1, 4 and 16, results in either order for nothing: no layer of ResNet-50
//! gets better, of EfficientNet-B4's only those between 272 and 1632 channels do, by 1 to 5 %, one of them by 19 %.

use super::conv_split::Problem;
use super::search::Search;
use super::{Cost, Method, Planner, stages_for_axes};
use pando_graph::{Conv, Node, NodeId};
use pando_tile::kernel::{ConvAttrs, ConvMethod};
use pando_tile::{Grid, Layout, Part, Region, Span};
use smallvec::SmallVec;

/// Axes of a convolution's grid; output channels vary fastest, since neighbours then want the same input.
pub const INPUT_CHANNELS: usize = 0;
pub const KERNEL: usize = 1;
pub const BATCH: usize = 2;
pub const FIELD: [usize; 2] = [3, 4];
pub const OUTPUT_CHANNELS: usize = 5;

#[derive(Clone, Debug, PartialEq)]
pub struct ConvPlan {
    pub attrs: ConvAttrs,
    /// Parts per axis, in the order of the axis constants.
    pub parts: [u64; 6],
    pub grains: [u64; 6],
    pub stages: Vec<u64>,
    /// Elements of the windows that the fullest tile writes out.
    pub window_elements: u64,
    /// What the busiest tile computes with, as the kernel's cycles have it.
    pub vertex: &'static str,
    pub cost: Cost,
}

impl ConvPlan {
    pub fn grid(&self) -> Grid {
        let extents: SmallVec<[u32; 5]> = self.parts.iter().map(|&parts| parts as u32).collect();
        Grid::packed(0, &extents)
    }

    fn span(&self, axis: usize, size: u64) -> Span {
        Span::Part(Part::even(axis, size, self.grains[axis]))
    }

    /// The windows of the input that each tile's outputs need.
    pub fn input_region(&self, input: &[u64], weights: &[u64], output: &[u64]) -> Region {
        let channels = if self.attrs.groups == 1 {
            self.span(INPUT_CHANNELS, input[1])
        } else {
            Span::Part(Part::even(OUTPUT_CHANNELS, input[1], weights[1]))
        };
        let field = (2..input.len()).map(|dim| {
            let index = dim - 2;
            let Some(&axis) = FIELD.get(index) else { return Span::full(input[dim]) };
            let attrs = &self.attrs;
            let low = -(attrs.padding_low[index] as i64);
            // Inputs of a part of the outputs under the whole kernel, or of all outputs under a part of it.
            let (axis, split, step, other, other_step) = if index == 0 && self.parts[KERNEL] > 1 {
                (KERNEL, weights[dim], attrs.kernel_dilation[index], output[dim], attrs.strides[index])
            } else {
                (axis, output[dim], attrs.strides[index], weights[dim], attrs.kernel_dilation[index])
            };
            let reach = ((other - 1) * other_step) as i64;
            let part = Part::even(axis, split, self.grains[axis]);
            Span::Part(Part { mul: step, lo: low, hi: low + reach + 1, ..part })
        });
        [self.span(BATCH, input[0]), channels].into_iter().chain(field).collect()
    }

    /// The input's blocks without overlap and copies.
    pub fn input_blocks(&self, input: &[u64], output: &[u64]) -> Layout {
        let axes =
            [Some(BATCH), (self.attrs.groups == 1).then_some(INPUT_CHANNELS), Some(FIELD[0]), Some(FIELD[1])];
        let span = |(dim, &size): (usize, &u64)| match axes.get(dim).copied().flatten() {
            Some(axis) if dim < 2 => self.span(axis, size),
            Some(axis) if size >= output[dim] => self.span(axis, size),
            _ => Span::full(size),
        };
        Layout { grid: self.grid(), region: input.iter().enumerate().map(span).collect() }
    }

    pub fn weights_region(&self, weights: &[u64]) -> Region {
        let channels = if self.attrs.groups == 1 {
            self.span(INPUT_CHANNELS, weights[1])
        } else {
            Span::full(weights[1])
        };
        let kernel = weights[2..]
            .iter()
            .enumerate()
            .map(|(index, &size)| if index == 0 { self.span(KERNEL, size) } else { Span::full(size) });
        [self.span(OUTPUT_CHANNELS, weights[0]), channels].into_iter().chain(kernel).collect()
    }

    pub fn out_region(&self, output: &[u64]) -> Region {
        let field = output[2..].iter().enumerate().map(|(index, &size)| match FIELD.get(index) {
            Some(&axis) => self.span(axis, size),
            None => Span::full(size),
        });
        [self.span(BATCH, output[0]), self.span(OUTPUT_CHANNELS, output[1])]
            .into_iter()
            .chain(field)
            .collect()
    }
}

impl Planner<'_> {
    pub(super) fn conv(&mut self, conv: &Conv, id: NodeId, node: &Node) -> Method {
        let (input, weights, out) = (node.operands[0], node.operands[1], node.results[0]);
        let method = match self.preplanned.remove(&id) {
            Some(method) => method,
            None => Method::Conv(Box::new(self.conv_plan(conv, node))),
        };
        let Method::Conv(plan) = &method else { unreachable!("a convolution is planned as one") };
        self.want(weights, &self.operand_layout(&method, node, 1));
        self.settled(input);
        let own = Layout { grid: plan.grid(), region: plan.out_region(&self.shape(out)) };
        self.set_product(out, own, plan.stages.is_empty());
        method
    }

    pub(super) fn conv_plan(&mut self, conv: &Conv, node: &Node) -> ConvPlan {
        let (input, weights, out) = (node.operands[0], node.operands[1], node.results[0]);
        let small = |values: &mut dyn Iterator<Item = u64>| values.collect::<SmallVec<[u64; 2]>>();
        let attrs = ConvAttrs {
            strides: small(&mut conv.strides.iter().copied()),
            padding_low: small(&mut conv.padding.iter().map(|&(low, _)| low.unsigned_abs())),
            kernel_dilation: small(&mut conv.kernel_dilation.iter().copied()),
            groups: conv.groups,
            partials: self.partials(self.dtype(input), self.dtype(out)),
            method: ConvMethod::Positions,
        };
        let problem = Problem {
            machine: self.machine,
            attrs,
            input: self.shape(input).to_vec(),
            weights: self.shape(weights).to_vec(),
            output: self.shape(out).to_vec(),
            dtype: self.dtype(input),
            out_dtype: self.dtype(out),
            weights_are_free: self.is_free(weights),
            memory_bytes: self.room(node),
        };
        let key = problem.key();
        match self.found.convs.get(&key) {
            Some(plan) => plan.clone(),
            None => self.found.convs.entry(key).or_insert(solve(&problem)).clone(),
        }
    }
}

/// The cheapest split by any method within the memory bound.
fn solve(problem: &Problem) -> ConvPlan {
    let candidates = ConvMethod::ALL.into_iter().filter_map(|method| {
        let problem = problem.by(method)?;
        let found = Search::new(&problem).best();
        Some((problem, found))
    });
    let (problem, found) = candidates
        .min_by_key(|(_, found)| (found.over_bytes, found.cost.cycles()))
        .expect("a convolution can be done position by position");
    let sums = [found.parts[INPUT_CHANNELS], found.parts[KERNEL]];
    ConvPlan {
        parts: found.parts,
        grains: problem.grains(),
        stages: if sums == [1; 2] { Vec::new() } else { stages_for_axes(&sums) },
        window_elements: problem.window_elements(&found.parts),
        vertex: problem.vertex(&found.parts),
        cost: found.cost,
        attrs: problem.attrs,
    }
}
