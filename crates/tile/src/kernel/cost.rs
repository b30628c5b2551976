//! Shared pieces of the cycle formulas. In: sizes and a chip. Out: cycles that saturate instead of
//! overflowing, because plans and timing-only runs ask about operands no tile could hold. The formulas
//! themselves stand in the kernels' files.

use super::VertexCost;
use pando_base::DType;
use pando_machine::Chip;
use std::num::Saturating;

pub(super) type Cycles = Saturating<u64>;

/// A number in a formula.
pub(super) const fn c(value: u64) -> Cycles {
    Saturating(value)
}

/// Workers per tile.
pub(super) fn workers(chip: &Chip) -> u64 {
    u64::from(chip.workers.max(1))
}

/// Items of the busiest worker when they are split as evenly as possible.
pub(super) fn per_worker(items: u64, chip: &Chip) -> u64 {
    items.div_ceil(workers(chip))
}

/// Elements of one pass through the data path; at least one.
pub(super) fn vector_len(dtype: DType, chip: &Chip) -> u64 {
    (chip.issue.vector_bytes / dtype.size_bytes()).max(1)
}

/// A vertex of all workers: the slowest one's issue slots, a slot every W cycles, and what the supervisor
/// spends around them.
///
/// Added once per launch: `vertex_dispatch_cycles`, by which measured vertices exceed the published
/// formulas (hardware.md section 8, row 1).
pub(super) fn supervisor(worker_slots: Cycles, around: u64, chip: &Chip) -> VertexCost {
    launched(c(workers(chip)) * worker_slots + c(around), chip)
}

/// As [`supervisor`], for formulas that already count in cycles of the tile.
pub(super) fn launched(cycles: Cycles, chip: &Chip) -> VertexCost {
    VertexCost::Supervisor((cycles + c(chip.issue.vertex_dispatch_cycles)).0)
}

/// Like [`supervisor`], for elementwise vertices, whose measured excess is 82 cycles where that of the
/// matrix vertex is 38, on the same chip (hardware.md section 8, rows 1 and 2, less the 45 cycles of the
/// counter). Scaling the chip's constant keeps 0 meaning "published formulas alone".
pub(super) fn elementwise(worker_slots: Cycles, around: u64, chip: &Chip) -> VertexCost {
    let dispatch = (chip.issue.vertex_dispatch_cycles.saturating_mul(82) + 19) / 38;
    VertexCost::Supervisor((c(workers(chip)) * worker_slots + c(around) + c(dispatch)).0)
}

/// Workers that can share one of `items` when there are fewer of them than workers.
pub(super) fn sharers(items: u64, chip: &Chip) -> u64 {
    workers(chip).checked_div(items).map_or(1, |sharers| sharers.max(1))
}

/// A product of lengths.
pub(super) fn product(lens: &[u64]) -> u64 {
    lens.iter().fold(1, |product, &len| product.saturating_mul(len))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The measurements of hardware.md section 9 that the kernels' tests cite are of this chip.
    pub fn bow() -> Chip {
        pando_machine::load("bow").expect("a built-in system").chip
    }

    pub fn cycles(cost: VertexCost) -> u64 {
        match cost {
            VertexCost::Supervisor(cycles) => cycles,
            VertexCost::Worker(slots) => panic!("{slots} slots of one worker"),
        }
    }

    /// Whether a prediction is within 10 % of a measurement.
    pub fn is_close(predicted: u64, measured: u64) -> bool {
        predicted.abs_diff(measured) * 10 <= measured
    }

    #[test]
    fn saturates() {
        assert_eq!(cycles(supervisor(c(u64::MAX), 7, &bow())), u64::MAX);
        assert_eq!(product(&[u64::MAX, 3]), u64::MAX);
        assert_eq!(product(&[]), 1);
    }

    #[test]
    fn widths_and_shares() {
        let chip = bow();
        assert_eq!(
            [DType::F32, DType::F16, DType::I64, DType::U8].map(|d| vector_len(d, &chip)),
            [2, 4, 1, 8]
        );
        assert_eq!([0, 1, 6, 7].map(|n| per_worker(n, &chip)), [0, 1, 1, 2]);
        assert_eq!([0, 1, 4, 7].map(|n| sharers(n, &chip)), [1, 6, 1, 1]);
    }
}
