//! The matrix unit (AMP), shared by matmul and conv: which types it multiplies, in which order it adds,
//! which of a chip's rates applies, and what its 1×1 vertex costs.
//!
//! Order of additions, our definition after the hardware's structure: a step multiplies up to
//! [`step_len`] input channels with one column of weights; the products of a step are added in index order
//! in f32 starting from zero, and their sum is added to the partial sum, which is rounded to f16 if
//! partials are f16. Products of 8- and 16-bit floats are exact in f32; those of f32 are rounded to f32.

use super::cost::{self, Cycles, c};
use super::{OperandType, VertexCost};
use half::f16;
use pando_base::DType;
use pando_machine::{Chip, MatrixRate};

/// Input channels per step: weights per unit, 8 for f32 and 16 for f16 (hardware.md section 5). A
/// property of the values, so it does not follow the chip; 8-bit floats, 32 of which a C600 takes at once,
/// go by 16 too.
pub(super) fn step_len(input: DType) -> usize {
    if input == DType::F32 { 8 } else { 16 }
}

/// Types that can be multiplied and summed, the sentence saying which are.
pub(super) fn check_types(
    lhs: OperandType,
    rhs: OperandType,
    out: OperandType,
    partials: DType,
) -> Result<(), String> {
    let (a, b) = (lhs.dtype, rhs.dtype);
    let is_f8 = |dtype| matches!(dtype, DType::F8(..));
    if !(a == b || is_f8(a) && is_f8(b)) || a == DType::Bool {
        return Err(format!("multiplies numbers of one type, or two 8-bit floats, not {a} and {b}"));
    }
    if a.is_int() {
        let suits = out.dtype.is_int() && partials == out.dtype;
        return if suits { Ok(()) } else { Err(integer_sums(out.dtype, partials)) };
    }
    let halves = partials == DType::F16 && (a == DType::F16 || is_f8(a));
    if partials != DType::F32 && !halves {
        return Err(format!(
            "keeps sums in f32, or f16 if inputs are f16 or 8-bit floats, not {partials} for {a}"
        ));
    }
    if !matches!(out.dtype, DType::F32 | DType::F16 | DType::BF16) {
        return Err(format!("the output is f32, f16 or bf16, not {}", out.dtype));
    }
    Ok(())
}

fn integer_sums(out: DType, partials: DType) -> String {
    format!("sums of integers are kept in the output's integer type, not {partials} for {out}")
}

/// Adds products to one row of partial sums. Each step is a slice of inputs and as many rows of weights,
/// row-major and as long as `sums`.
pub(super) fn accumulate<'a>(
    sums: &mut [f32],
    steps: impl Iterator<Item = (&'a [f32], &'a [f32])> + Clone,
    partials: DType,
) {
    if partials == DType::F16 {
        accumulate_rounded(sums, steps, |sum| f16::from_f32(sum).to_f32());
    } else {
        accumulate_rounded(sums, steps, |sum| sum);
    }
}

/// Columns worked on at once, few enough to stay in registers.
const LANES: usize = 16;

fn accumulate_rounded<'a>(
    sums: &mut [f32],
    steps: impl Iterator<Item = (&'a [f32], &'a [f32])> + Clone,
    round: impl Fn(f32) -> f32 + Copy,
) {
    let columns = sums.len();
    if let [sum] = sums {
        for (inputs, weights) in steps {
            let products = inputs.iter().zip(weights).map(|(input, weight)| input * weight);
            *sum = round(*sum + products.fold(0.0, |step, product| step + product));
        }
        return;
    }
    for (block, sums) in sums.chunks_mut(LANES).enumerate() {
        let begin = block * LANES;
        match <&mut [f32; LANES]>::try_from(&mut *sums) {
            Ok(sums) => full_lanes(sums, steps.clone(), columns, begin, round),
            Err(_) => some_lanes(sums, steps.clone(), columns, begin, round),
        }
    }
}

fn full_lanes<'a>(
    sums: &mut [f32; LANES],
    steps: impl Iterator<Item = (&'a [f32], &'a [f32])>,
    columns: usize,
    begin: usize,
    round: impl Fn(f32) -> f32,
) {
    let mut totals = *sums;
    for (inputs, weights) in steps {
        let mut step = [0.0; LANES];
        for (&input, row) in inputs.iter().zip(weights.chunks_exact(columns)) {
            let row: &[f32; LANES] = row[begin..begin + LANES].try_into().expect("a slice of LANES");
            for lane in 0..LANES {
                step[lane] += input * row[lane];
            }
        }
        for lane in 0..LANES {
            totals[lane] = round(totals[lane] + step[lane]);
        }
    }
    *sums = totals;
}

