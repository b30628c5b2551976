//! Map: a chain of elementwise functions in one vertex. Operands are read once, repeated where they are
//! shorter than the output; what is between two functions never leaves the registers.
//!
//! Values are those of the functions' own kernels one after another, each result rounded to its type.
//! Cycles: the functions' loops of hardware.md section 6.2, see [`cycles`].

use super::cost::{self, Cycles, c};
use super::{Arg, Dims, Kernel, OperandType, Smooth, VertexCost, elementwise, movement};
use pando_base::{BinaryFn, CompareFn, DType, Shape, Tensor, UnaryFn};
use pando_machine::Chip;
use smallvec::SmallVec;

#[derive(Clone, Debug, PartialEq)]
pub struct MapAttrs {
    /// For each input operand, the dimension of the output that each of its dimensions is.
    pub inputs: SmallVec<[Dims; 4]>,
    /// The last one gives the output.
    pub steps: Vec<MapStep>,
    /// An earlier step whose result is an output, too, before the last one's.
    pub kept: Option<u8>,
}

/// Inputs of a map; no vertex needs more.
pub const MAX_INPUTS: usize = 10;

#[derive(Clone, Debug, PartialEq)]
pub struct MapStep {
    pub func: MapFn,
    /// Of the result.
    pub dtype: DType,
    /// Inputs by number, then the results of earlier steps.
    pub args: SmallVec<[u8; 3]>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MapFn {
    /// A number, the same everywhere.
    Value(f64),
    Unary(UnaryFn),
    Binary(BinaryFn),
    Compare(CompareFn),
    Select,
    Cast,
    Smooth(Smooth),
}

impl MapFn {
    /// The kernel that computes the function alone.
    pub fn kernel(self) -> Kernel {
        match self {
            MapFn::Value(value) => Kernel::Fill { value },
            MapFn::Unary(func) => Kernel::Unary(func),
            MapFn::Binary(func) => Kernel::Binary(func),
            MapFn::Compare(func) => Kernel::Compare(func),
            MapFn::Select => Kernel::Select,
            MapFn::Cast => Kernel::Cast,
            MapFn::Smooth(func) => Kernel::Smooth(func),
        }
    }
}

/// Operands of each step as its own kernel sees them: of the output's shape.
fn step_operands<'a>(
    attrs: &MapAttrs,
    step: &MapStep,
    inputs: &[OperandType],
    lens: &'a [u64],
) -> Option<SmallVec<[OperandType<'a>; 4]>> {
    let dtype = |&arg: &u8| {
        let arg = usize::from(arg);
        let earlier = || attrs.steps.get(arg.checked_sub(inputs.len())?).map(|step| step.dtype);
        inputs.get(arg).map(|input| input.dtype).or_else(earlier)
    };
    let dtypes = step.args.iter().map(dtype).chain([Some(step.dtype)]);
    dtypes.map(|dtype| Some(OperandType { dtype: dtype?, lens })).collect()
}

pub(super) fn check(attrs: &MapAttrs, operands: &[OperandType]) -> Result<(), String> {
    if attrs.inputs.len() > MAX_INPUTS || attrs.steps.len() > 64 {
        return Err(format!("a map has at most {MAX_INPUTS} inputs and 64 steps"));
    }
    let (inputs, outs) = operands.split_at(attrs.inputs.len());
    let out = outs[outs.len() - 1];
    for (dims, &input) in attrs.inputs.iter().zip(inputs) {
        movement::check_broadcast(dims, &[input, OperandType { dtype: input.dtype, lens: out.lens }])?;
    }
    for (index, step) in attrs.steps.iter().enumerate() {
        let known = inputs.len() + index;
        if step.args.iter().any(|&arg| usize::from(arg) >= known) {
            return Err(format!("step {index} of a map uses what comes later"));
        }
        let operands = step_operands(attrs, step, inputs, out.lens).expect("arguments were checked");
        step.func.kernel().check(&operands)?;
    }
    if let Some(kept) = attrs.kept {
        let step = attrs.steps.get(usize::from(kept));
        if step.is_none_or(|step| (step.dtype, out.lens) != (outs[0].dtype, outs[0].lens)) {
            return Err(format!("step {kept} of a map does not give {}", outs[0]));
        }
    }
    match attrs.steps.last() {
        Some(last) if last.dtype == out.dtype => Ok(()),
        _ => Err(format!("the last step of a map does not give {out}")),
    }
}

