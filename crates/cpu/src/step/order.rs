//! Sorting, scattering and random numbers: steps whose elements find their place by value. Sorting costs its
//! comparisons; scattering runs in order, on one thread, so that the last update stays.

#![allow(unsafe_code)]

use super::Step;
use super::movement::{copy, read_index};
use crate::exec::Run;
use crate::isa::Isa;
use crate::kernel::elementwise::with_type;
use crate::kernel::number::Reduced;
use crate::kernel::random::uniform_loop;
use pando_base::{DType, ReduceFn};
use pando_graph::{Distribution, random};
use std::cell::RefCell;
use std::cmp::Ordering;

pub enum Order {
    /// Along an axis of `length` elements `stride` apart; operands are dense.
    Sort {
        length: usize,
        stride: usize,
        descending: bool,
    },
    /// Dense data, indices, updates; as [`super::movement::Movement::Gather`].
    Scatter {
        outer: usize,
        rows: usize,
        row: usize,
        combine: Option<ReduceFn>,
    },
    Random(Distribution, Isa),
}

impl Order {
    pub fn name(&self) -> &'static str {
        match self {
            Order::Sort { .. } => "sort",
            Order::Scatter { .. } => "scatter",
            Order::Random(..) => "random",
        }
    }
}

pub fn run(order: &Order, step: &Step, run: &mut Run) {
    match *order {
        Order::Sort { length, stride, descending } => {
            let dtype = step.inputs[0].dtype;
            if matches!(dtype, DType::F16 | DType::BF16) {
                sort(length, stride, step, run, |bytes, at| half_key(dtype, bytes, at), descending);
                return;
            }
            with_type!(dtype, T => {
                let key = |bytes: &[u8], at: usize| -> T {
                    // SAFETY: the position is inside the dense operand, which is aligned to its elements.
                    unsafe { *bytes.as_ptr().cast::<T>().add(at) }
                };
                sort(length, stride, step, run, key, descending);
            }, else unreachable!("8-bit floats go to the evaluator"));
        }
        Order::Scatter { .. } => scatter(order, step, run),
        Order::Random(distribution, isa) => fill_random(distribution, isa, step, run),
    }
}

fn half_key(dtype: DType, bytes: &[u8], at: usize) -> f32 {
    crate::kernel::half::read(dtype, u16::from_le_bytes([bytes[2 * at], bytes[2 * at + 1]]))
}

/// NaN above every number and equal to itself.
fn compare<T: PartialOrd>(a: &T, b: &T) -> Ordering {
    a.partial_cmp(b).unwrap_or_else(|| (a.partial_cmp(a).is_none()).cmp(&b.partial_cmp(b).is_none()))
}

/// Always stable: that costs little more.
fn sort<T: PartialOrd>(
    length: usize,
    stride: usize,
    step: &Step,
    run: &Run,
    key: impl Fn(&[u8], usize) -> T + Sync,
    descending: bool,
) {
    let lines = step.outputs[0].num_elements().checked_div(length).unwrap_or(0);
    let memory = run.memory;
    let parts = if lines * length < 4096 { 1 } else { lines.min(run.pool.threads() * 4) };
    run.pool.run(if lines == 0 { 0 } else { parts }, &|part| {
        // SAFETY: the keys are dense and nothing writes them while this step runs.
        let keys = unsafe { memory.bytes(&step.inputs[0]) };
        let mut order: Vec<usize> = Vec::with_capacity(length);
        for line in part * lines / parts..(part + 1) * lines / parts {
            let base = line / stride * stride * length + line % stride;
            order.clear();
            order.extend((0..length).map(|i| base + i * stride));
            match descending {
                false => order.sort_by(|&a, &b| compare(&key(keys, a), &key(keys, b))),
                true => order.sort_by(|&a, &b| compare(&key(keys, b), &key(keys, a))),
            }
            for (from, to) in step.inputs.iter().zip(&step.outputs) {
                let size = from.dtype.size_bytes() as usize;
                for (position, &source) in order.iter().enumerate() {
                    let source = memory.address(from).wrapping_add(source * size);
                    let target = memory.address(to).wrapping_add((base + position * stride) * size);
                    // SAFETY: both lie in the line, which is this task's alone.
                    unsafe { std::ptr::copy_nonoverlapping(source, target, size) };
                }
            }
        }
    });
}

thread_local! {
    /// Totals of floats while updates are combined.
    static TOTALS: RefCell<Vec<f64>> = const { RefCell::new(Vec::new()) };
}

/// Fewer bytes are not worth a second thread.
const ALONE_BYTES: usize = 24 << 10;
/// Shorter rows are cheaper to combine all together than to sort by their targets.
const WORTHY_ROW: usize = 8;

