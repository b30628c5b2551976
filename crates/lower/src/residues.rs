//! Convolutions over spread-out inputs, as gradients of strided convolutions' inputs and transposed convolutions are,
//! without the zeros between: outputs that are equal modulo the distance of the input's elements see the same part of
//! the kernel, and no zeros. Each such class is a dense convolution with that part; their outputs are then interleaved.
//!
//! In: a convolution of a valid module. Out: nodes without dilated inputs, if that is cheaper.

use crate::append::append;
use crate::plan::matrix_rate;
use pando_graph::{Conv, Func, Module, Node, Op, Slice, ValueId, infer, known_dims};
use pando_machine::Machine;

/// Supersteps that the classes take more than one convolution, and cycles of each.
///
/// Assumption: a part of the kernel, its product and two copies for each class, at the fixed costs of a product (the
/// differences that hardware.md section 9, rows 39 and 40, leave at few columns: about 1,000 cycles).
const CLASS_CYCLES: u64 = 2000;

/// Appends what stands for the node and returns its result; nothing if it is no such convolution, or cheaper as it is.
pub fn by_residues(
    module: &Module,
    node: &Node,
    operands: &[ValueId],
    target: &mut Func,
    machine: &Machine,
) -> Option<ValueId> {
    let Op::Conv(conv) = &node.op else { return None };
    let classes = Classes::new(conv, operands, target)?;
    let output = infer(&node.op, &target.operand_types(operands), module).ok()?.swap_remove(0).shape()?;
    if !classes.pay_off(&output, target, machine) {
        return None;
    }
    let mut writer = Writer { module, target };
    Some(writer.interleaved(&classes, &output))
}

/// A convolution whose output is split into classes along the dimensions with dilated inputs.
struct Classes<'a> {
    conv: &'a Conv,
    input: ValueId,
    weights: ValueId,
    input_sizes: Vec<u64>,
    kernel_sizes: Vec<u64>,
}

/// The part of a kernel's dimension that a class sees: from `first` every `step`th.
struct Taps {
    first: u64,
    step: u64,
    count: u64,
}

impl<'a> Classes<'a> {
    /// Nothing if no input is dilated, outputs are strided there, or a class sees nothing of the kernel.
    fn new(conv: &'a Conv, operands: &[ValueId], target: &Func) -> Option<Self> {
        let sizes = |value: ValueId| target.ty(value).shape().map(|shape| shape.to_vec());
        let (input_sizes, kernel_sizes) = (sizes(operands[0])?, sizes(operands[1])?);
        let classes = Classes { conv, input: operands[0], weights: operands[1], input_sizes, kernel_sizes };
        let dims = || 0..conv.strides.len();
        let splits = |dim: usize| conv.input_dilation[dim] > 1;
        let suits = dims().any(splits)
            && dims().filter(|&dim| splits(dim)).all(|dim| {
                conv.strides[dim] == 1
                    && classes.kernel_sizes[dim + 2] > 1
                    && (0..conv.input_dilation[dim]).all(|residue| classes.reads(dim, residue))
            })
            && dims().filter(|&dim| !splits(dim)).all(|dim| conv.padding[dim].0 >= 0);
        suits.then_some(classes)
    }

    /// Output `q · distance + residue` reads what lies at `q · distance + residue + k · dilation - padding`, which is an
    /// element if it is a multiple of the distance.
    fn taps(&self, dim: usize, residue: u64) -> Option<Taps> {
        let distance = self.conv.input_dilation[dim] as i64;
        let at =
            |k: u64| residue as i64 + (k * self.conv.kernel_dilation[dim]) as i64 - self.conv.padding[dim].0;
        let mut seen = (0..self.kernel_sizes[dim + 2]).filter(|&k| at(k).rem_euclid(distance) == 0);
        let first = seen.next()?;
        let left = self.kernel_sizes[dim + 2] - first;
        let step = seen.next().map_or(left, |second| second - first);
        Some(Taps { first, step, count: left.div_ceil(step) })
    }

    /// Whether a class sees a part of the kernel, and begins within the input.
    fn reads(&self, dim: usize, residue: u64) -> bool {
        self.taps(dim, residue)
            .is_some_and(|taps| self.begin(dim, residue, &taps) < self.input_sizes[dim + 2] as i64)
    }

    /// The input that the first output of a class reads first; negative in the padding.
    fn begin(&self, dim: usize, residue: u64, taps: &Taps) -> i64 {
        let at =
            residue as i64 + (taps.first * self.conv.kernel_dilation[dim]) as i64 - self.conv.padding[dim].0;
        at.div_euclid(self.conv.input_dilation[dim] as i64)
    }

    fn count(&self) -> u64 {
        self.conv.input_dilation.iter().product()
    }

