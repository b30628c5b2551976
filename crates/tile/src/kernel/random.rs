//! Random: elements that depend on a seed and on their index in the whole variable only, so that every
//! split of a variable holds the same numbers ([`pando_base::random`]). Cycles: hardware.md section 6.6.

use super::cost::{self, c};
use super::values::{self, Sizes};
use super::{Arg, OperandType, VertexCost};
use pando_base::DType;
use pando_base::random::{self, Distribution};
use pando_machine::Chip;

/// `seed (u32[2], the low word first), out`.
pub(super) fn check(distribution: Distribution, operands: &[OperandType]) -> Result<(), String> {
    let [seed, out] = [operands[0], operands[1]];
    if seed.dtype != DType::U32 || seed.lens != [2] {
        return Err(format!("a seed is u32[2], not {seed}"));
    }
    match (out.dtype.is_float(), distribution) {
        (false, Distribution::Normal) => Err(format!("normal numbers are floats, not {}", out.dtype)),
        _ => Ok(()),
    }
}

pub(super) fn run(distribution: Distribution, args: &mut [Arg]) {
    let [seed, out] = args else { unreachable!("random has two operands") };
    let (seed, dtype) = (seed_of(seed), out.data.dtype());
    for_positions(out, |position, bytes| write(distribution, dtype, seed, position, bytes));
}

fn seed_of(seed: &Arg) -> u64 {
    let words = values::slice::<u32>(&seed.data);
    u64::from(words[0]) | u64::from(words[1]) << 32
}

/// Each element with its index in the whole variable.
fn for_positions(out: &mut Arg, mut each: impl FnMut(u64, &mut [u8])) {
    let dtype = out.data.dtype();
    let strides = values::strides(&values::sizes(&out.shape));
    let first: usize =
        out.block.0.iter().zip(&strides).map(|(&(begin, _), stride)| begin as usize * stride).sum();
    let lens: Sizes = values::sizes(out.data.shape());
    let row = lens.last().copied().unwrap_or(1);
    let mut elements = out.data.bytes_mut().chunks_exact_mut(dtype.size_bytes() as usize);
    values::for_rows(&lens, &strides, |offset| {
        for (position, bytes) in (first + offset..).zip(elements.by_ref().take(row)) {
            each(position as u64, bytes);
        }
    });
}

fn write(distribution: Distribution, dtype: DType, seed: u64, position: u64, bytes: &mut [u8]) {
    match distribution {
        _ if !dtype.is_float() => dtype.write_int(random::bits(seed, position).into(), bytes),
        Distribution::Uniform => dtype.write_f64(random::uniform_in(dtype, seed, position), bytes),
        Distribution::Normal => dtype.write_f64(random::normal(seed, position), bytes),
    }
}

/// `seed, x (f32), out (f16 or bf16)`.
pub(super) fn check_round(operands: &[OperandType]) -> Result<(), String> {
    let [seed, x, out] = [operands[0], operands[1], operands[2]];
    if seed.dtype != DType::U32 || seed.lens != [2] {
        return Err(format!("a seed is u32[2], not {seed}"));
    }
    if x.dtype != DType::F32 || !matches!(out.dtype, DType::F16 | DType::BF16) || x.lens != out.lens {
        return Err(format!("rounds f32 to f16 or bf16 of the same shape, not {x} to {out}"));
    }
    Ok(())
}

/// As the graph's composite does it: noise below the last bit that stays, then a cut.
pub(super) fn run_round(args: &mut [Arg]) {
    let [seed, x, out] = args else { unreachable!("rounding has three operands") };
    let (seed, dtype) = (seed_of(seed), out.data.dtype());
    let mut elements = values::slice::<f32>(&x.data).iter();
    for_positions(out, |position, bytes| {
        let x = *elements.next().expect("as many as there are results");
        let rounded = rounded(x, random::bits(seed, position) as u32, dtype);
        dtype.write_f64(rounded.into(), bytes);
    });
}

fn rounded(x: f32, noise: u32, dtype: DType) -> f32 {
    let low = if dtype == DType::F16 { (1 << 13) - 1 } else { (1 << 16) - 1 };
    if dtype == DType::F16 && x.abs() < 2f32.powi(-14) {
        // Steps no longer shrink with the value.
        let fraction = ((noise & low) as f32 + 0.5) * 2f32.powi(-13);
        let sign = if x == 0.0 { x } else { 1f32.copysign(x) };
        return (x.abs() * 2f32.powi(24) + fraction).floor() * 2f32.powi(-24) * sign;
    }
    if x.is_nan() { x } else { f32::from_bits(x.to_bits().wrapping_add(noise & low) & !low) }
}

