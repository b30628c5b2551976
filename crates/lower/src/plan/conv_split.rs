//! What a split of a convolution costs.

use super::conv::{BATCH, FIELD, INPUT_CHANNELS, KERNEL, OUTPUT_CHANNELS};
use super::search::{Branch, Choice, Least, Splits};
use super::{
    Cost, matrix_rate, receive_cycles, reduce_cycles, stages_for_axes, superstep_cycles, vertex_cycles,
};
use crate::layouts::part_counts;
use pando_base::DType;
use pando_machine::Machine;
use pando_tile::kernel::{ConvAttrs, ConvMethod};
use pando_tile::{Kernel, OperandType};

#[derive(Clone)]
pub(super) struct Problem<'a> {
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

/// Lengths of the largest blocks.
struct Blocks {
    input: Vec<u64>,
    weights: Vec<u64>,
    output: Vec<u64>,
}

impl<'a> Problem<'a> {
    /// What plans of equal problems are remembered by.
    pub fn key(&self) -> String {
        format!(
            "{:?} {:?} {:?} {:?} {} {} {} {}",
            self.attrs,
            self.input,
            self.weights,
            self.output,
            self.dtype,
            self.out_dtype,
            self.weights_are_free,
            self.memory_bytes
        )
    }

    /// The problem, to be solved by a method; nothing if that cannot be, or is what another one does.
    pub fn by(&self, method: ConvMethod) -> Option<Problem<'a>> {
        let suits = match method {
            ConvMethod::Positions => true,
            ConvMethod::Product => self.is_product(),
            ConvMethod::Unfolded => !self.is_product() && self.weights[2..].iter().product::<u64>() > 1,
        };
        let suits = suits && (method == ConvMethod::Positions || self.dtype.is_float());
        suits.then(|| Problem { attrs: ConvAttrs { method, ..self.attrs.clone() }, ..self.clone() })
    }

    /// Whether the only window is the whole input, so that parts of it are parts of the kernel.
    fn is_product(&self) -> bool {
        self.output[2..].iter().all(|&size| size == 1)
            && self.input[2..] == self.weights[2..]
            && self.input[2..].iter().any(|&size| size > 1)
            && self.attrs.padding_low.iter().all(|&padding| padding == 0)
            && self.attrs.kernel_dilation.iter().zip(&self.input[2..]).all(|(&d, &size)| d == 1 || size == 1)
    }

    fn field(&self, index: usize) -> u64 {
        self.output.get(2 + index).copied().unwrap_or(1)
    }

    /// Whether each part of the kernel meets an input.
    fn meets_inputs(&self, parts: u64) -> bool {
        let (dilation, padding) = (self.attrs.kernel_dilation[0], self.attrs.padding_low[0]);
        let reach = (self.output[2] - 1) * self.attrs.strides[0];
        let block = self.weights[2] / parts;
        // The first and the last part reach least far into the input.
        let first_end = (block - 1) * dilation + reach + 1;
        let last_begin = (self.weights[2] - block) * dilation;
        first_end > padding && last_begin < self.input[2] + padding
    }

    /// Elements of the windows that the fullest tile writes out.
    pub fn window_elements(&self, parts: &[u64; 6]) -> u64 {
        self.windows_of(&self.largest_blocks(parts))
    }

    fn largest_blocks(&self, parts: &[u64; 6]) -> Blocks {
        let (sizes, grains) = (self.sizes(), self.grains());
        self.blocks(&std::array::from_fn(|axis| {
            (sizes[axis].div_ceil(grains[axis]).div_ceil(parts[axis]) * grains[axis]).min(sizes[axis])
        }))
    }

    fn windows_of(&self, blocks: &Blocks) -> u64 {
        if self.attrs.method != ConvMethod::Unfolded {
            return 0;
        }
        let kernel = blocks.weights[2..].iter().product::<u64>();
        blocks.input[..2].iter().product::<u64>() * blocks.output[2..].iter().product::<u64>() * kernel
    }

    /// Whether the weights are stored where they are used.
    fn weights_stay(&self, parts: &[u64; 6]) -> bool {
        self.weights_are_free && parts[BATCH] * parts[FIELD[0]] * parts[FIELD[1]] == 1
    }

    fn split_cost(&self, parts: &[u64; 6], block: &[u64; 6]) -> Cost {
        let blocks = self.blocks(block);
        let volume = |lens: &[u64]| lens.iter().product::<u64>();
        let bytes = |lens: &[u64]| volume(lens) * self.dtype.size_bytes();
        let input_bytes = bytes(&blocks.input);
        let weight_bytes = if self.weights_stay(parts) { 0 } else { bytes(&blocks.weights) };
        let partial_bytes = self.attrs.partials.size_bytes();
        let windows = self.windows_of(&blocks);
        let chip = &self.machine.chip;
        let mut cost = Cost {
            lhs_exchange_cycles: receive_cycles(
                self.machine,
                input_bytes,
                parts[OUTPUT_CHANNELS].is_multiple_of(2),
            ),
            rhs_exchange_cycles: receive_cycles(self.machine, weight_bytes, false),
            compute_cycles: vertex_cycles(self.kernel_cycles(&blocks, windows), chip.workers),
            overhead_cycles: superstep_cycles(self.machine),
            temporary_bytes: input_bytes
                + weight_bytes
                + volume(&blocks.output) * partial_bytes
                + windows * self.dtype.size_bytes(),
            ..Cost::default()
        };
        let sums = [parts[INPUT_CHANNELS], parts[KERNEL]];
        let (mut longest, mut other) = (sums[0].max(sums[1]), sums[0].min(sums[1]));
        let whole = volume(&self.output);
        for groups in if longest > 1 { stages_for_axes(&sums) } else { Vec::new() } {
            let (depth, share) =
                (longest.div_ceil(groups) * other, (whole * groups).div_ceil(chip.tiles.into()).max(1));
            cost.reduce_exchange_cycles += receive_cycles(self.machine, depth * share * partial_bytes, false);
            cost.reduce_cycles += reduce_cycles(chip, depth, share, self.attrs.partials);
            cost.overhead_cycles += superstep_cycles(self.machine);
            (longest, other) = (groups, 1);
        }
        cost
    }

    fn kernel_cycles(&self, blocks: &Blocks, windows: u64) -> pando_tile::VertexCost {
        let kernel = Kernel::Conv(self.attrs.clone());
        let operands = self.operands(blocks, std::slice::from_ref(&windows));
        kernel.cycles(&operands[..kernel.signature().len()], &self.machine.chip)
    }

    /// The vertex that the busiest tile runs.
    pub fn vertex(&self, parts: &[u64; 6]) -> &'static str {
        Kernel::conv_vertex(&self.attrs, &self.operands(&self.largest_blocks(parts), &[]), &self.machine.chip)
    }

    fn operands<'b>(&self, blocks: &'b Blocks, windows: &'b [u64]) -> [OperandType<'b>; 4] {
        [
            OperandType { dtype: self.dtype, lens: &blocks.input },
            OperandType { dtype: self.dtype, lens: &blocks.weights },
            OperandType { dtype: self.out_dtype, lens: &blocks.output },
            OperandType { dtype: self.dtype, lens: windows },
        ]
    }

    /// Sizes of the dimensions that are split.
    fn sizes(&self) -> [u64; 6] {
        // Groups do not add up, so grouped input channels follow the output channels.
        let input_channels = if self.attrs.groups == 1 { self.weights[1] } else { 1 };
        let kernel = self.weights.get(2).copied().unwrap_or(1);
        [input_channels, kernel, self.output[0], self.field(0), self.field(1), self.output[1]]
    }

    /// What the matrix unit takes at once. A product over kernel positions, too, fills it with any channels.
    pub fn grains(&self) -> [u64; 6] {
        let rate = matrix_rate(&self.machine.chip, self.dtype);
        let (weights, units) = rate.map_or((1, 1), |rate| (rate.weights_per_unit, rate.conv_units));
        let output = if self.attrs.groups == 1 { units } else { self.output[1] / self.attrs.groups };
        let input = if self.attrs.method == ConvMethod::Positions { weights } else { 1 };
        let (grains, sizes) = ([input, 1, 1, 1, 1, output], self.sizes());
        std::array::from_fn(|axis| grains[axis].min(sizes[axis]).max(1))
    }

    fn blocks(&self, block: &[u64; 6]) -> Blocks {
        let grouped = self.attrs.groups > 1;
        let groups =
            if grouped { block[OUTPUT_CHANNELS] / (self.output[1] / self.attrs.groups).max(1) } else { 1 };
        let channels = if grouped { self.weights[1] } else { block[INPUT_CHANNELS] };
        let mut weights = self.weights.clone();
        (weights[0], weights[1]) = (block[OUTPUT_CHANNELS], channels);
        let mut output = self.output.clone();
        (output[0], output[1]) = (block[BATCH], block[OUTPUT_CHANNELS]);
        let mut input = self.input.clone();
        (input[0], input[1]) = (block[BATCH], channels * groups.max(1));
        if weights.len() > 2 {
            weights[2] = block[KERNEL];
        }
        for (index, &axis) in FIELD.iter().enumerate().filter(|&(index, _)| index + 2 < self.output.len()) {
            let dim = 2 + index;
            output[dim] = block[axis];
            let (stride, dilation) = (self.attrs.strides[index], self.attrs.kernel_dilation[index]);
            let window = (block[axis] - 1) * stride + (weights[dim] - 1) * dilation + 1;
            input[dim] = window.min(self.input[dim]);
        }
        Blocks { input, weights, output }
    }
}

