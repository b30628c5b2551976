//! Conv: convolutions over any number of spatial dimensions on the matrix unit. Types as matmul's.
//!
//! A sum takes its steps of input channels in order and, within each, the kernel's positions in row-major
//! order (the order of products inside a step is [`amp`]'s). Positions outside the input variable are
//! skipped. As one product ([`unfolded`]) the positions of a channel follow one another. Cycles: see [`cycles`].

mod cycles;
mod unfolded;

use super::amp;
use super::cost;
use super::values::{self, Sizes};
use super::{Arg, ConvAttrs, ConvMethod, OperandType};
use pando_base::Shape;

pub(super) use cycles::{cycles, horizontal_product, vertex};

/// `input [n, c, spatial…], weights [o, c/groups, kernel…], out [n, o, spatial…]`. A block may hold some of
/// the groups, but whole ones if several. `out` may have further dimensions of length 1 in front.
pub(super) fn check(attrs: &ConvAttrs, operands: &[OperandType]) -> Result<(), String> {
    let [input, weights, out] = [operands[0], operands[1], operands[2]];
    amp::check_types(input, weights, out, attrs.partials)?;
    let rank = input.lens.len();
    if rank < 2 || weights.lens.len() != rank || out.lens.len() < rank {
        return Err(format!("input {input}, weights {weights} and output {out} need one rank of at least 2"));
    }
    let (leading, out_lens) = out.lens.split_at(out.lens.len() - rank);
    if leading.iter().any(|&len| len != 1) {
        return Err(format!("the leading dimensions of {out} are not of length 1"));
    }
    let lists = [attrs.strides.len(), attrs.padding_low.len(), attrs.kernel_dilation.len()];
    if lists != [rank - 2; 3] {
        return Err(format!("strides, padding and dilations need {} entries each", rank - 2));
    }
    if attrs.groups == 0 || attrs.strides.contains(&0) || attrs.kernel_dilation.contains(&0) {
        return Err("groups, strides and dilations are at least 1".into());
    }
    if input.lens[0] != out_lens[0] || weights.lens[0] != out_lens[1] {
        return Err(format!("batch or output channels of {input}, {weights} and {out} differ"));
    }
    check_groups(attrs, input, weights)?;
    match attrs.method {
        ConvMethod::Positions => Ok(()),
        ConvMethod::Product => unfolded::check_product(operands),
        ConvMethod::Unfolded => unfolded::check_unfolded(operands),
    }
}

fn check_groups(attrs: &ConvAttrs, input: OperandType, weights: OperandType) -> Result<(), String> {
    let (channels, per_group, outputs) = (input.lens[1], weights.lens[1], weights.lens[0]);
    let groups = channels.checked_div(per_group).unwrap_or(1);
    if groups.saturating_mul(per_group) != channels || groups > attrs.groups || groups == 0 {
        return Err(format!(
            "{channels} input channels are not up to {} group(s) of {per_group}",
            attrs.groups
        ));
    }
    if !outputs.is_multiple_of(groups) {
        return Err(format!("{outputs} output channels are not the same number for each of {groups} groups"));
    }
    Ok(())
}

pub(super) fn run(attrs: &ConvAttrs, args: &mut [Arg]) {
    if attrs.method != ConvMethod::Positions {
        return unfolded::run(attrs, args);
    }
    let [input, weights, out] = args else { unreachable!("conv has three operands") };
    let window = Window::new(attrs, input, weights, out);
    let count = out.data.num_elements() as usize;
    if input.data.dtype().is_float() {
        let step = amp::step_len(input.data.dtype());
        let operands = [&*values::to_f32(&input.data), &*values::to_f32(&weights.data)];
        let sums = window.convolve(operands, count, step, |sums, steps| {
            amp::accumulate(sums, steps.iter().copied(), attrs.partials);
        });
        values::write_f32(&mut out.data, &sums);
    } else {
        let operands = [&*values::to_wrapping(&input.data), &*values::to_wrapping(&weights.data)];
        let sums = window.convolve(operands, count, usize::MAX, |sums, steps| {
            amp::accumulate_wrapping(sums, steps.iter().copied());
        });
        values::write_wrapping(&mut out.data, &sums);
    }
}

/// Where each output finds its inputs, in indices of the blocks.
struct Window {
    input: Sizes,
    weights: Sizes,
    /// Output lengths without further leading dimensions.
    out: Sizes,
    /// Per spatial dimension, output index and kernel index: the input index, if it is in the variable.
    taps: Vec<Vec<Vec<Option<usize>>>>,
    groups: Vec<Group>,
}

/// Kernel positions and where in the input's field each finds its element, both row-major.
type Taps = Vec<(usize, usize)>;

/// A group's share of the blocks.
struct Group {
    first_output: usize,
    outputs: usize,
    first_input: usize,
}

impl Window {
    fn new(attrs: &ConvAttrs, input: &Arg, weights: &Arg, out: &Arg) -> Self {
        let lens = |arg: &Arg| values::sizes(arg.data.shape());
        let leading = out.block.rank() - input.block.rank();
        let taps = (0..attrs.strides.len())
            .map(|dim| taps(attrs, dim, input, weights, out.block.0[leading + dim + 2]));
        Window {
            input: lens(input),
            weights: lens(weights),
            out: lens(out)[leading..].into(),
            taps: taps.collect(),
            groups: groups(attrs, input, weights, out, leading),
        }
    }