/// The columns that remain, as [`full_lanes`] does them.
fn some_lanes<'a>(
    sums: &mut [f32],
    steps: impl Iterator<Item = (&'a [f32], &'a [f32])>,
    columns: usize,
    begin: usize,
    round: impl Fn(f32) -> f32,
) {
    for (inputs, weights) in steps {
        let mut step = [0.0; LANES];
        for (&input, row) in inputs.iter().zip(weights.chunks_exact(columns)) {
            step.iter_mut()
                .zip(&row[begin..begin + sums.len()])
                .for_each(|(sum, weight)| *sum += input * weight);
        }
        sums.iter_mut().zip(&step).for_each(|(sum, step)| *sum = round(*sum + step));
    }
}

/// The same for integers, which wrap, so that the order does not matter.
pub(super) fn accumulate_wrapping<'a>(sums: &mut [i64], steps: impl Iterator<Item = (&'a [i64], &'a [i64])>) {
    let columns = sums.len();
    for (inputs, weights) in steps {
        for (&input, row) in inputs.iter().zip(weights.chunks_exact(columns.max(1))) {
            let products = row.iter().map(|&weight| input.wrapping_mul(weight));
            sums.iter_mut().zip(products).for_each(|(sum, product)| *sum = sum.wrapping_add(product));
        }
    }
}

/// The unit as a product of given types sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Unit {
    pub format: Format,
    pub half_partials: bool,
    pub units: u64,
    /// Input channels of a step.
    pub inputs: u64,
    /// Cycles per row of inputs.
    pub row: u64,
    /// Cycles to load the weights of all units.
    pub load: u64,
}

/// Formats the unit takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    F8,
    F16,
    F32,
}

impl Format {
    /// What a type is multiplied as. Assumption: bf16, which the unit lacks, is priced as f16.
    pub fn of(dtype: DType) -> Self {
        match dtype {
            DType::F32 => Format::F32,
            DType::F8(..) => Format::F8,
            _ => Format::F16,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Format::F8 => "f8",
            Format::F16 => "f16",
            Format::F32 => "f32",
        }
    }

    fn size_bytes(self) -> u64 {
        match self {
            Format::F8 => 1,
            Format::F16 => 2,
            Format::F32 => 4,
        }
    }

    /// The next wider one, into which a chip without a rate has to convert. Assumption: at no cost.
    fn wider(self) -> Option<Self> {
        match self {
            Format::F8 => Some(Format::F16),
            Format::F16 => Some(Format::F32),
            Format::F32 => None,
        }
    }
}

impl Unit {
    /// The chip's rate for these types; failing that, one with other partials; failing that, one of the
    /// next wider format. `None` if the chip multiplies nothing of the kind, and for integers.
    pub fn of(chip: &Chip, input: DType, partials: DType) -> Option<Unit> {
        let mut format = input.is_float().then(|| Format::of(input))?;
        loop {
            let rates = || chip.matrix.iter().filter(|rate| rate.input == format.name());
            if let Some(rate) =
                rates().find(|rate| rate.partials == partials.name()).or_else(|| rates().next())
            {
                return Some(Unit::new(rate, format));
            }
            format = format.wider()?;
        }
    }

    fn new(rate: &MatrixRate, format: Format) -> Self {
        let weight_bytes = rate.conv_units.saturating_mul(rate.weights_per_unit) * format.size_bytes();
        Unit {
            format,
            half_partials: rate.partials == "f16",
            units: rate.conv_units.max(1),
            inputs: rate.weights_per_unit.max(1),
            row: rate.cycles_per_row,
            load: weight_bytes / rate.coeff_load_bytes_per_cycle.max(1),
        }
    }

    /// Assumption: the "common path" that section 6.1 does not define is the condition of its first row,
    /// "16 units, or f32 partials".
    fn is_common(&self) -> bool {
        !self.half_partials || self.units == 16
    }

