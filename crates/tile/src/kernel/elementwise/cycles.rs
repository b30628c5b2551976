//! Cycles of elementwise kernels: the table of hardware.md section 6.2, completed from the file it
//! restates (PL lib/popops/popopsCycleEstimators.hpp).
//!
//! Approximations: no operation is in place; no operand is broadcast; transcendental functions, division
//! and integer powers take PopLibs' averages though their time depends on the data; bf16, which the
//! hardware lacks, is priced as f32; 8- and 16-bit integers as 32-bit ones where the table has no row.

use crate::kernel::cost::{self, c};
use crate::kernel::{OperandType, VertexCost};
use pando_base::{BinaryFn, CompareFn, DType, UnaryFn};
use pando_machine::Chip;

/// A worker's inner loop: `cycles` for every `elements`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Loop {
    cycles: u64,
    elements: u64,
}

/// The columns of the table.
#[derive(Clone, Copy, PartialEq)]
enum Column {
    F32,
    F16,
    /// At most 32 bits wide; and whether signed.
    Int(bool),
    Long(bool),
    Bool,
}

impl Column {
    fn of(dtype: DType) -> Self {
        match dtype {
            DType::F16 => Column::F16,
            DType::I64 | DType::U64 => Column::Long(dtype.is_signed_int()),
            DType::Bool => Column::Bool,
            _ if dtype.is_int() => Column::Int(dtype.is_signed_int()),
            _ => Column::F32,
        }
    }
}

/// Elements of a vector of floats; bf16 goes by f32.
fn float_vector(column: Column, chip: &Chip) -> u64 {
    cost::vector_len(if column == Column::F16 { DType::F16 } else { DType::F32 }, chip)
}

fn unary_loop(func: UnaryFn, dtype: DType, chip: &Chip) -> Loop {
    let column = Column::of(dtype);
    let vector = float_vector(column, chip);
    // A whole vector a turn, with load, store and loop in the number; the same "natural" vector with 4
    // more for these ("v + 4"); and one element a turn, 4 more as well.
    let unrolled = |cycles| Loop { cycles, elements: vector };
    let natural = |cycles: u64| Loop { cycles: cycles + 4, elements: vector };
    let single = |cycles: u64| Loop { cycles: cycles + 4, elements: 1 };
    let half = column == Column::F16;
    match (func, column) {
        (UnaryFn::Neg, Column::Int(_)) | (UnaryFn::Abs, Column::Int(_)) => single(2),
        (UnaryFn::Neg, Column::Long(_)) => single(5),
        (UnaryFn::Abs, Column::Long(_)) => single(10),
        (UnaryFn::Not, Column::Int(_)) => Loop { cycles: 5, elements: cost::vector_len(dtype, chip) },
        (UnaryFn::Not, Column::Long(_)) => single(3),
        (UnaryFn::Not, _) => single(17),
        (UnaryFn::Sign, Column::Int(_) | Column::Long(_)) => single(5),
        (UnaryFn::Neg, _) => unrolled(2),
        (UnaryFn::Abs, _) => single(1),
        (UnaryFn::Sign, _) => natural(5),
        (UnaryFn::Floor | UnaryFn::Ceil | UnaryFn::Round, _) => natural(2),
        (UnaryFn::Exp, _) => unrolled(if half { 4 } else { 6 }),
        (UnaryFn::Expm1, Column::F16) => natural(5),
        (UnaryFn::Expm1, _) => single(4),
        (UnaryFn::Log | UnaryFn::Tanh, _) => unrolled(if half { 4 } else { 12 }),
        (UnaryFn::Log1p, _) => natural(18),
        (UnaryFn::Sqrt, _) => unrolled(if half { 23 } else { 10 }),
        (UnaryFn::Sin | UnaryFn::Cos, Column::F16) => Loop { cycles: 25, elements: 1 },
        (UnaryFn::Sin | UnaryFn::Cos, _) => single(2300),
        (UnaryFn::Erf, _) => Loop { cycles: if half { 13 } else { 41 }, elements: 1 },
    }
}

fn binary_loop(func: BinaryFn, dtype: DType, chip: &Chip) -> Loop {
    match Column::of(dtype) {
        Column::Bool => Loop { cycles: 5, elements: 4 },
        Column::Int(signed) => Loop { cycles: int_cycles(func, signed), elements: 1 },
        Column::Long(signed) => Loop { cycles: long_cycles(func, signed), elements: 1 },
        column => float_loop(func, column == Column::F16, float_vector(column, chip)),
    }
}

