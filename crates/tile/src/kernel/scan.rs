//! Scan: running combinations along an axis. Functions and types as [`super::combine`] has them; the
//! running total of floats is kept in f32 and rounded wherever it is written.
//! Cycles: no row of its own in hardware.md section 6, see [`cycles`].

use super::combine::{self, Combine, Combining};
use super::cost::{self, c};
use super::{Arg, OperandType, ScanAttrs, VertexCost};
use pando_base::{ReduceFn, Tensor};
use pando_machine::Chip;

/// `in, out`, or `start, in, out`: `start` has length 1 along the axis.
pub(super) fn check(attrs: &ScanAttrs, operands: &[OperandType]) -> Result<(), String> {
    let (&out, inputs) = operands.split_last().expect("a scan has an output");
    let input = inputs[inputs.len() - 1];
    if !combine::are_alike(input.dtype, out.dtype) || input.lens != out.lens {
        return Err(format!("scans {input} to {out}; both need one type and shape"));
    }
    let axis = usize::from(attrs.axis);
    if axis >= input.lens.len() {
        return Err(format!("{input} has no axis {axis}"));
    }
    if matches!(attrs.func, ReduceFn::And | ReduceFn::Or) {
        return Err(format!("{} does not run along an axis", attrs.func));
    }
    if attrs.start {
        let start = inputs[0];
        let mut expected = input.lens.to_vec();
        expected[axis] = 1;
        if !combine::are_alike(start.dtype, input.dtype) || start.lens != expected {
            return Err(format!("the start {start} is not one for each line of {input}"));
        }
    }
    combine::check_type(attrs.func, input.dtype)
}

pub(super) fn run(attrs: &ScanAttrs, args: &mut [Arg]) {
    let (out, inputs) = args.split_last_mut().expect("a scan has an output");
    let shape = out.data.shape();
    let axis = usize::from(attrs.axis);
    let inner = shape[axis + 1..].iter().product::<u64>() as usize;
    let lines = Lines { attrs, length: shape[axis] as usize, inner };
    let inputs: Vec<&Tensor> = inputs.iter().map(|arg| &arg.data).collect();
    combine::run(&lines, &inputs, &mut out.data);
}

struct Lines<'a> {
    attrs: &'a ScanAttrs,
    length: usize,
    /// Distance of neighbours on a line.
    inner: usize,
}

impl Combining for Lines<'_> {
    fn run<T: Combine>(&self, inputs: &[&[T]], out: &mut [T]) {
        let (input, func) = (inputs[inputs.len() - 1], self.attrs.func);
        if self.length == 0 {
            return;
        }
        let starts = self.attrs.start.then(|| inputs[0]);
        for line in 0..input.len() / self.length {
            let first = line / self.inner * self.length * self.inner + line % self.inner;
            let mut total = starts.map_or_else(|| T::neutral(func), |starts| starts[line]);
            for step in 0..self.length {
                let step = if self.attrs.reverse { self.length - 1 - step } else { step };
                let at = first + step * self.inner;
                let next = T::combine(func, total, input[at]);
                out[at] = if self.attrs.exclusive { total } else { next };
                total = next;
            }
        }
    }
}

/// Assumption: a worker runs along its lines with the cycles of an addition (section 6.2: 3 a vector of
/// floats with load and store; 7 an integer, 8 for maxima) after the set-up of a binary operation (29).
/// Lines beside each other fill vectors; along the innermost dimension elements go one by one.
pub(super) fn cycles(attrs: &ScanAttrs, operands: &[OperandType], chip: &Chip) -> VertexCost {
    let out = operands[operands.len() - 1];
    let axis = usize::from(attrs.axis);
    let (outer, inner) = (cost::product(&out.lens[..axis]), cost::product(&out.lens[axis + 1..]));
    let (width, per_step) = match (out.dtype.is_float(), attrs.func) {
        (true, _) => (cost::vector_len(out.dtype, chip), 3),
        (false, ReduceFn::Max | ReduceFn::Min) => (1, 8),
        (false, _) => (1, 7),
    };
    let lines = cost::per_worker(outer.saturating_mul(inner.div_ceil(width)), chip);
    cost::supervisor(c(29) + c(lines) * c(out.lens[axis]) * c(per_step), 0, chip)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Kernel;
    use crate::kernel::cost::tests::{bow, cycles as number};
    use crate::kernel::values::tests::{arg, out, run as run_kernel};
    use pando_base::DType;

    fn attrs(axis: u8, exclusive: bool, reverse: bool, start: bool) -> ScanAttrs {
        ScanAttrs { func: ReduceFn::Sum, axis, exclusive, reverse, start }
    }

    #[test]
    fn runs_along_lines() {
        let input = || arg(DType::F16, &[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let scan = |attrs| run_kernel(&Kernel::Scan(attrs), vec![input(), out(DType::F16, &[2, 3])]);
        assert_eq!(scan(attrs(1, false, false, false)), [1.0, 3.0, 6.0, 4.0, 9.0, 15.0]);
        assert_eq!(scan(attrs(1, true, true, false)), [5.0, 3.0, 0.0, 11.0, 6.0, 0.0]);
        assert_eq!(scan(attrs(0, false, false, false)), [1.0, 2.0, 3.0, 5.0, 7.0, 9.0]);
    }

    #[test]
    fn starts_from_what_came_before() {
        let start = arg(DType::F32, &[1, 2], &[10.0, 20.0]);
        let input = arg(DType::F16, &[2, 2], &[1.0, 2.0, 3.0, 4.0]);
        let kernel = Kernel::Scan(attrs(0, false, false, true));
        let result = run_kernel(&kernel, vec![start, input, out(DType::F16, &[2, 2])]);
        assert_eq!(result, [11.0, 22.0, 14.0, 26.0]);
    }

    #[test]
    fn refuses_what_does_not_match() {
        let ty = |dtype, lens| OperandType { dtype, lens };
        let operands = [ty(DType::F32, &[2]), ty(DType::F32, &[4]), ty(DType::F32, &[4])];
        let error = check(&attrs(0, false, false, true), &operands).unwrap_err();
        assert_eq!(error, "the start f32[2] is not one for each line of f32[4]");
        assert!(check(&attrs(1, false, false, false), &operands[1..]).is_err());
        let and = ScanAttrs { func: ReduceFn::And, ..attrs(0, false, false, false) };
        assert!(check(&and, &[ty(DType::I32, &[4]), ty(DType::I32, &[4])]).is_err());
    }

    #[test]
    fn cycles_grow_with_lines_and_length() {
        let time = |axis, lens: &[u64]| {
            let operand = OperandType { dtype: DType::F32, lens };
            number(cycles(&attrs(axis, false, false, false), &[operand; 2], &bow()))
        };
        // Six lines of 100, one a worker.
        assert_eq!(time(1, &[6, 100]), 6 * (29 + 300) + 38);
        // Twelve lines side by side are six pairs.
        assert_eq!(time(0, &[100, 12]), time(1, &[6, 100]));
    }
}
