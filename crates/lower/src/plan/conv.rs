//! The search over ways to split a convolution: batch, output channels, input channels (partial sums) and
//! the outermost two field dimensions, each over an axis of a grid of tiles. A tile receives the window of
//! the input that its outputs need, so neighbours' inputs overlap.

use super::{Method, Planner, matrix_rate, receive_cycles, stages_for, superstep_cycles, vertex_cycles};
use crate::layouts::{normalize, part_counts};
use crate::plan::matmul::{Cost, reduce_cycles};
use pando_base::DType;
use pando_graph::{Conv, Node};
use pando_machine::Machine;
use pando_tile::kernel::ConvAttrs;
use pando_tile::{Grid, Kernel, Layout, OperandType, Part, Region, Span};
use smallvec::SmallVec;

/// Axes of a convolution's grid; output channels vary fastest, since neighbours then want the same input.
pub const INPUT_CHANNELS: usize = 0;
pub const BATCH: usize = 1;
pub const FIELD: [usize; 2] = [2, 3];
pub const OUTPUT_CHANNELS: usize = 4;

#[derive(Clone, Debug, PartialEq)]
pub struct ConvPlan {
    pub attrs: ConvAttrs,
    /// Parts per axis, in the order of the axis constants.
    pub parts: [u64; 5],
    pub grains: [u64; 5],
    pub stages: Vec<u64>,
    pub cost: Cost,
}

pub(crate) struct Problem<'a> {
    pub machine: &'a Machine,
    pub attrs: ConvAttrs,
    /// `[n, c, field…]`, `[o, c/groups, kernel…]`, `[n, o, field…]`.
    pub input: Vec<u64>,
    pub weights: Vec<u64>,
    pub output: Vec<u64>,
    pub dtype: DType,
    pub out_dtype: DType,
    pub weights_are_free: bool,
    pub memory_bytes: u64,
}

