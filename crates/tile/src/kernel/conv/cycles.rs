//! Cycles of a convolution, hardware.md section 6.1. It has formulas of several vertices; we take the
//! cheapest of those applicable:
//!
//! - 1×1 and n×1 on the matrix unit, and horizontal MAC on the vector unit: any convolution;
//! - SLIC and vertical MAC: groups of few channels in f16; outer product: single input channels.
//!
//! Where a plan makes one product of channels and kernel positions, the 1×1 vertex or horizontal MAC, and writing the
//! windows at the planner's rate "bytes·5/3 ÷ elemBytes" of rearranging before a convolution (section 6.5).
//!
//! Assumptions: workers split the field into runs of equal length, whose number of rows is the average;
//! outputs whose window sticks out of the input cost as much as the others; n×1 in f8 is priced by the
//! formula of f16 at the rate of f8; and the vertices for which section 6.1 names the inner loop but not what
//! is around it (HMAC, SLIC, VMAC) take that from n×1 and HMAC, see `worker` and `vector_unit`.

use super::unfolded;
use crate::kernel::amp::{self, Format, Product, Unit};
use crate::kernel::cost::{self, Cycles, c};
use crate::kernel::{ConvAttrs, ConvMethod, OperandType, VertexCost};
use pando_base::DType;
use pando_machine::Chip;

/// Slots for a run of outputs before its loop, of "nx1 worker".
const RUN_SET_UP: u64 = 3;

/// Channels that vertical MAC takes side by side.
const VMAC_CHANNELS: u64 = 8;

/// A convolution as the formulas see it.
struct Problem<'a> {
    chip: &'a Chip,
    format: Format,
    half_partials: bool,
    groups: u64,
    /// Channels per group.
    inputs: u64,
    outputs: u64,
    /// Runs of outputs along the last dimension, and their length.
    rows: u64,
    row_len: u64,
    /// Kernel positions along the last dimension, and along all others.
    kernel_inner: u64,
    kernel_outer: u64,
    /// Stride of the last dimension.
    stride: u64,
    /// No dimension has a stride.
    is_dense: bool,
}

pub fn cycles(attrs: &ConvAttrs, operands: &[OperandType], chip: &Chip) -> VertexCost {
    let [input, weights, out] = [operands[0], operands[1], operands[2]];
    if input.dtype.is_int() {
        let multiplications = cost::product(&weights.lens[1..]).saturating_mul(out.num_elements());
        return amp::scalar_cycles(out.dtype, multiplications, chip);
    }
    let writing = match attrs.method {
        ConvMethod::Unfolded => c(unfolded::window_elements(operands)) * c(5) / c(3),
        _ => c(0),
    };
    cost::launched(cheapest(attrs, operands, chip).1 + writing, chip)
}

/// The vertex that is taken for floats, in the words of section 6.1.
pub fn vertex(attrs: &ConvAttrs, operands: &[OperandType], chip: &Chip) -> &'static str {
    if operands[0].dtype.is_int() { "scalar" } else { cheapest(attrs, operands, chip).0 }
}

fn cheapest(attrs: &ConvAttrs, operands: &[OperandType], chip: &Chip) -> (&'static str, Cycles) {
    let problem = Problem::new(attrs, [operands[0], operands[1], operands[2]], chip);
    let unit = Unit::of(chip, operands[0].dtype, attrs.partials);
    if attrs.method != ConvMethod::Positions {
        return problem.as_product(unit.as_ref(), operands[0].dtype);
    }
    let candidates = [
        unit.as_ref().and_then(|unit| problem.one_by_one(unit)).map(|cycles| ("1x1", cycles)),
        unit.as_ref().map(|unit| ("nx1", problem.n_by_one(unit))),
        problem.slic(unit.as_ref()).map(|cycles| ("slic", cycles)),
        problem.vertical().map(|cycles| ("vmac", cycles)),
        problem.outer_product().map(|cycles| ("outer-product", cycles)),
    ];
    let first = ("hmac", problem.horizontal());
    candidates.into_iter().flatten().fold(first, |best, next| if next.1 < best.1 { next } else { best })
}