fn scatter(order: &Order, step: &Step, run: &Run) {
    let &Order::Scatter { outer, rows, row, combine } = order else { return };
    let memory = run.memory;
    // State that is updated in place is there already.
    if memory.address(&step.inputs[0]) != memory.address(&step.outputs[0]) {
        copy(&step.inputs[0], &step.outputs[0], run);
    }
    // SAFETY: these operands are dense, and not the output, which is this step's own.
    let (indices, updates, output) = unsafe {
        (memory.bytes(&step.inputs[1]), memory.bytes(&step.inputs[2]), memory.bytes_mut(&step.outputs[0]))
    };
    let (dtype, count) = (step.inputs[1].dtype, step.inputs[1].num_elements());
    let targets = (0..outer * count).map(|task| {
        let index = read_index(dtype, indices, task % count).clamp(0, rows as i128 - 1) as usize;
        ((task / count * rows + index) * row, task * row)
    });
    let value = step.outputs[0].dtype;
    let Some(func) = combine else {
        let size = value.size_bytes() as usize;
        // In order, so that the last update of a row stays: threads share the columns.
        let parts = if updates.len() < ALONE_BYTES { 1 } else { run.pool.threads().min(row.max(1)) };
        let targets: Vec<(usize, usize)> = targets.collect();
        run.pool.run(parts, &|part| {
            let (begin, end) = (part * row / parts, (part + 1) * row / parts);
            for &(to, from) in &targets {
                let from = &updates[(from + begin) * size..(from + end) * size];
                let to = memory.address(&step.outputs[0]).wrapping_add((to + begin) * size);
                // SAFETY: the columns of a row of the output are this task's alone.
                unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) };
            }
        });
        return;
    };
    if value == DType::F32 {
        return match row >= WORTHY_ROW {
            true => combine_rows(func, targets.collect(), row, step, run),
            false => combine_floats(func, targets, row, updates, output),
        };
    }
    with_type!(value, T => for (to, from) in targets {
        for i in 0..row {
            // SAFETY: rows lie in the dense tensors, which are aligned to their elements.
            unsafe {
                let slot = output.as_mut_ptr().cast::<T>().add(to + i);
                let update = *updates.as_ptr().cast::<T>().add(from + i);
                *slot = T::narrow(T::combine(func, (*slot).widen(), update.widen()));
            }
        }
    }, else unreachable!("8-bit floats go to the evaluator"));
}

/// Row by row of those that have updates: in f64, in the order of the updates, rounded once when all are in.
fn combine_rows(func: ReduceFn, mut targets: Vec<(usize, usize)>, row: usize, step: &Step, run: &Run) {
    targets.sort_unstable();
    let starts: Vec<usize> =
        (0..targets.len()).filter(|&at| at == 0 || targets[at - 1].0 != targets[at].0).collect();
    let memory = run.memory;
    let parts = if targets.len() * row < 4096 { 1 } else { starts.len().min(run.pool.threads() * 4) };
    run.pool.run(parts, &|part| {
        for group in part * starts.len() / parts..(part + 1) * starts.len() / parts {
            let end = starts.get(group + 1).copied().unwrap_or(targets.len());
            let group = &targets[starts[group]..end];
            let to = memory.address(&step.outputs[0]).cast::<f32>().wrapping_add(group[0].0);
            let updates = memory.address(&step.inputs[2]).cast::<f32>().cast_const();
            TOTALS.with_borrow_mut(|totals| {
                // SAFETY: rows lie in the dense tensors; each row of the result is one task's.
                let to = unsafe { std::slice::from_raw_parts_mut(to, row) };
                totals.clear();
                totals.extend(to.iter().map(|&x| f64::from(x)));
                for &(_, from) in group {
                    // SAFETY: as above.
                    let update = unsafe { std::slice::from_raw_parts(updates.wrapping_add(from), row) };
                    for (total, &x) in totals.iter_mut().zip(update) {
                        *total = f32::combine(func, *total, x.into());
                    }
                }
                to.iter_mut().zip(totals.iter()).for_each(|(to, &total)| *to = total as f32);
            });
        }
    });
}

/// In f64, rounded once when all updates are in.
fn combine_floats(
    func: ReduceFn,
    targets: impl Iterator<Item = (usize, usize)>,
    row: usize,
    updates: &[u8],
    output: &mut [u8],
) {
    let value = |bytes: &[u8], at: usize| {
        let [a, b, c, d] = [0, 1, 2, 3].map(|i| bytes[4 * at + i]);
        f64::from(f32::from_le_bytes([a, b, c, d]))
    };
    TOTALS.with_borrow_mut(|totals| {
        totals.clear();
        totals.extend((0..output.len() / 4).map(|at| value(output, at)));
        for (to, from) in targets {
            for i in 0..row {
                totals[to + i] = f32::combine(func, totals[to + i], value(updates, from + i));
            }
        }
        for (bytes, &total) in output.chunks_exact_mut(4).zip(totals.iter()) {
            bytes.copy_from_slice(&(total as f32).to_le_bytes());
        }
    });
}

fn fill_random(distribution: Distribution, isa: Isa, step: &Step, run: &Run) {
    let (memory, output) = (run.memory, &step.outputs[0]);
    // SAFETY: the seed is dense, and nothing writes it while this step runs.
    let seed = unsafe { memory.bytes(&step.inputs[0]) };
    let seed = (0..8).fold(0u64, |word, byte| word | u64::from(seed[byte]) << (8 * byte));
    let (dtype, count) = (output.dtype, output.num_elements());
    let size = dtype.size_bytes() as usize;
    let parts = if count < 4096 { 1 } else { run.pool.threads() * 4 };
    run.pool.run(parts, &|part| {
        let (begin, end) = (part * count / parts, (part + 1) * count / parts);
        if dtype == DType::F32 && distribution == Distribution::Uniform {
            let target = memory.address(output).cast::<f32>().wrapping_add(begin);
            // SAFETY: each element is written by one task; the level is one the processor has.
            unsafe {
                let numbers = std::slice::from_raw_parts_mut(target, end - begin);
                return uniform_loop(isa)(seed, begin as u64, numbers);
            }
        }
        for position in begin..end {
            let target = memory.address(output).wrapping_add(position * size);
            // SAFETY: each element is written by one task.
            let bytes = unsafe { std::slice::from_raw_parts_mut(target, size) };
            let position = position as u64;
            match distribution {
                _ if !dtype.is_float() => dtype.write_int(random::bits(seed, position).into(), bytes),
                Distribution::Uniform => dtype.write_f64(random::uniform_in(dtype, seed, position), bytes),
                Distribution::Normal => dtype.write_f64(random::normal(seed, position), bytes),
            }
        }
    });
}