impl Problem<'_> {
    fn field(&self, index: usize) -> u64 {
        self.output.get(2 + index).copied().unwrap_or(1)
    }

    fn sizes(&self) -> [u64; 5] {
        // Groups do not add up, so grouped input channels follow the output channels.
        let input_channels = if self.attrs.groups == 1 { self.weights[1] } else { 1 };
        [input_channels, self.output[0], self.field(0), self.field(1), self.output[1]]
    }

    fn grains(&self) -> [u64; 5] {
        let rate = matrix_rate(&self.machine.chip, self.dtype);
        let (weights, units) = rate.map_or((1, 1), |rate| (rate.weights_per_unit, rate.conv_units));
        let output = if self.attrs.groups == 1 { units } else { self.output[1] / self.attrs.groups };
        let sizes = self.sizes();
        let grains = [weights, 1, 1, 1, output];
        std::array::from_fn(|axis| grains[axis].min(sizes[axis]).max(1))
    }

    pub fn solve(&self) -> ConvPlan {
        let (sizes, grains) = (self.sizes(), self.grains());
        let tiles = u64::from(self.machine.chip.tiles);
        let lists: [Vec<u64>; 5] =
            std::array::from_fn(|axis| part_counts(sizes[axis].div_ceil(grains[axis]), tiles));
        let mut best: Option<(u64, u64, ConvPlan)> = None;
        let mut parts = [1; 5];
        self.search(0, tiles, &lists, &sizes, &grains, &mut parts, &mut best);
        best.expect("one part each is always a candidate").2
    }

    #[expect(clippy::too_many_arguments, reason = "the state of a recursion over five axes")]
    fn search(
        &self,
        axis: usize,
        tiles: u64,
        lists: &[Vec<u64>; 5],
        sizes: &[u64; 5],
        grains: &[u64; 5],
        parts: &mut [u64; 5],
        best: &mut Option<(u64, u64, ConvPlan)>,
    ) {
        if axis == 5 {
            return self.consider(parts, sizes, grains, best);
        }
        for &count in lists[axis].iter().take_while(|&&count| count <= tiles) {
            parts[axis] = count;
            // With all remaining tiles on the remaining axes the multiplications still take this long.
            if self.hopeless(axis + 1, tiles / count, parts, sizes, grains, best) {
                continue;
            }
            self.search(axis + 1, tiles / count, lists, sizes, grains, parts, best);
        }
        parts[axis] = 1;
    }

    fn hopeless(
        &self,
        settled: usize,
        tiles: u64,
        parts: &[u64; 5],
        sizes: &[u64; 5],
        grains: &[u64; 5],
        best: &Option<(u64, u64, ConvPlan)>,
    ) -> bool {
        let Some((0, cycles, _)) = best else { return false };
        let block = block(parts, sizes, grains);
        let kernel: u64 = self.weights[2..].iter().product();
        let field_rest: u64 = self.output.iter().skip(4).product();
        let mut macs = kernel * field_rest * if self.attrs.groups == 1 { 1 } else { self.weights[1] };
        for axis in 0..5 {
            macs = macs.saturating_mul(if axis < settled { block[axis] } else { sizes[axis] });
        }
        let rate = matrix_rate(&self.machine.chip, self.dtype)
            .map_or(1, |rate| (rate.macs_per_cycle() as u64).max(1));
        macs / rate / tiles > *cycles
    }

    fn consider(
        &self,
        parts: &[u64; 5],
        sizes: &[u64; 5],
        grains: &[u64; 5],
        best: &mut Option<(u64, u64, ConvPlan)>,
    ) {
        let cost = self.cost(parts, &block(parts, sizes, grains));
        let key = (cost.temporary_bytes.saturating_sub(self.memory_bytes), cost.cycles());
        if best.as_ref().is_none_or(|(over, cycles, _)| key < (*over, *cycles)) {
            let stages =
                if parts[INPUT_CHANNELS] > 1 { stages_for(parts[INPUT_CHANNELS]) } else { Vec::new() };
            let plan = ConvPlan { attrs: self.attrs.clone(), parts: *parts, grains: *grains, stages, cost };
            *best = Some((key.0, key.1, plan));
        }
    }

    fn cost(&self, parts: &[u64; 5], block: &[u64; 5]) -> Cost {
        let (input, weights, output) = self.blocks(block);
        let volume = |lens: &[u64]| lens.iter().product::<u64>();
        let (input_bytes, weight_bytes) =
            (volume(&input) * self.dtype.size_bytes(), volume(&weights) * self.dtype.size_bytes());
        let partial_bytes = self.attrs.partials.size_bytes();
        let stays = self.weights_are_free && parts[BATCH] * parts[FIELD[0]] * parts[FIELD[1]] == 1;
        let kernel = Kernel::Conv(self.attrs.clone());
        let operands = [
            OperandType { dtype: self.dtype, lens: &input },
            OperandType { dtype: self.dtype, lens: &weights },
            OperandType { dtype: self.out_dtype, lens: &output },
        ];
        let chip = &self.machine.chip;
        let mut cost = Cost {
            lhs_exchange_cycles: receive_cycles(
                self.machine,
                input_bytes,
                parts[OUTPUT_CHANNELS].is_multiple_of(2),
            ),
            rhs_exchange_cycles: if stays { 0 } else { receive_cycles(self.machine, weight_bytes, false) },
            compute_cycles: vertex_cycles(kernel.cycles(&operands, chip), chip.workers),
            overhead_cycles: superstep_cycles(self.machine),
            temporary_bytes: input_bytes
                + if stays { 0 } else { weight_bytes }
                + volume(&output) * partial_bytes,
            ..Cost::default()
        };
        let mut left = parts[INPUT_CHANNELS];
        let whole = volume(&self.output);
        for groups in if left > 1 { stages_for(left) } else { Vec::new() } {
            let (depth, share) = (left.div_ceil(groups), (whole * groups).div_ceil(chip.tiles.into()).max(1));
            cost.reduce_exchange_cycles += receive_cycles(self.machine, depth * share * partial_bytes, false);
            cost.reduce_cycles += reduce_cycles(chip, depth, share, self.attrs.partials);
            cost.overhead_cycles += superstep_cycles(self.machine);
            left = groups;
        }
        cost
    }

    /// Sizes of the largest blocks of input, weights and output.
    fn blocks(&self, block: &[u64; 5]) -> (Vec<u64>, Vec<u64>, Vec<u64>) {
        let per_group = self.weights[1];
        let groups = if self.attrs.groups == 1 {
            1
        } else {
            block[OUTPUT_CHANNELS] / (self.output[1] / self.attrs.groups).max(1)
        };
        let channels = if self.attrs.groups == 1 { block[INPUT_CHANNELS] } else { per_group };
        let mut output = self.output.clone();
        (output[0], output[1]) = (block[BATCH], block[OUTPUT_CHANNELS]);
        let mut input = self.input.clone();
        (input[0], input[1]) = (block[BATCH], channels * groups.max(1));
        for (index, &axis) in FIELD.iter().enumerate().filter(|&(index, _)| index + 2 < self.output.len()) {
            output[2 + index] = block[axis];
            let (stride, dilation) = (self.attrs.strides[index], self.attrs.kernel_dilation[index]);
            let window = (block[axis] - 1) * stride + (self.weights[2 + index] - 1) * dilation + 1;
            input[2 + index] = window.min(self.input[2 + index]);
        }
        let mut weights = self.weights.clone();
        (weights[0], weights[1]) = (block[OUTPUT_CHANNELS], channels);
        (input, weights, output)
    }
}