/// The vector unit's formula for a matrix product, for chips whose matrix unit does not take the type.
pub fn horizontal_product(product: &Product, input: DType, partials: DType, chip: &Chip) -> Cycles {
    let problem = Problem {
        chip,
        format: Format::of(input),
        half_partials: partials == DType::F16,
        groups: product.groups,
        inputs: product.inputs,
        outputs: product.outputs,
        rows: 1,
        row_len: product.rows,
        kernel_inner: 1,
        kernel_outer: 1,
        stride: 1,
        is_dense: true,
    };
    problem.horizontal()
}

impl<'a> Problem<'a> {
    /// One product over channels and kernel positions, on whichever unit is faster.
    fn as_product(&self, unit: Option<&Unit>, input: DType) -> (&'static str, Cycles) {
        let inputs = self.inputs.saturating_mul(self.kernel());
        let product = Product { groups: self.groups, rows: self.field(), inputs, outputs: self.outputs };
        let partials = if self.half_partials { DType::F16 } else { DType::F32 };
        let horizontal = ("hmac", horizontal_product(&product, input, partials, self.chip));
        let on_unit = unit.map(|unit| ("1x1", amp::product_cycles(unit, &product, self.chip)));
        on_unit.filter(|(_, cycles)| *cycles <= horizontal.1).unwrap_or(horizontal)
    }

    fn new(attrs: &ConvAttrs, [input, weights, out]: [OperandType; 3], chip: &'a Chip) -> Self {
        let rank = weights.lens.len();
        let out_lens = &out.lens[out.lens.len() - rank..];
        let groups = input.lens[1] / weights.lens[1].max(1);
        let (row_len, outer) = out_lens[2..].split_last().unwrap_or((&1, &[]));
        let (kernel_inner, kernel_outer) = weights.lens[2..].split_last().unwrap_or((&1, &[]));
        Problem {
            chip,
            format: Format::of(input.dtype),
            half_partials: attrs.partials == DType::F16,
            groups: groups.max(1),
            inputs: weights.lens[1],
            outputs: weights.lens[0].div_ceil(groups.max(1)),
            rows: cost::product(outer).saturating_mul(out_lens[0]),
            row_len: *row_len,
            kernel_inner: *kernel_inner,
            kernel_outer: cost::product(kernel_outer),
            stride: attrs.strides.last().copied().unwrap_or(1),
            is_dense: attrs.strides.iter().all(|&stride| stride == 1),
        }
    }

    fn is_one_by_one(&self) -> bool {
        self.kernel() == 1 && self.is_dense
    }

    fn kernel(&self) -> u64 {
        self.kernel_inner.saturating_mul(self.kernel_outer)
    }

    fn field(&self) -> u64 {
        self.rows.saturating_mul(self.row_len)
    }

    fn workers(&self) -> Cycles {
        c(cost::workers(self.chip))
    }

    /// Elements of a vector of inputs.
    fn vector(&self) -> u64 {
        cost::vector_len(if self.format == Format::F32 { DType::F32 } else { DType::F16 }, self.chip)
    }

    /// The busiest worker's runs of outputs, each priced by its length: whole rows and a part of one.
    fn runs(&self, run: impl Fn(u64) -> Cycles) -> Cycles {
        let elements = cost::per_worker(self.field(), self.chip);
        let row_len = self.row_len.max(1);
        let rest = elements % row_len;
        c(elements / row_len) * run(row_len) + if rest > 0 { run(rest) } else { c(0) }
    }

    /// "Zero partials: W·(ceil(n/vec) + 14/15 - retention)" for each group of outputs.
    ///
    /// Assumption: what is retained is the "9W(f32)/10W(f16)" of n×1's outer part, which leaves 5.
    fn zeroing(&self, outputs_per_group: u64) -> Cycles {
        let dtype = if self.half_partials { DType::F16 } else { DType::F32 };
        let elements = cost::per_worker(self.field().saturating_mul(outputs_per_group), self.chip);
        self.workers() * (c(elements.div_ceil(cost::vector_len(dtype, self.chip))) + c(5))
    }

