//! Convolution with one input and one output channel per group: no product of matrices, but sums of a few
//! shifted rows. Over the same padded planes as other convolutions, so that columns are neighbours whatever
//! the strides. The floor is L1: one load per kernel element and result.

#![allow(unsafe_code)]

use super::Step;
use super::program::Program;
use super::windows::Windows;
use crate::allocation::Line;
use crate::exec::Run;
use crate::isa::Isa;
use crate::view::View;
use smallvec::SmallVec;
use std::cell::RefCell;

pub struct Depthwise {
    pub images: usize,
    pub channels: usize,
    pub windows: Windows,
    pub isa: Isa,
    /// As of [`super::gemm::Gemm`].
    pub epilogue: Option<Program>,
}

thread_local! {
    static RESULTS: RefCell<Vec<Line>> = const { RefCell::new(Vec::new()) };
}

pub fn run(depthwise: &Depthwise, step: &Step, run: &mut Run) {
    let (windows, memory) = (&depthwise.windows, run.memory);
    let (Some(planes), Some(scratch)) = (&windows.planes, &step.scratch) else {
        unreachable!("depthwise convolutions go over planes in scratch")
    };
    let columns = windows.runs.len() * windows.run_length;
    if columns == 0 {
        return;
    }
    planes.fill(memory, &step.inputs[1], scratch, run.pool);
    let taps = windows.offsets.len();
    // Rows with their gaps in one go: short rows would leave vectors half empty.
    let wide = windows.runs[windows.runs.len() - 1] + windows.run_length;
    let sums = sums(depthwise.isa);
    let output: &View = &step.outputs[0];
    run.pool.run(depthwise.images * depthwise.channels, &|task| {
        let channel = task % depthwise.channels;
        let weights = memory.address(&step.inputs[0]).cast::<f32>().wrapping_add(channel * taps);
        let plane = memory.address(scratch).cast::<f32>().wrapping_add(task * windows.group_size);
        RESULTS.with_borrow_mut(|lines| {
            lines.resize((wide * 4).div_ceil(64).max(lines.len()), Line::ZERO);
            let results = lines.as_mut_ptr().cast::<f32>();
            // SAFETY: the planes hold every kernel element of every column (see `plan/conv.rs`); the
            // results are this thread's alone and move towards the front, in order; the level is one the
            // processor has.
            unsafe {
                sums(plane, weights, &windows.offsets, results, wide);
                for (index, &run) in windows.runs.iter().enumerate() {
                    let to = results.add(index * windows.run_length);
                    std::ptr::copy(results.add(run), to, windows.run_length);
                }
            }
            let Some(epilogue) = &depthwise.epilogue else {
                let to = memory.address(output).cast::<f32>().wrapping_add(task * columns);
                // SAFETY: a channel's results, and its place in the output.
                unsafe { std::ptr::copy_nonoverlapping(results, to, columns) };
                return;
            };
            let begin = task * columns;
            let first = results.cast::<u8>().cast_const().wrapping_sub(begin * 4);
            let mut inputs: SmallVec<[*const u8; 8]> = SmallVec::from_elem(first, 1);
            inputs.extend(step.inputs[2..].iter().map(|view| memory.address(view).cast_const()));
            // SAFETY: as in `gemm.rs`: the first input's position `begin` is the channel's first result.
            unsafe { epilogue.run(&inputs, memory.address(output), begin, columns) };
        });
    });
}

/// `(input, weights, offsets, results, count)`: result i is the sum of weight t × input[i + offsets[t]].
type Sums = unsafe fn(*const f32, *const f32, &[usize], *mut f32, usize);

fn sums(isa: Isa) -> Sums {
    match isa {
        Isa::Portable => sums_portable,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => sums_avx2,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => sums_avx512,
        #[cfg(not(target_arch = "x86_64"))]
        _ => sums_portable,
    }
}

/// # Safety
/// All elements named lie in memory; results are the caller's alone.
unsafe fn sums_portable(x: *const f32, w: *const f32, offsets: &[usize], y: *mut f32, n: usize) {
    // SAFETY: passed on.
    unsafe { sums_of::<16>(x, w, offsets, y, n) }
}

/// # Safety
/// As [`sums_portable`]; the processor has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn sums_avx2(x: *const f32, w: *const f32, offsets: &[usize], y: *mut f32, n: usize) {
    // SAFETY: passed on.
    unsafe { sums_of::<32>(x, w, offsets, y, n) }
}

/// # Safety
/// As [`sums_portable`]; the processor has AVX-512.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
unsafe fn sums_avx512(x: *const f32, w: *const f32, offsets: &[usize], y: *mut f32, n: usize) {
    // SAFETY: passed on.
    unsafe { sums_of::<64>(x, w, offsets, y, n) }
}

/// Sums of N columns at a time in registers; the rest in narrower steps.
///
/// # Safety
/// As [`sums_portable`].
#[inline(always)]
unsafe fn sums_of<const N: usize>(x: *const f32, w: *const f32, offsets: &[usize], y: *mut f32, n: usize) {
    let mut at = 0;
    // SAFETY: columns stay below n.
    unsafe {
        while at + N <= n {
            block::<N>(x.add(at), w, offsets, y.add(at));
            at += N;
        }
        while at + 16 <= n {
            block::<16>(x.add(at), w, offsets, y.add(at));
            at += 16;
        }
        while at + 4 <= n {
            block::<4>(x.add(at), w, offsets, y.add(at));
            at += 4;
        }
        while at < n {
            block::<1>(x.add(at), w, offsets, y.add(at));
            at += 1;
        }
    }
}

/// # Safety
/// As [`sums_portable`], for N columns.
#[inline(always)]
unsafe fn block<const N: usize>(x: *const f32, w: *const f32, offsets: &[usize], y: *mut f32) {
    let mut sums = [0f32; N];
    for (tap, &offset) in offsets.iter().enumerate() {
        // SAFETY: as stated.
        let (weight, x) = unsafe { (*w.add(tap), x.add(offset)) };
        for (i, sum) in sums.iter_mut().enumerate() {
            // SAFETY: as stated.
            *sum += weight * unsafe { *x.add(i) };
        }
    }
    for (i, &sum) in sums.iter().enumerate() {
        // SAFETY: as stated.
        unsafe { *y.add(i) = sum };
    }
}
