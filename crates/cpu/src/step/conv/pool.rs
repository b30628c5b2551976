//! Windows and whole images over blocks of channels: the largest or the sum, a register per pixel. Sums are
//! in f32, row by row, so that errors stay those of a row. The floor is one L1 load per window element.

#![allow(unsafe_code)]

use crate::exec::Run;
use crate::isa::Isa;
#[cfg(target_arch = "x86_64")]
use crate::kernel::lanes::{Avx2, Avx512};
use crate::kernel::lanes::{LANES, Lanes, Portable};
use crate::step::Step;

/// Planes `[height, width, LANES]`, as many as the operand has.
#[derive(Clone, Debug)]
pub struct Pool {
    pub isa: Isa,
    pub max: bool,
    pub from: [usize; 2],
    pub to: [usize; 2],
    pub window: [usize; 2],
    pub strides: [usize; 2],
    pub low: [i64; 2],
    pub dilation: [usize; 2],
}

type PlaneLoop = unsafe fn(&Pool, *const f32, *mut f32);

pub fn run(pool: &Pool, step: &Step, run: &mut Run) {
    let (input, output) = (&step.inputs[0], &step.outputs[0]);
    let (from, to) = (pool.from[0] * pool.from[1] * LANES, pool.to[0] * pool.to[1] * LANES);
    let planes = output.num_elements().checked_div(to).unwrap_or(0);
    let memory = run.memory;
    let plane_loop = pick(pool.isa);
    run.pool.run(planes, &|plane| {
        let x = memory.address(input).cast::<f32>().cast_const().wrapping_add(plane * from);
        let y = memory.address(output).cast::<f32>().wrapping_add(plane * to);
        // SAFETY: a plane of the dense operand, and its place in the output, which is this task's alone; the
        // level is one the processor has.
        unsafe { plane_loop(pool, x, y) };
    });
}

fn pick(isa: Isa) -> PlaneLoop {
    match isa {
        Isa::Portable => plane::<Portable>,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => avx2,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => avx512,
        #[cfg(not(target_arch = "x86_64"))]
        _ => plane::<Portable>,
    }
}

/// # Safety
/// As [`plane`]; the processor has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn avx2(pool: &Pool, x: *const f32, y: *mut f32) {
    // SAFETY: passed on.
    unsafe { plane::<Avx2>(pool, x, y) }
}

/// # Safety
/// As [`plane`]; the processor has AVX-512.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
unsafe fn avx512(pool: &Pool, x: *const f32, y: *mut f32) {
    // SAFETY: passed on.
    unsafe { plane::<Avx512>(pool, x, y) }
}

/// The window elements, in steps of the dilation, that lie inside the image for a result along an axis.
pub fn inside(pool: &Pool, axis: usize, at: usize) -> (i64, std::ops::Range<usize>) {
    let first = (at * pool.strides[axis]) as i64 - pool.low[axis];
    let dilation = pool.dilation[axis] as i64;
    let begin = (-first).max(0).unsigned_abs().div_ceil(dilation.unsigned_abs()) as usize;
    let end = (pool.from[axis] as i64 - first + dilation - 1).div_euclid(dilation);
    let end = end.clamp(0, pool.window[axis] as i64) as usize;
    (first, begin.min(end)..end)
}

/// # Safety
/// `x` is a plane of the operand, `y` one of the result.
#[inline(always)]
unsafe fn plane<L: Lanes>(pool: &Pool, x: *const f32, y: *mut f32) {
    let mut y = y;
    for row in 0..pool.to[0] {
        let (top, rows) = inside(pool, 0, row);
        for column in 0..pool.to[1] {
            let (left, columns) = inside(pool, 1, column);
            // SAFETY: rows and columns are inside the image.
            unsafe {
                let mut total = L::splat(if pool.max { f32::NEG_INFINITY } else { 0.0 });
                for row in rows.clone() {
                    let row = (top + (row * pool.dilation[0]) as i64) as usize * pool.from[1];
                    let at = |column: usize| {
                        let column = (left + (column * pool.dilation[1]) as i64) as usize;
                        L::load(x.add((row + column) * LANES))
                    };
                    if pool.max {
                        for column in columns.clone() {
                            total = total.max(at(column));
                        }
                    } else {
                        let mut sum = L::splat(0.0);
                        for column in columns.clone() {
                            sum = sum.add(at(column));
                        }
                        total = total.add(sum);
                    }
                }
                total.store(y);
                y = y.add(LANES);
            }
        }
    }
}
