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
    let words = values::slice::<u32>(&seed.data);
    let seed = u64::from(words[0]) | u64::from(words[1]) << 32;
    let dtype = out.data.dtype();
    let strides = values::strides(&values::sizes(&out.shape));
    let first: usize =
        out.block.0.iter().zip(&strides).map(|(&(begin, _), stride)| begin as usize * stride).sum();
    let lens: Sizes = values::sizes(out.data.shape());
    let row = lens.last().copied().unwrap_or(1);
    let mut elements = out.data.bytes_mut().chunks_exact_mut(dtype.size_bytes() as usize);
    values::for_rows(&lens, &strides, |offset| {
        for (position, bytes) in (first + offset..).zip(elements.by_ref().take(row)) {
            write(distribution, dtype, seed, position as u64, bytes);
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