    /// The 1×1 vertex takes the whole field as one run.
    fn one_by_one(&self, unit: &Unit) -> Option<Cycles> {
        let product =
            Product { groups: self.groups, rows: self.field(), inputs: self.inputs, outputs: self.outputs };
        self.is_one_by_one().then(|| amp::product_cycles(unit, &product, self.chip))
    }

    /// The n×1 vertex takes 1, 2 or 4 kernel rows at once if the channels leave room for them.
    fn n_by_one(&self, unit: &Unit) -> Cycles {
        let heights = [(1, 15), (2, 46), (4, 60)].into_iter();
        let suits = |&(height, _): &(u64, u64)| {
            height == 1 || (height <= self.kernel_outer && self.inputs.saturating_mul(height) <= unit.inputs)
        };
        let costs = heights.filter(suits).map(|(height, load)| self.n_by_one_of(unit, height, load));
        costs.min().unwrap_or(c(u64::MAX))
    }

    /// "nx1 worker", "nx1 per kernel row" and "nx1 outer"; `extra_load` is the weights' rearrangement.
    ///
    /// Assumption: of "+14 +(12 + passes·(L + extra))" the 14 is a kernel row's and the rest each of its
    /// positions'.
    fn n_by_one_of(&self, unit: &Unit, height: u64, extra_load: u64) -> Cycles {
        let is_f32 = self.format == Format::F32;
        let run = |n: u64| {
            let few: [u64; 3] = if is_f32 { [17, 33, 44] } else { [17, 29, 33] };
            let rest = c(n.saturating_sub(3)) * c(unit.row);
            let slots = few.get(n as usize).map_or(c(if is_f32 { 45 } else { 34 }) + rest, |&slots| c(slots));
            c(RUN_SET_UP) + slots - c(9)
        };
        let worker = self.worker(1, run);
        // Filter height 4 cannot use the wide load.
        let load = unit.load.saturating_mul(if height == 4 { 2 } else { 1 }).saturating_add(extra_load);
        let (inner, outer) = (c(self.kernel_inner), c(self.kernel_outer.div_ceil(height)));
        let kernel = outer * (c(14) + inner * (c(12) + c(load) + self.workers() * worker));
        let groups = c(self.groups);
        let g_in = c(self.inputs.saturating_mul(height).div_ceil(unit.inputs).max(1));
        let g_out = c(self.outputs.div_ceil(unit.units).max(1));
        let retained = self.workers() * c(18 + u64::from(self.half_partials));
        let zero_loop =
            groups * (g_out * c(17) + (g_out - c(1)) * c(6) + c(1)) + (groups - c(1)) * c(6) + c(1);
        let zeroing = groups * g_out * self.zeroing(unit.units.min(self.outputs));
        let loops = groups * (c(16) + g_in * (c(14) + g_out * (c(14) + kernel)));
        c(109) + retained + zero_loop + zeroing + loops
    }

    /// A worker that goes through its runs of outputs `times` over, in formulas of n×1's form: "17(+1 f16
    /// partials) + sum over rows of (3 + ...)".
    fn worker(&self, times: u64, run: impl Fn(u64) -> Cycles) -> Cycles {
        c(17 + u64::from(self.half_partials)) + c(times) * self.runs(run)
    }