    /// Whether the zeros that are not multiplied take longer than the additional steps and the interleaving, which moves
    /// every output three times.
    fn pay_off(&self, output: &[u64], target: &Func, machine: &Machine) -> bool {
        let dtype = target.ty(self.input).dtype;
        let rate = matrix_rate(&machine.chip, dtype).map_or(1.0, |rate| rate.macs_per_cycle());
        let outputs = output.iter().product::<u64>() as f64;
        let each = self.kernel_sizes[1..].iter().product::<u64>() as f64;
        let tiles = f64::from(machine.chip.tiles);
        let spared = outputs * each * (1.0 - 1.0 / self.count() as f64) / rate / tiles;
        let port = machine.chip.exchange.bytes_per_cycle.max(1) as f64;
        let moved = 3.0 * outputs * dtype.size_bytes() as f64 / port / tiles;
        spared > moved + (self.count() * CLASS_CYCLES) as f64
    }
}

struct Writer<'a> {
    module: &'a Module,
    target: &'a mut Func,
}

impl Writer<'_> {
    fn push(&mut self, op: Op, operands: &[ValueId]) -> ValueId {
        append(self.module, self.target, op, operands)
    }

    /// Classes as dimensions of their own behind those that they divide, joined with them.
    fn interleaved(&mut self, classes: &Classes, output: &[u64]) -> ValueId {
        let distances = &classes.conv.input_dilation;
        let rank = output.len();
        let mut residues = vec![0; distances.len()];
        let parts = self.parts(classes, output, 0, &mut residues);
        let joined: Vec<u64> = (0..rank)
            .map(
                |dim| {
                    if dim < 2 { output[dim] } else { per_class(classes, output, dim) * distances[dim - 2] }
                },
            )
            .collect();
        let whole = self.push(Op::Reshape { dims: known_dims(&joined) }, &[parts]);
        if joined == output {
            return whole;
        }
        let slice = Slice { begin: vec![0; rank], end: known_dims(output), step: vec![1; rank] };
        self.push(Op::Slice(slice), &[whole])
    }

    /// The classes with the residues that are chosen up to a dimension: `[n, o, q, class, q, class…]`.
    fn parts(&mut self, classes: &Classes, output: &[u64], dim: usize, residues: &mut Vec<u64>) -> ValueId {
        if dim == residues.len() {
            let class = self.class(classes, output, residues);
            let sizes = (0..output.len()).flat_map(|dim| {
                if dim < 2 { vec![output[dim]] } else { vec![per_class(classes, output, dim), 1] }
            });
            let sizes: Vec<u64> = sizes.collect();
            return self.push(Op::Reshape { dims: known_dims(&sizes) }, &[class]);
        }
        let parts: Vec<ValueId> = (0..classes.conv.input_dilation[dim])
            .map(|residue| {
                residues[dim] = residue;
                self.parts(classes, output, dim + 1, residues)
            })
            .collect();
        if parts.len() == 1 { parts[0] } else { self.push(Op::Concat { axis: 3 + 2 * dim }, &parts) }
    }

    /// One class: a convolution of the input with a part of the kernel. Inputs before the first that it reads are
    /// cropped.
    fn class(&mut self, classes: &Classes, output: &[u64], residues: &[u64]) -> ValueId {
        let rank = output.len();
        let mut conv = classes.conv.clone();
        let mut part =
            Slice { begin: vec![0; rank], end: known_dims(&classes.kernel_sizes), step: vec![1; rank] };
        let mut crop =
            Slice { begin: vec![0; rank], end: known_dims(&classes.input_sizes), step: vec![1; rank] };
        for (dim, &residue) in
            residues.iter().enumerate().filter(|&(dim, _)| classes.conv.input_dilation[dim] > 1)
        {
            let distance = classes.conv.input_dilation[dim];
            let taps = classes.taps(dim, residue).expect("every class sees a part of the kernel");
            (part.begin[dim + 2], part.step[dim + 2]) = (taps.first, taps.step);
            let low = -classes.begin(dim, residue, &taps);
            crop.begin[dim + 2] = (-low).max(0) as u64;
            // A single one has no distance to others.
            let apart = taps.step * conv.kernel_dilation[dim] / distance;
            conv.kernel_dilation[dim] = if taps.count > 1 { apart } else { 1 };
            conv.input_dilation[dim] = 1;
            let span = ((taps.count - 1) * conv.kernel_dilation[dim] + 1) as i64;
            let held = classes.input_sizes[dim + 2] as i64 - crop.begin[dim + 2] as i64;
            let needed = per_class(classes, output, dim + 2) as i64 + span - 1;
            conv.padding[dim] = (low.max(0), needed - held - low.max(0));
        }
        let weights = self.push(Op::Slice(part), &[classes.weights]);
        let cropped = crop.begin.iter().any(|&begin| begin > 0);
        let input = if cropped { self.push(Op::Slice(crop), &[classes.input]) } else { classes.input };
        self.push(Op::Conv(conv), &[input, weights])
    }
}

/// Outputs of each class along a dimension, those of the largest.
fn per_class(classes: &Classes, output: &[u64], dim: usize) -> u64 {
    output[dim].div_ceil(classes.conv.input_dilation[dim - 2])
}