pub(super) fn run(attrs: &MapAttrs, args: &mut [Arg]) {
    let (inputs, outs) = args.split_at_mut(attrs.inputs.len());
    let (out, kept) = outs.split_last_mut().expect("a map has an output");
    let like = |data: Tensor| Arg { block: out.block.clone(), shape: out.shape.clone(), data };
    let empty = |dtype| like(Tensor::zeros(dtype, Shape::new(&out.block.lens())));
    let mut values: Vec<Tensor> = Vec::new();
    for (dims, input) in attrs.inputs.iter().zip(inputs) {
        let mut pair = [input.clone(), empty(input.data.dtype())];
        movement::run_broadcast(dims, &mut pair);
        let [_, whole] = pair;
        values.push(whole.data);
    }
    for step in &attrs.steps {
        let operands = step.args.iter().map(|&arg| like(values[usize::from(arg)].clone()));
        let mut operands: Vec<Arg> = operands.chain([empty(step.dtype)]).collect();
        step.func.kernel().run(&mut operands);
        values.push(operands.pop().expect("the output is the last operand").data);
    }
    if let (Some(step), [kept]) = (attrs.kept, kept) {
        kept.data = values[attrs.inputs.len() + usize::from(step)].clone();
    }
    out.data = values.pop().expect("a map has steps");
}

/// The set-up of a binary operation once ("W(29 f32 | 26 f16 + loops) + 11"), and every function's loop.
///
/// Assumption: what is passed on in registers saves the store and the load that the table's entries contain
/// ("v: 1+2"), 2 cycles a vector, but a function takes 1 at least. Numbers are in registers already; operands
/// that repeat are loaded like others.
pub(super) fn cycles(attrs: &MapAttrs, operands: &[OperandType], chip: &Chip) -> VertexCost {
    let (inputs, out) = (&operands[..attrs.inputs.len()], operands[operands.len() - 1]);
    let mut slots = c(if out.dtype.size_bytes() == 2 { 26 } else { 29 });
    for (index, step) in attrs.steps.iter().enumerate() {
        let operands = step_operands(attrs, step, inputs, out.lens).expect("a checked map");
        let vectors = vectors(step.dtype, out, chip);
        let stays = index + 1 < attrs.steps.len() && attrs.kept != Some(index as u8);
        let alone = elementwise::loop_slots(&step.func.kernel(), &operands, chip);
        slots += if stays { saturating_sub(alone, c(2) * vectors).max(vectors.min(alone)) } else { alone };
    }
    cost::elementwise(slots, 11, chip)
}

fn vectors(dtype: DType, out: OperandType, chip: &Chip) -> Cycles {
    c(cost::per_worker(out.num_elements(), chip).div_ceil(cost::vector_len(dtype, chip)))
}

fn saturating_sub(a: Cycles, b: Cycles) -> Cycles {
    c(a.0.saturating_sub(b.0))
}