    /// A vertex of the vector unit for `groups` of `outputs` each: "supervisor 58 f32 / 65 f16 (-10 for
    /// 1×1); loop levels 23/15/10", around `run` for each run of outputs and kernel position.
    ///
    /// Assumption: the loop levels are the groups and two within, of one turn each; sums are zeroed and
    /// workers set up as in n×1.
    fn vector_unit(&self, groups: u64, outputs: u64, run: impl Fn(u64) -> Cycles) -> Cycles {
        let supervisor = c(if self.format == Format::F32 { 58 } else { 65 });
        let around = supervisor - c(if self.is_one_by_one() { 10 } else { 0 });
        let worker = self.worker(self.kernel(), |n| c(RUN_SET_UP) + run(n));
        around + c(groups) * (self.zeroing(outputs) + c(23 + 15 + 10) + self.workers() * worker)
    }

    /// "HMAC: 1 cyc / 64-bit vec + ~7": a dot product in the input channels for each output.
    fn horizontal(&self) -> Cycles {
        let dot = c(self.inputs.div_ceil(self.vector())) + c(7);
        self.vector_unit(self.groups, self.outputs, |n| c(n) * c(self.outputs) * dot)
    }

    /// Groups that a vertex for few channels takes at once as one group of `channels`, for f16 only.
    fn is_narrow_half(&self, channels: u64) -> bool {
        self.format == Format::F16 && self.inputs.max(self.outputs) <= channels
    }

    /// "SLIC": windows of four kernel positions slide over groups of four channels in all.
    ///
    /// Assumption: the loops over groups and windows have the first two levels of HMAC, 23 and 15; of a range
    /// the upper end applies; rows shorter than the formula's five (three with strides) cost as these; a
    /// second pass repeats the row, and half partials of 16 units are the "4 chains" without one.
    fn slic(&self, unit: Option<&Unit>) -> Option<Cycles> {
        let unit = unit?;
        if !self.is_narrow_half(4) || self.kernel() == 1 || !(1..=2).contains(&self.stride) {
            return None;
        }
        let channels = self.inputs.max(self.outputs).max(1).next_power_of_two();
        let group_groups = c(self.groups.saturating_mul(channels).div_ceil(4));
        let windows = c(self.kernel_outer) * c(self.kernel_inner.div_ceil(4));
        let w = self.workers();
        let load = c(16) + if channels == 4 { c(18) } else { c(9 + 6) + w * c(12) + c(6) };
        let passes = if unit.half_partials && unit.units >= 16 { 1 } else { 2 };
        let run = |n: u64| {
            let row = match self.stride {
                1 => c(15) + c(n.saturating_sub(5)),
                _ => c(15) + c(2) * c(n.saturating_sub(3)),
            };
            c(RUN_SET_UP) + row * c(passes)
        };
        Some(c(28) + group_groups * (c(23) + windows * (c(15) + load + w * self.worker(1, run))))
    }

    /// "VMAC (>=8 ch): 3(n-1)/8 per row": as many groups of one channel side by side.
    ///
    /// Assumption: `n` counts a row's elements in all channels. With a row's positions times 8 for `n` that
    /// is about 3 for each position; fewer groups cost as 8.
    fn vertical(&self) -> Option<Cycles> {
        if !self.is_narrow_half(1) {
            return None;
        }
        let row = |n: u64| c(3) * (c(n) * c(VMAC_CHANNELS) - c(1)) / c(8);
        Some(self.vector_unit(self.groups.div_ceil(VMAC_CHANNELS), VMAC_CHANNELS, row))
    }

    /// "Outer product: f32 25+G(11+w(6+(c-6)/2)); f16 25+G(10+w(6+(c-12)/4))": one input channel times all
    /// outputs, 1×1.
    ///
    /// Assumption: fewer outputs than three vectors cost as three, and a part of a vector as a whole one.
    fn outer_product(&self) -> Option<Cycles> {
        if self.inputs != 1 || !self.is_one_by_one() || self.format == Format::F8 {
            return None;
        }
        let vectors = self.outputs.div_ceil(self.vector());
        let element = c(6) + c(vectors.saturating_sub(3));
        let set_up = if self.format == Format::F32 { 11 } else { 10 };
        let group = c(set_up) + c(cost::per_worker(self.field(), self.chip)) * element;
        Some(self.workers() * (c(25) + c(self.groups) * group))
    }
}