impl Splits<6> for Problem<'_> {
    const ORDER: [usize; 6] = [FIELD[0], KERNEL, INPUT_CHANNELS, OUTPUT_CHANNELS, BATCH, FIELD[1]];
    const PREFERRED: [usize; 6] = [OUTPUT_CHANNELS, FIELD[0], BATCH, FIELD[1], KERNEL, INPUT_CHANNELS];

    fn tiles(&self) -> u64 {
        self.machine.chip.tiles.into()
    }

    fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    fn whole(&self) -> [u64; 6] {
        self.sizes()
    }

    fn choices(&self, axis: usize) -> Vec<Choice> {
        let (size, grain) = (self.sizes()[axis], self.grains()[axis]);
        let units = size.div_ceil(grain);
        let fits = |parts: &u64| axis != KERNEL || *parts == 1 || self.meets_inputs(*parts);
        let counts = part_counts(units, self.tiles()).into_iter().filter(fits);
        counts.map(|parts| Choice { parts, block: (units.div_ceil(parts) * grain).min(size) }).collect()
    }

    /// One axis of the input is split either by outputs or by kernel positions.
    fn cost(&self, parts: &[u64; 6], block: [u64; 6]) -> Option<Cost> {
        (parts[KERNEL] == 1 || parts[FIELD[0]] == 1).then(|| self.split_cost(parts, &block))
    }

    /// Operands arrive and are multiplied at full rate, blocks are as small as the tiles allow, partial sums arrive
    /// but cost nothing to add.
    fn least(&self, branch: &Branch<6>) -> Least {
        let machine = self.machine;
        let blocks = self.blocks(&branch.block);
        let (element_bytes, partial_bytes) = (self.dtype.size_bytes(), self.attrs.partials.size_bytes());
        let volume = |lens: &[u64]| lens.iter().product::<u64>();
        let outputs = branch.volume(&[BATCH, FIELD[0], FIELD[1], OUTPUT_CHANNELS])
            * self.output.iter().skip(4).product::<u64>();
        let stays = self.weights_are_free
            && [BATCH, FIELD[0], FIELD[1]]
                .iter()
                .all(|&axis| branch.is_open(axis) || branch.parts[axis] == 1);
        let input_bytes = volume(&blocks.input) * element_bytes;
        let weight_bytes = if stays { 0 } else { volume(&blocks.weights) * element_bytes };
        let windows = self.windows_of(&blocks);
        // The kernel's other dimensions, and a group's channels, which are no axis.
        let rest = volume(&self.weights[2..]) / self.sizes()[KERNEL]
            * self.output.iter().skip(4).product::<u64>()
            * if self.attrs.groups == 1 { 1 } else { self.weights[1] };
        let macs = branch.volume(&[0, 1, 2, 3, 4, 5]).saturating_mul(rest);
        let rate =
            matrix_rate(&machine.chip, self.dtype).map_or(1, |rate| (rate.macs_per_cycle() as u64).max(1));
        let paired = branch.is_open(OUTPUT_CHANNELS) || branch.parts[OUTPUT_CHANNELS].is_multiple_of(2);
        let mut cycles = receive_cycles(machine, input_bytes, paired)
            + receive_cycles(machine, weight_bytes, false)
            + macs / rate
            + windows
            + superstep_cycles(machine);
        let sums = branch.parts[INPUT_CHANNELS] * branch.parts[KERNEL];
        if sums > 1 {
            let share_bytes = volume(&self.output) / self.tiles() * partial_bytes * sums;
            cycles += superstep_cycles(machine) + receive_cycles(machine, share_bytes, false);
        }
        let bytes = input_bytes + weight_bytes + outputs * partial_bytes + windows * element_bytes;
        (bytes.saturating_sub(self.memory_bytes), cycles)
    }
}