    /// All sums, in the output's order.
    fn convolve<T: Copy + Default>(
        &self,
        [input, weights]: [&[T]; 2],
        count: usize,
        step: usize,
        accumulate: impl Fn(&mut [T], &[(&[T], &[T])]),
    ) -> Vec<T> {
        let rank = self.input.len();
        // Channels last: a step's inputs and its rows of weights are slices then.
        let last: Vec<usize> = std::iter::once(0).chain(2..rank).chain([1]).collect();
        let input = values::permuted(input, &self.input, &last);
        let mut sums = vec![T::default(); count];
        let field: Shape = self.out[2..].iter().map(|&len| len as u64).collect();
        let taps: Vec<Taps> = field.indices().map(|position| self.taps_of(&position)).collect();
        let per_output = self.weights[1..].iter().product::<usize>();
        for group in &self.groups {
            let own = &weights[group.first_output * per_output..][..group.outputs * per_output];
            let mut lens = self.weights.clone();
            lens[0] = group.outputs;
            let order: Vec<usize> = (2..rank).chain([1, 0]).collect();
            let own = values::permuted(own, &lens, &order);
            self.convolve_group(group, [&input, &own], &taps, step, &mut sums, &accumulate);
        }
        self.channels_first(&sums)
    }

    /// Sums whose channels come last, in the output's order.
    fn channels_first<T: Copy + Default>(&self, sums: &[T]) -> Vec<T> {
        let rank = self.out.len();
        let out: Sizes = [0].into_iter().chain(2..rank).chain([1]).map(|dim: usize| self.out[dim]).collect();
        let first: Vec<usize> = [0, rank - 1].into_iter().chain(1..rank - 1).collect();
        values::permuted(sums, &out, &first)
    }

    fn convolve_group<T>(
        &self,
        group: &Group,
        [input, weights]: [&[T]; 2],
        taps: &[Taps],
        step: usize,
        sums: &mut [T],
        accumulate: impl Fn(&mut [T], &[(&[T], &[T])]),
    ) {
        let (channels, per_group, all_outputs) = (self.input[1], self.weights[1], self.out[1]);
        if all_outputs == 0 || per_group == 0 {
            return;
        }
        let image = channels * self.input[2..].iter().product::<usize>();
        let positions = (0..self.out[0]).flat_map(|n| taps.iter().map(move |taps| (n * image, taps)));
        let mut steps = Vec::new();
        for (sums, (begin_of_image, taps)) in sums.chunks_exact_mut(all_outputs).zip(positions) {
            steps.clear();
            for begin in (0..per_group).step_by(step) {
                let length = step.min(per_group - begin);
                for &(kernel, place) in taps {
                    let inputs =
                        &input[begin_of_image + place * channels + group.first_input + begin..][..length];
                    let rows = (kernel * per_group + begin) * group.outputs;
                    steps.push((inputs, &weights[rows..][..length * group.outputs]));
                }
            }
            accumulate(&mut sums[group.first_output..][..group.outputs], &steps);
        }
    }

    /// The kernel positions that find an input for an output position.
    fn taps_of(&self, position: &[u64]) -> Taps {
        let mut taps = vec![(0, 0)];
        for (dim, &y) in position.iter().enumerate() {
            let (kernel_len, input_len) = (self.weights[dim + 2], self.input[dim + 2]);
            let along = &self.taps[dim][y as usize];
            let next = taps.iter().flat_map(|&(kernel, place)| {
                let inside = along.iter().enumerate().filter_map(|(k, tap)| tap.map(|x| (k, x)));
                inside.map(move |(k, x)| (kernel * kernel_len + k, place * input_len + x))
            });
            taps = next.collect();
        }
        taps
    }
}

/// For each output index of the block and each kernel index: the index into the block of the input.
fn taps(
    attrs: &ConvAttrs,
    dim: usize,
    input: &Arg,
    weights: &Arg,
    (first, end): (u64, u64),
) -> Vec<Vec<Option<usize>>> {
    let (stride, dilation, padding) =
        (attrs.strides[dim], attrs.kernel_dilation[dim], attrs.padding_low[dim]);
    let (held, kernel) = (input.block.0[dim + 2], weights.block.0[dim + 2]);
    let tap = |y: u64, k: u64| {
        let x = y
            .saturating_mul(stride)
            .saturating_add(k.saturating_mul(dilation))
            .checked_sub(padding)
            .filter(|&x| x < input.shape[dim + 2])?;
        assert!(
            (held.0..held.1).contains(&x),
            "conv: output {y} reads input {x} of spatial dimension {dim}, outside the block {}",
            input.block
        );
        Some((x - held.0) as usize)
    };
    (first..end).map(|y| (kernel.0..kernel.1).map(|k| tap(y, k)).collect()).collect()
}

/// Groups by global indices: output channel `o` belongs to group `o / (outputs per group)`.
fn groups(attrs: &ConvAttrs, input: &Arg, weights: &Arg, out: &Arg, leading: usize) -> Vec<Group> {
    let per_group = (out.shape[leading + 1] / attrs.groups).max(1);
    let (begin, end) = out.block.0[leading + 1];
    let (channels, own) = (input.block.0[1], weights.block.0[1]);
    let mut groups = Vec::new();
    let mut first = begin;
    while first < end {
        let group = first / per_group;
        let next = ((group + 1) * per_group).min(end);
        let inputs = group * weights.shape[1] + own.0;
        assert!(
            channels.0 <= inputs && inputs + (own.1 - own.0) <= channels.1,
            "conv: outputs {first}..{next} need input channels from {inputs}, outside the block {}",
            input.block
        );
        groups.push(Group {
            first_output: (first - begin) as usize,
            outputs: (next - first) as usize,
            first_input: (inputs - channels.0) as usize,
        });
        first = next;
    }
    groups
}

pub(super) fn flops(operands: &[OperandType]) -> u64 {
    let (weights, out) = (operands[1].lens, operands[2].num_elements());
    cost::product(&weights[1..]).saturating_mul(out).saturating_mul(2)
}

#[cfg(test)]
mod tests;
