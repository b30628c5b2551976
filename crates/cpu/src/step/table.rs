//! Bytes that are functions of bytes: looked up. The table is a step's result of its own, made while planning where all
//! else is constant.
//!
//! The floor is memory: with AVX-512 VBMI 64 elements take some five instructions.

#![allow(unsafe_code)]

use super::Step;
use crate::exec::Run;

/// Fewer elements are not worth a second thread.
const ALONE: usize = 64 << 10;

/// Operands: the 256 entries, and dense bytes.
pub fn run(step: &Step, run: &mut Run) {
    let memory = run.memory;
    let count = step.outputs[0].num_elements();
    let tasks = if count <= ALONE { 1 } else { run.pool.threads() * 2 };
    run.pool.run(tasks, &|task| {
        let (begin, end) = (task * count / tasks, (task + 1) * count / tasks);
        // SAFETY: the operands are dense and as large as the result; tasks write disjoint parts.
        unsafe {
            let table = &*memory.address(&step.inputs[0]).cast::<[u8; 256]>();
            let from = memory.address(&step.inputs[1]).add(begin).cast_const();
            let to = memory.address(&step.outputs[0]).add(begin);
            look_up(
                table,
                std::slice::from_raw_parts(from, end - begin),
                std::slice::from_raw_parts_mut(to, end - begin),
            );
        }
    });
}

fn look_up(table: &[u8; 256], from: &[u8], to: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx512vbmi") && is_x86_feature_detected!("avx512bw") {
        // SAFETY: the processor has the instructions.
        return unsafe { vbmi(table, from, to) };
    }
    to.iter_mut().zip(from).for_each(|(to, &from)| *to = table[usize::from(from)]);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn vbmi(table: &[u8; 256], from: &[u8], to: &mut [u8]) {
    use std::arch::x86_64::*;
    // SAFETY: four quarters of the table.
    let [a, b, c, d] =
        [0, 1, 2, 3].map(|part| unsafe { _mm512_loadu_si512(table.as_ptr().add(64 * part).cast()) });
    for (from, to) in from.chunks(64).zip(to.chunks_mut(64)) {
        let mask = if from.len() == 64 { !0 } else { (1u64 << from.len()) - 1 };
        // SAFETY: the mask has the chunk's bytes.
        unsafe {
            let x = _mm512_maskz_loadu_epi8(mask, from.as_ptr().cast());
            let (low, high) = (_mm512_permutex2var_epi8(a, x, b), _mm512_permutex2var_epi8(c, x, d));
            let y = _mm512_mask_blend_epi8(_mm512_movepi8_mask(x), low, high);
            _mm512_mask_storeu_epi8(to.as_mut_ptr().cast(), mask, y);
        }
    }
}