fn block(parts: &[u64; 5], sizes: &[u64; 5], grains: &[u64; 5]) -> [u64; 5] {
    std::array::from_fn(|axis| {
        (sizes[axis].div_ceil(grains[axis]).div_ceil(parts[axis]) * grains[axis]).min(sizes[axis])
    })
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
            let reach = ((weights[dim] - 1) * attrs.kernel_dilation[index]) as i64;
            let part = Part::even(axis, output[dim], self.grains[axis]);
            Span::Part(Part { mul: attrs.strides[index], lo: low, hi: low + reach + 1, ..part })
        });
        [self.span(BATCH, input[0]), channels].into_iter().chain(field).collect()
    }

    pub fn weights_region(&self, weights: &[u64]) -> Region {
        let channels = if self.attrs.groups == 1 {
            self.span(INPUT_CHANNELS, weights[1])
        } else {
            Span::full(weights[1])
        };
        let kernel = weights[2..].iter().map(|&size| Span::full(size));
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
    pub(super) fn conv(&mut self, conv: &Conv, node: &Node) -> Method {
        let (input, weights, out) = (node.operands[0], node.operands[1], node.results[0]);
        let small = |values: &mut dyn Iterator<Item = u64>| values.collect::<SmallVec<[u64; 2]>>();
        let attrs = ConvAttrs {
            strides: small(&mut conv.strides.iter().copied()),
            padding_low: small(&mut conv.padding.iter().map(|&(low, _)| low.unsigned_abs())),
            kernel_dilation: small(&mut conv.kernel_dilation.iter().copied()),
            groups: conv.groups,
            partials: self.partials(self.dtype(input), self.dtype(out)),
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
            memory_bytes: self.temporary_bytes(),
        };
        let plan = problem.solve();
        let layout = |region: Region| Layout { grid: plan.grid(), region };
        self.want(weights, &layout(plan.weights_region(&problem.weights)));
        self.settled(input);
        let home = if plan.parts[INPUT_CHANNELS] == 1 {
            layout(plan.out_region(&problem.output))
        } else {
            self.balanced(&self.shape(out), self.dtype(out))
        };
        self.plan.layouts[out] = Some(normalize(&home, &self.shape(out)));
        Method::Conv(plan)
    }
}
