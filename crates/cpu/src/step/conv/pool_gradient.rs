//! The gradient of the largest elements of windows over images in blocks of channels: it goes to the first such
//! element of each window. The floor is memory bandwidth; windows that overlap add up in the cache.

#![allow(unsafe_code)]
// Arrays of lanes: the loops over them are vectorised.
#![allow(clippy::needless_range_loop)]

use super::pool::{Pool, inside};
use crate::exec::Run;
use crate::isa::Isa;
use crate::kernel::lanes::LANES;
use crate::step::Step;

pub struct PoolGradient(pub Pool);

type Pixel = [f32; LANES];
type PlaneLoop = unsafe fn(&Pool, *const Pixel, *const Pixel, *mut Pixel);

pub fn run(PoolGradient(pool): &PoolGradient, step: &Step, run: &mut Run) {
    let output = &step.outputs[0];
    let (from, to) = (pool.from[0] * pool.from[1], pool.to[0] * pool.to[1]);
    let planes = output.num_elements().checked_div(from * LANES).unwrap_or(0);
    let memory = run.memory;
    let plane_loop = pick(pool.isa);
    run.pool.run(planes, &|plane| {
        let x = memory.address(&step.inputs[0]).cast::<Pixel>().cast_const().wrapping_add(plane * from);
        let gradient = memory.address(&step.inputs[1]).cast::<Pixel>().cast_const().wrapping_add(plane * to);
        let result = memory.address(output).cast::<Pixel>().wrapping_add(plane * from);
        // SAFETY: planes of the dense operands and of the output, which is this task's alone; the level is one the
        // processor has.
        unsafe { plane_loop(pool, x, gradient, result) };
    });
}

fn pick(isa: Isa) -> PlaneLoop {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => avx2,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => avx512,
        _ => plane,
    }
}

/// # Safety
/// As [`plane`]; the processor has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn avx2(pool: &Pool, x: *const Pixel, gradient: *const Pixel, to: *mut Pixel) {
    // SAFETY: passed on.
    unsafe { plane(pool, x, gradient, to) }
}

/// # Safety
/// As [`plane`]; the processor has AVX-512.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
unsafe fn avx512(pool: &Pool, x: *const Pixel, gradient: *const Pixel, to: *mut Pixel) {
    // SAFETY: passed on.
    unsafe { plane(pool, x, gradient, to) }
}

/// # Safety
/// `x` and `to` are planes of the operand and its gradient, `gradient` one of the result.
#[inline(always)]
unsafe fn plane(pool: &Pool, x: *const Pixel, gradient: *const Pixel, to: *mut Pixel) {
    // SAFETY: rows and columns are inside the images.
    unsafe {
        std::slice::from_raw_parts_mut(to, pool.from[0] * pool.from[1]).fill([0.0; LANES]);
        for row in 0..pool.to[0] {
            let (top, rows) = inside(pool, 0, row);
            for column in 0..pool.to[1] {
                let (left, columns) = inside(pool, 1, column);
                let place = |row: usize, column: usize| {
                    let y = (top + (row * pool.dilation[0]) as i64) as usize;
                    y * pool.from[1] + (left + (column * pool.dilation[1]) as i64) as usize
                };
                let mut most = [f32::NEG_INFINITY; LANES];
                for row in rows.clone() {
                    for column in columns.clone() {
                        let x = &*x.add(place(row, column));
                        for lane in 0..LANES {
                            let larger = x[lane] > most[lane] || x[lane].is_nan();
                            most[lane] = if larger { x[lane] } else { most[lane] };
                        }
                    }
                }
                // What is still to be given to an element.
                let mut rest = *gradient.add(row * pool.to[1] + column);
                for row in rows.clone() {
                    for column in columns.clone() {
                        let place = place(row, column);
                        let (x, to) = (&*x.add(place), &mut *to.add(place));
                        for lane in 0..LANES {
                            let taken = x[lane] == most[lane];
                            to[lane] += if taken { rest[lane] } else { 0.0 };
                            rest[lane] = if taken { 0.0 } else { rest[lane] };
                        }
                    }
                }
            }
        }
    }
}