fn float_loop(func: BinaryFn, half: bool, vector: u64) -> Loop {
    let either = |f32_cycles, f16_cycles| if half { f16_cycles } else { f32_cycles };
    let (cycles, elements) = match func {
        BinaryFn::Div => (either(10, 21), vector),
        BinaryFn::Rem => (either(133, 300), vector),
        BinaryFn::Pow => (either(312, 325), 1),
        BinaryFn::Atan2 => (either(272, 578), vector),
        BinaryFn::Max | BinaryFn::Min => (either(3, 4), vector),
        // Assembly: 1 for the arithmetic and 2 for load, store and loop.
        _ => (3, vector),
    };
    Loop { cycles, elements }
}

fn int_cycles(func: BinaryFn, signed: bool) -> u64 {
    match func {
        BinaryFn::Div => {
            if signed {
                277
            } else {
                265
            }
        }
        BinaryFn::Rem => {
            if signed {
                292
            } else {
                282
            }
        }
        BinaryFn::Pow => 32,
        BinaryFn::Max | BinaryFn::Min if !signed => 8,
        _ => 7,
    }
}

/// 64-bit integers. PopLibs has no power of them; 9 (its assumed exponent) multiplications.
fn long_cycles(func: BinaryFn, signed: bool) -> u64 {
    let either = |signed_cycles, unsigned_cycles| if signed { signed_cycles } else { unsigned_cycles };
    match func {
        BinaryFn::Mul => 30,
        BinaryFn::Div => either(130, 115),
        BinaryFn::Rem => either(166, 149),
        BinaryFn::Pow => 270,
        BinaryFn::Max | BinaryFn::Min => either(15, 13),
        BinaryFn::And | BinaryFn::Or | BinaryFn::Xor => 9,
        BinaryFn::Shl => 18,
        BinaryFn::Shr => either(19, 6),
        _ => 11,
    }
}

/// Four elements a turn, whatever the type: the results are bytes of one word.
fn compare_loop(func: CompareFn, dtype: DType) -> Loop {
    let is_equality = matches!(func, CompareFn::Eq | CompareFn::Ne);
    let is_strict = matches!(func, CompareFn::Lt | CompareFn::Gt);
    let cycles = match Column::of(dtype) {
        Column::F32 if func == CompareFn::Ne => 20,
        Column::F32 => 14,
        Column::F16 if func == CompareFn::Ne => 11,
        Column::F16 => 9,
        Column::Int(_) if is_equality || is_strict => 22,
        Column::Int(_) => 26,
        Column::Long(_) if is_equality => 48,
        Column::Long(_) if is_strict => 56,
        Column::Long(_) => 62,
        Column::Bool if is_equality => 6,
        Column::Bool => 28,
    };
    Loop { cycles, elements: 4 }
}

/// `W(before + loops) + around`, the loops being those of the busiest worker.
fn looped(inner: Loop, out: OperandType, before: u64, around: u64, chip: &Chip) -> VertexCost {
    let turns = cost::per_worker(out.num_elements(), chip).div_ceil(inner.elements.max(1));
    cost::elementwise(c(before) + c(turns) * c(inner.cycles), around, chip)
}

/// UnaryOp1D: `W(17 (33 for exp) + loops) + 20`.
pub fn unary_cycles(func: UnaryFn, operands: &[OperandType], chip: &Chip) -> VertexCost {
    let out = operands[1];
    let before = if func == UnaryFn::Exp { 33 } else { 17 };
    looped(unary_loop(func, out.dtype, chip), out, before, 20, chip)
}

/// BinaryOp1D: `W(29 f32 | 26 others + loops) + 11`.
pub fn binary_cycles(func: BinaryFn, operands: &[OperandType], chip: &Chip) -> VertexCost {
    let out = operands[2];
    looped(binary_loop(func, out.dtype, chip), out, before_binary(out.dtype), 11, chip)
}

pub fn compare_cycles(func: CompareFn, operands: &[OperandType], chip: &Chip) -> VertexCost {
    let lhs = operands[0];
    looped(compare_loop(func, lhs.dtype), lhs, before_binary(lhs.dtype), 11, chip)
}

fn before_binary(dtype: DType) -> u64 {
    if Column::of(dtype) == Column::F32 { 29 } else { 26 }
}