pub(super) fn flops(attrs: &MapAttrs, operands: &[OperandType]) -> u64 {
    let counts = |step: &&MapStep| !matches!(step.func, MapFn::Value(_) | MapFn::Cast);
    let functions = attrs.steps.iter().filter(counts).count() as u64;
    functions.saturating_mul(operands[operands.len() - 1].num_elements())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::cost::tests::{bow, cycles as number};
    use crate::kernel::values;
    use crate::kernel::values::tests::{arg, out, run as run_kernel};
    use smallvec::smallvec;

    fn step(func: MapFn, dtype: DType, args: &[u8]) -> MapStep {
        MapStep { func, dtype, args: SmallVec::from_slice(args) }
    }

    /// `max(x · row + 1, 0)`, with a row for each column.
    fn chain(dtype: DType) -> Kernel {
        Kernel::Map(MapAttrs {
            inputs: smallvec![smallvec![0, 1], smallvec![1]],
            steps: vec![
                step(MapFn::Value(1.0), dtype, &[]),
                step(MapFn::Binary(BinaryFn::Mul), dtype, &[0, 1]),
                step(MapFn::Binary(BinaryFn::Add), dtype, &[3, 2]),
                step(MapFn::Value(0.0), dtype, &[]),
                step(MapFn::Binary(BinaryFn::Max), dtype, &[4, 5]),
            ],
            kept: None,
        })
    }

    #[test]
    fn chains_and_repeats() {
        let x = arg(DType::F32, &[2, 2], &[1.0, 2.0, 3.0, -4.0]);
        let row = arg(DType::F32, &[2], &[10.0, 0.5]);
        let result = run_kernel(&chain(DType::F32), vec![x, row, out(DType::F32, &[2, 2])]);
        assert_eq!(result, [11.0, 2.0, 31.0, 0.0]);
        // Every result is rounded: 2048 + 1 is no f16.
        let x = arg(DType::F16, &[1, 1], &[2048.0]);
        let row = arg(DType::F16, &[1], &[1.0]);
        assert_eq!(run_kernel(&chain(DType::F16), vec![x, row, out(DType::F16, &[1, 1])]), [2048.0]);
    }

    #[test]
    fn refuses_what_does_not_match() {
        let f32s = |lens| OperandType { dtype: DType::F32, lens };
        let (x, row) = (f32s(&[2, 2]), f32s(&[2]));
        assert_eq!(chain(DType::F32).check(&[x, row, x]), Ok(()));
        assert!(chain(DType::F16).check(&[x, row, x]).is_err());
        assert!(chain(DType::F32).check(&[x, f32s(&[3]), x]).is_err());
        let early = MapAttrs {
            inputs: smallvec![smallvec![0]],
            steps: vec![step(MapFn::Cast, DType::F16, &[1])],
            kept: None,
        };
        let error = check(&early, &[row, OperandType { dtype: DType::F16, lens: &[2] }]).unwrap_err();
        assert_eq!(error, "step 0 of a map uses what comes later");
    }

    /// `s = sigmoid(x)` is kept, `s · x` is the output; the input is one row of a matrix.
    #[test]
    fn an_earlier_result_may_be_kept() {
        let kernel = Kernel::Map(MapAttrs {
            inputs: smallvec![smallvec![0, 0]],
            steps: vec![
                step(MapFn::Smooth(Smooth::Sigmoid), DType::F32, &[0]),
                step(MapFn::Binary(BinaryFn::Mul), DType::F32, &[1, 0]),
            ],
            kept: Some(0),
        });
        let x = arg(DType::F32, &[1, 2], &[0.0, 2.0]);
        let mut args = vec![x, out(DType::F32, &[2]), out(DType::F32, &[2])];
        let lens: Vec<SmallVec<[u64; 4]>> = args.iter().map(|arg| arg.block.lens()).collect();
        kernel.check(&crate::kernel::operand_types(&[DType::F32; 3], &lens)).unwrap();
        kernel.run(&mut args);
        let sigmoid = 1.0 / (1.0 + libm::expf(-2.0));
        assert_eq!(values::slice::<f32>(&args[1].data), [0.5, sigmoid]);
        assert_eq!(values::slice::<f32>(&args[2].data), [0.0, 2.0 * sigmoid]);
    }

    #[test]
    fn cycles_are_those_of_the_functions_less_what_stays_in_registers() {
        let lens = [240, 2];
        let (x, row) =
            (OperandType { dtype: DType::F32, lens: &lens }, OperandType { dtype: DType::F32, lens: &[2] });
        // 40 vectors a worker; multiplication and addition 1 each, the maximum 3.
        let expected = 6 * (29 + 40 * (1 + 1 + 3)) + 11 + 82;
        assert_eq!(number(chain(DType::F32).cycles(&[x, row, x], &bow())), expected);
        let alone = |func| number(Kernel::Binary(func).cycles(&[x; 3], &bow()));
        assert!(expected < alone(BinaryFn::Mul) + alone(BinaryFn::Max));
    }
}
