//! Dots of integers of more than 8 bits, exactly: sums wrap in i32, or in i64 where the result is wider than
//! 32 bits. Both sides are dense and of that type. The floor is L1: rows of the right side are read and sums
//! written once per four steps of k.

#![allow(unsafe_code)]

use super::Step;
use crate::exec::Run;
use pando_base::DType;

pub struct IntegerDot {
    pub batch: usize,
    pub m: usize,
    pub n: usize,
    pub k: usize,
}

/// Wrapping multiply and add.
trait Wrapping: Copy {
    const ZERO: Self;
    fn multiply_add(self, a: Self, b: Self) -> Self;
}

impl Wrapping for i32 {
    const ZERO: i32 = 0;
    #[inline(always)]
    fn multiply_add(self, a: i32, b: i32) -> i32 {
        self.wrapping_add(a.wrapping_mul(b))
    }
}

impl Wrapping for i64 {
    const ZERO: i64 = 0;
    #[inline(always)]
    fn multiply_add(self, a: i64, b: i64) -> i64 {
        self.wrapping_add(a.wrapping_mul(b))
    }
}

pub fn run(dot: &IntegerDot, step: &Step, run: &mut Run) {
    match step.outputs[0].dtype {
        DType::I32 => run_as::<i32>(dot, step, run),
        _ => run_as::<i64>(dot, step, run),
    }
}

fn run_as<T: Wrapping>(dot: &IntegerDot, step: &Step, run: &Run) {
    let memory = run.memory;
    let &IntegerDot { batch, m, n, k } = dot;
    let rows = batch * m;
    let parts = if rows * n * k < 1 << 16 { 1 } else { rows.min(run.pool.threads() * 4) };
    run.pool.run(if rows * n == 0 { 0 } else { parts }, &|part| {
        for row in part * rows / parts..(part + 1) * rows / parts {
            let a = memory.address(&step.inputs[0]).cast::<T>().wrapping_add(row * k);
            let b = memory.address(&step.inputs[1]).cast::<T>().wrapping_add(row / m * k * n);
            let sums = memory.address(&step.outputs[0]).cast::<T>().wrapping_add(row * n);
            // SAFETY: a row of each dense tensor; each row of the result is written by one task.
            let (a, b, sums) = unsafe {
                (
                    std::slice::from_raw_parts(a, k),
                    std::slice::from_raw_parts(b, k * n),
                    std::slice::from_raw_parts_mut(sums, n),
                )
            };
            row_product(a, b, sums);
        }
    });
}

fn row_product<T: Wrapping>(a: &[T], b: &[T], sums: &mut [T]) {
    let n = sums.len();
    sums.fill(T::ZERO);
    let (fours, b_fours) = (a.chunks_exact(4), b.chunks_exact(4 * n));
    let rest = fours.remainder().iter().zip(b_fours.remainder().chunks_exact(n));
    for (a, b) in fours.zip(b_fours) {
        let (first, b) = b.split_at(n);
        let (second, b) = b.split_at(n);
        let (third, fourth) = b.split_at(n);
        for (i, sum) in sums.iter_mut().enumerate() {
            let total = sum.multiply_add(a[0], first[i]).multiply_add(a[1], second[i]);
            *sum = total.multiply_add(a[2], third[i]).multiply_add(a[3], fourth[i]);
        }
    }
    for (&a, b) in rest {
        sums.iter_mut().zip(b).for_each(|(sum, &b)| *sum = sum.multiply_add(a, b));
    }
}