/// Select: 5 an element, 6 and another 5 around, of one worker; we split it over all of them.
pub fn select_cycles(operands: &[OperandType], chip: &Chip) -> VertexCost {
    looped(Loop { cycles: 5, elements: 1 }, operands[3], 11, 0, chip)
}

/// Cast1D: `12 + W(37 + vectors)`. Among floats a vector is as much as one store writes, or two loads
/// read; a cycle for each store or load it takes. Other conversions go element by element, 2 cycles each.
pub fn cast_cycles(operands: &[OperandType], chip: &Chip) -> VertexCost {
    let [input, out] = [operands[0], operands[1]];
    let (load, store) = (cost::vector_len(input.dtype, chip), cost::vector_len(out.dtype, chip));
    let inner = if input.dtype.is_float() && out.dtype.is_float() {
        let elements = load.saturating_mul(2).min(store);
        Loop { cycles: elements.div_ceil(load).max(1), elements }
    } else {
        Loop { cycles: 2, elements: 1 }
    };
    looped(inner, out, 37, 12, chip)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::cost::tests::{bow, cycles, is_close};

    /// One reading of the cycle counter, hardware.md section 9 row 5: part of rows 3 and 4.
    const COUNTER_CYCLES: u64 = 45;

    fn add_f32(elements: u64) -> u64 {
        let lens = [elements];
        let operand = OperandType { dtype: DType::F32, lens: &lens };
        cycles(binary_cycles(BinaryFn::Add, &[operand; 3], &bow()))
    }

    /// hardware.md section 9 rows 3 and 4: Bow, f32 add of 1024 and of 10 elements a tile.
    #[test]
    fn measured_additions() {
        assert!(is_close(add_f32(1024), 1860 - COUNTER_CYCLES), "{}", add_f32(1024));
        assert!(is_close(add_f32(10), 329 - COUNTER_CYCLES), "{}", add_f32(10));
    }

    /// hardware.md section 8: what the published formula alone gives.
    #[test]
    fn published_additions() {
        let mut chip = bow();
        chip.issue.vertex_dispatch_cycles = 0;
        let time = |n: u64| {
            let lens = [n];
            let operand = OperandType { dtype: DType::F32, lens: &lens };
            cycles(binary_cycles(BinaryFn::Add, &[operand; 3], &chip))
        };
        assert_eq!((time(1024), time(10)), (1733, 203));
    }

    #[test]
    fn table_entries() {
        let chip = bow();
        let entry = |func, dtype| unary_loop(func, dtype, &chip);
        assert_eq!(entry(UnaryFn::Exp, DType::F32), Loop { cycles: 6, elements: 2 });
        assert_eq!(entry(UnaryFn::Tanh, DType::F16), Loop { cycles: 4, elements: 4 });
        assert_eq!(entry(UnaryFn::Sqrt, DType::F16), Loop { cycles: 23, elements: 4 });
        let entry = |func, dtype| binary_loop(func, dtype, &chip);
        assert_eq!(entry(BinaryFn::Div, DType::F16), Loop { cycles: 21, elements: 4 });
        assert_eq!(entry(BinaryFn::Div, DType::I32), Loop { cycles: 277, elements: 1 });
        assert_eq!(entry(BinaryFn::Mul, DType::I64), Loop { cycles: 30, elements: 1 });
    }

    #[test]
    fn cycles_grow() {
        let chip = bow();
        let time = |n: u64, dtype| {
            let lens = [n];
            let (operand, flag) =
                (OperandType { dtype, lens: &lens }, OperandType { dtype: DType::Bool, lens: &lens });
            [
                unary_cycles(UnaryFn::Exp, &[operand; 2], &chip),
                binary_cycles(BinaryFn::Mul, &[operand; 3], &chip),
                compare_cycles(CompareFn::Ne, &[operand, operand, flag], &chip),
                select_cycles(&[flag, operand, operand, operand], &chip),
                cast_cycles(&[operand, OperandType { dtype: DType::F16, lens: &lens }], &chip),
            ]
            .map(cycles)
        };
        for dtype in DType::ALL {
            for n in [0, 1, 5, 100, 1 << 40, u64::MAX / 2] {
                let (small, large) = (time(n, dtype), time(2 * n + 1, dtype));
                assert!(small.iter().zip(large).all(|(small, large)| *small <= large), "{dtype} {n}");
            }
        }
    }
}