    /// The path of f16 that keeps state between calls (section 6.1: "state retention", "0 for f32").
    fn retains_state(&self) -> bool {
        self.format == Format::F16 && self.is_common()
    }
}

/// A product of `groups` matrices: `rows × inputs` times `inputs × outputs` each.
#[derive(Clone, Copy, Debug)]
pub(super) struct Product {
    pub groups: u64,
    pub rows: u64,
    pub inputs: u64,
    pub outputs: u64,
}

/// The 1×1 vertex, hardware.md section 6.1 ("1x1 total"): rows over workers, inputs in groups of a step,
/// outputs in groups of the units (so one pass a group). Without the launch.
pub(super) fn product_cycles(unit: &Unit, product: &Product, chip: &Chip) -> Cycles {
    let workers = c(cost::workers(chip));
    let groups = c(product.groups);
    let g_in = c(product.inputs.div_ceil(unit.inputs).max(1));
    let g_out = c(product.outputs.div_ceil(unit.units));
    let load = c(unit.load);
    let (inner, first) =
        (inner_cycles(unit, product.rows, false, chip), inner_cycles(unit, product.rows, true, chip));
    if unit.format == Format::F8 {
        let first = workers * c(20) + c(11) + load + first;
        let rest = (g_in - c(1)) * (workers * c(17) + c(6) + load + inner);
        c(46) + groups * (workers * c(2) + c(9) + g_out * (workers * c(6) + c(10) + first + rest))
    } else {
        let common = c(u64::from(unit.is_common()));
        let (retained, retained_inputs) = if unit.retains_state() { (c(7), c(3)) } else { (c(0), c(0)) };
        let rest = (g_in - c(1)) * (c(16) - common + g_out * (c(19) + c(6) + load + inner));
        let first = c(11) + g_out * (c(19) - common + c(7) + load + first);
        let calls = workers * (retained + retained_inputs * (g_in * groups - c(1)));
        c(50) + calls + groups * (c(12) + common + rest + first)
    }
}

/// "max over workers of W·worker; at least W·min + 14".
fn inner_cycles(unit: &Unit, rows: u64, zeroes: bool, chip: &Chip) -> Cycles {
    let workers = cost::workers(chip);
    let most = worker_slots(unit, rows.div_ceil(workers), zeroes);
    let least = worker_slots(unit, rows / workers, zeroes);
    (c(workers) * most.max(least)).max(c(workers) * most.min(least) + c(14))
}

/// Slots of a worker that multiplies `n` rows; `zeroes` in the first pass, which also clears the sums.
///
/// Assumption: where section 6.1 gives two numbers a row for clearing, the larger is that of 16 units, which
/// have more sums; and `cycles_per_row` of the chip stands for the 4 or 8 of the table.
fn worker_slots(unit: &Unit, n: u64, zeroes: bool) -> Cycles {
    let rest = c(n.saturating_sub(3)) * c(unit.row);
    let pick = |few: [u64; 3], many: u64| few.get(n as usize).map_or(c(many) + rest, |&slots| c(slots));
    // Clearing takes cycles of its own on the paths that do not fold it into the product.
    let clear = |per_row: u64| if zeroes { c(2) + c(per_row) * c(n) } else { c(0) };
    let z = u64::from(zeroes);
    match unit.format {
        Format::F8 => c(17) + pick([4, 18 - 5 * z, 23 - 5 * z], 27 - 5 * z),
        Format::F32 => pick([24, 47, 46], 46) + clear(if unit.units == 16 { 8 } else { 4 }),
        Format::F16 if unit.retains_state() => pick([22 - z, 33 - z, 42 - z], 38 - z) - c(7),
        // Half partials of fewer than 16 units.
        Format::F16 => pick([24, 39, 40], 41) + clear(2),
    }
}

/// Integers, which the unit does not take.
///
/// Assumption: a multiplication and an addition an element as in section 6.2 (7 and 7, of 64 bits 30 and
/// 11), after the 20 of set-up that BroadcastScalar1D has there.
pub(super) fn scalar_cycles(sums: DType, multiplications: u64, chip: &Chip) -> VertexCost {
    let slots = if sums.size_bytes() == 8 { 30 + 11 } else { 7 + 7 };
    cost::supervisor(c(20) + c(slots) * c(cost::per_worker(multiplications, chip)), 0, chip)
}

#[cfg(test)]
mod tests;
