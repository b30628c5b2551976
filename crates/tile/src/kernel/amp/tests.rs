//! The 1×1 formula against measurements, and the order of additions.

use super::*;
use crate::kernel::cost::tests::{bow, cycles, is_close};

fn row_1(chip: &Chip, rows: u64) -> u64 {
    let unit = Unit::of(chip, DType::F16, DType::F16).expect("a rate for f16");
    let product = Product { groups: 1, rows, inputs: 16, outputs: 16 };
    cycles(cost::launched(product_cycles(&unit, &product, chip), chip))
}

/// hardware.md section 9 row 1: Bow, f16 to f16, [N,16]×[16,16].
#[test]
fn measured_products() {
    let rows = [16, 32, 64, 128, 256, 512, 1024, 2048];
    let measured = [402, 461, 584, 845, 1352, 2381, 4424, 8609];
    for (rows, measured) in rows.into_iter().zip(measured) {
        let predicted = row_1(&bow(), rows);
        assert!(is_close(predicted, measured), "{rows} rows: {predicted}, measured {measured}");
    }
}

/// hardware.md section 8: what the published formula alone gives.
#[test]
fn published_products() {
    let mut chip = bow();
    chip.issue.vertex_dispatch_cycles = 0;
    let predicted = [16, 32, 64, 128, 256, 512, 1024, 2048].map(|rows| row_1(&chip, rows));
    assert_eq!(predicted, [377, 425, 545, 809, 1313, 2345, 4385, 8489]);
}

/// Large products approach the unit's rate: 64 multiplications a cycle of f16, 16 of f32.
#[test]
fn approaches_the_peak() {
    for (dtype, per_cycle) in [(DType::F16, 64), (DType::F32, 16)] {
        let unit = Unit::of(&bow(), dtype, DType::F32).expect("a rate");
        let product = Product { groups: 2, rows: 6000, inputs: 512, outputs: 32 };
        let ideal = 2 * 6000 * 512 * 32 / per_cycle;
        let predicted = product_cycles(&unit, &product, &bow()).0;
        assert!(predicted > ideal && predicted < ideal * 11 / 10, "{dtype}: {predicted} for {ideal}");
    }
}

#[test]
fn missing_rates_fall_back() {
    let mut chip = bow();
    let unit = |chip: &Chip, dtype| Unit::of(chip, dtype, DType::F32);
    assert_eq!(unit(&chip, DType::F8(pando_base::F8Format::F143, 0)), unit(&chip, DType::F16));
    assert_eq!(unit(&chip, DType::BF16), unit(&chip, DType::F16));
    assert_eq!(unit(&chip, DType::I32), None);
    chip.matrix.retain(|rate| rate.input == "f32");
    assert_eq!(unit(&chip, DType::F16).map(|unit| unit.inputs), Some(8));
    chip.matrix.clear();
    assert_eq!(unit(&chip, DType::F32), None);
}

#[test]
fn grows_and_saturates() {
    for dtype in [DType::F16, DType::F32] {
        let unit = Unit::of(&bow(), dtype, DType::F32).expect("a rate");
        let time = |product| product_cycles(&unit, &product, &bow());
        for n in [1, 20, 300, 1 << 40, u64::MAX / 2] {
            let small = Product { groups: n, rows: n, inputs: n, outputs: n };
            let base = time(small);
            assert!(base <= time(Product { groups: 2 * n, ..small }));
            assert!(base <= time(Product { rows: 2 * n, ..small }));
            assert!(base <= time(Product { inputs: 2 * n, ..small }));
            assert!(base <= time(Product { outputs: 2 * n, ..small }));
        }
    }
}

/// The order of additions is part of the definition: 4096 + 1 in f16 is 4096, but the ones of one step
/// are added in f32 first.
#[test]
fn half_partials_round_after_each_step() {
    let sum = |first: f32, ones: usize, step: usize, partials| {
        let inputs: Vec<f32> = std::iter::once(first).chain(std::iter::repeat_n(1.0, ones)).collect();
        let weights = vec![1.0; inputs.len()];
        let mut sums = [0.0];
        accumulate(&mut sums, inputs.chunks(step).zip(weights.chunks(step)), partials);
        sums[0]
    };
    assert_eq!(sum(4096.0, 15, 16, DType::F16), 4112.0, "4111 rounds up to a multiple of 4");
    assert_eq!(sum(4096.0, 2, 1, DType::F16), 4096.0, "each one is lost");
    assert_eq!(sum(4096.0, 2, 1, DType::F32), 4098.0);
    assert_eq!(sum(65504.0, 16, 16, DType::F16), 65504.0);
    assert_eq!(sum(65504.0, 31, 16, DType::F16), f32::INFINITY, "16 more are half a unit");
    assert_eq!(sum(1e6, 0, 16, DType::F16), f32::INFINITY);
}