/// As a conversion. Assumption: rounding is a mode of the conversion, its noise comes as fast as it is needed
/// (hardware.md section 1: 128 random bits a cycle and tile), and setting the seed takes "14+27W" (section 6.6).
pub(super) fn round_cycles(operands: &[OperandType], chip: &Chip) -> VertexCost {
    let seeding = 14 + 27 * cost::workers(chip);
    match super::elementwise::cast_cycles(&operands[1..], chip) {
        VertexCost::Supervisor(cycles) => VertexCost::Supervisor(cycles.saturating_add(seeding)),
        worker => worker,
    }
}

/// Normal: "4 + 4·ceil(n/(2 f32|4 f16)) + W·(22|24)"; uniform integers "4+22W+n/2"; uniform floats as
/// normal ones (the row's own vector length is marked as an error there).
///
/// Assumption: the hardware's generator delivers our numbers as fast as its own.
pub(super) fn cycles(operands: &[OperandType], chip: &Chip) -> VertexCost {
    let out = operands[1];
    let elements = out.num_elements();
    let loops = if out.dtype.is_float() {
        c(4) * c(elements.div_ceil(cost::vector_len(out.dtype, chip)))
    } else {
        c(elements.saturating_mul(out.dtype.size_bytes()).div_ceil(8))
    };
    let before = if out.dtype.size_bytes() == 2 { 24 } else { 22 };
    cost::launched(c(4) + c(cost::workers(chip)) * c(before) + loops, chip)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::Block;
    use crate::kernel::Kernel;
    use crate::kernel::cost::tests::{bow, cycles as number};
    use crate::kernel::values::tests::{arg, out, run as run_kernel};
    use pando_base::Tensor;

    /// Neighbours only, exact values untouched, right on average.
    #[test]
    fn rounds_to_neighbours() {
        let x: Vec<f64> = vec![f64::from(1.0f32 + 2f32.powi(-12)); 4000];
        let args =
            vec![arg(DType::U32, &[2], &[1.0, 0.0]), arg(DType::F32, &[4000], &x), out(DType::F16, &[4000])];
        let results = run_kernel(&Kernel::Round, args);
        let above = results.iter().filter(|&&y| y == 1.0 + 2f64.powi(-10)).count();
        assert!(results.iter().all(|&y| y == 1.0 || y == 1.0 + 2f64.powi(-10)));
        assert!((900..1100).contains(&above), "a quarter is above: {above}");
        let exact = [0.5, -3.0, 0.0, 2f64.powi(-24)];
        let args =
            vec![arg(DType::U32, &[2], &[5.0, 0.0]), arg(DType::F32, &[4], &exact), out(DType::F16, &[4])];
        assert_eq!(run_kernel(&Kernel::Round, args), exact);
    }

    #[test]
    fn a_block_holds_the_elements_of_the_whole() {
        let seed = || arg(DType::U32, &[2], &[7.0, 3.0]);
        for (distribution, dtype) in [(Distribution::Normal, DType::F32), (Distribution::Uniform, DType::I16)]
        {
            let kernel = Kernel::Random { distribution };
            let whole = run_kernel(&kernel, vec![seed(), out(dtype, &[3, 4])]);
            let block = Block::new(&[(1, 3), (2, 4)]);
            let part = Arg::new(block, &[3, 4], Tensor::zeros(dtype, [2, 2]));
            let part = run_kernel(&kernel, vec![seed(), part]);
            assert_eq!(part, [whole[6], whole[7], whole[10], whole[11]]);
        }
        let whole = run_kernel(
            &Kernel::Random { distribution: Distribution::Normal },
            vec![seed(), out(DType::F32, &[2])],
        );
        let expected = random::normal(7 | 3 << 32, 1) as f32;
        assert_eq!(whole[1], f64::from(expected));
    }

    #[test]
    fn refuses_what_does_not_match() {
        let ty = |dtype, lens| OperandType { dtype, lens };
        let (seed, out) = (ty(DType::U32, &[2]), ty(DType::I32, &[4]));
        assert_eq!(check(Distribution::Uniform, &[seed, out]), Ok(()));
        assert!(check(Distribution::Normal, &[seed, out]).is_err());
        assert!(check(Distribution::Uniform, &[out, out]).is_err());
    }

    #[test]
    fn cycles_follow_the_formula() {
        let time = |dtype, n: u64| {
            number(cycles(
                &[OperandType { dtype: DType::U32, lens: &[2] }, OperandType { dtype, lens: &[n] }],
                &bow(),
            ))
        };
        assert_eq!(time(DType::F32, 100), 4 + 4 * 50 + 6 * 22 + 38);
        assert_eq!(time(DType::F16, 100), 4 + 4 * 25 + 6 * 24 + 38);
        assert_eq!(time(DType::I32, 100), 4 + 22 * 6 + 50 + 38);
    }
}
