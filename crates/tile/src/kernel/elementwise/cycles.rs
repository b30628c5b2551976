//! Cycles of elementwise kernels: the table of hardware.md section 6.2.
//!
//! How the table is read. An entry `C/E` is `C` cycles for `E` elements with load, store and loop in the
//! number; one marked (v) is a vector's, to which its "unary C++ +4" adds load, store and loop.
//!
//! Assumptions where the table has no row or leaves a choice:
//!
//! - An entry with neither mark is one element's, and takes the same 4 more.
//! - Of a range of cycles the upper end applies.
//! - Integers of 64 bits take twice the cycles of 32 bits, those of 8 bits as many as these.
//! - bf16, which the hardware lacks, is priced as f32.
//! - No operation is in place; no operand is broadcast. Where time depends on the data the table's average
//!   stands for all.

use crate::kernel::cost::{self, Cycles, c};
use crate::kernel::{Kernel, OperandType, Smooth, VertexCost};
use pando_base::{BinaryFn, CompareFn, DType, UnaryFn};
use pando_machine::Chip;

/// What the table adds to an entry without load, store and loop ("unary C++ +4").
const UNARY_OVERHEAD: u64 = 4;

/// A worker's inner loop: `cycles` for every `elements`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Loop {
    cycles: u64,
    elements: u64,
}

impl Loop {
    fn new(cycles: u64, elements: u64) -> Self {
        Loop { cycles, elements }
    }

    /// An entry that lacks load, store and loop.
    fn bare(cycles: u64, elements: u64) -> Self {
        Loop { cycles: cycles + UNARY_OVERHEAD, elements }
    }

    /// Assumption: 64-bit integers are two words, each with the cycles of a 32-bit integer.
    fn doubled(self) -> Self {
        Loop { cycles: 2 * self.cycles, ..self }
    }
}

/// The columns of the table.
#[derive(Clone, Copy, PartialEq)]
enum Column {
    F32,
    F16,
    /// At most 32 bits wide.
    Int,
    Long,
    Bool,
}

impl Column {
    fn of(dtype: DType) -> Self {
        match dtype {
            DType::F16 => Column::F16,
            DType::I64 | DType::U64 => Column::Long,
            DType::Bool => Column::Bool,
            _ if dtype.is_int() => Column::Int,
            _ => Column::F32,
        }
    }
}

/// Elements of a vector of floats; bf16 goes by f32.
fn float_vector(column: Column, chip: &Chip) -> u64 {
    cost::vector_len(if column == Column::F16 { DType::F16 } else { DType::F32 }, chip)
}

fn unary_loop(func: UnaryFn, dtype: DType, chip: &Chip) -> Loop {
    match Column::of(dtype) {
        Column::Bool => Loop::bare(17, 1),
        Column::Int => int_unary_loop(func, dtype),
        Column::Long => int_unary_loop(func, dtype).doubled(),
        column => float_unary_loop(func, column == Column::F16, float_vector(column, chip)),
    }
}

fn int_unary_loop(func: UnaryFn, dtype: DType) -> Loop {
    match func {
        // Assumption: `not` as the bitwise functions of two operands.
        UnaryFn::Not => bitwise_loop(dtype),
        // Assumption: the float row (signum), an element at a time.
        UnaryFn::Sign => Loop::bare(5, 1),
        // Assumption: `abs` as `neg`.
        _ => Loop::bare(2, 1),
    }
}

fn float_unary_loop(func: UnaryFn, half: bool, vector: u64) -> Loop {
    let either = |f32_cycles, f16_cycles| Loop::new(if half { f16_cycles } else { f32_cycles }, vector);
    match func {
        // Assumption: `abs` as `neg`. `not` of floats does not pass the check.
        UnaryFn::Neg | UnaryFn::Abs | UnaryFn::Not => either(2, 2),
        UnaryFn::Sign => Loop::bare(5, vector),
        UnaryFn::Floor | UnaryFn::Ceil | UnaryFn::Round => Loop::bare(2, vector),
        UnaryFn::Exp => either(6, 4),
        UnaryFn::Expm1 if half => Loop::bare(5, vector),
        UnaryFn::Expm1 => Loop::bare(4, 1),
        UnaryFn::Log | UnaryFn::Tanh => either(12, 4),
        UnaryFn::Log1p => Loop::bare(18, vector),
        UnaryFn::Sqrt => either(10, 23),
        UnaryFn::Sin | UnaryFn::Cos => Loop { elements: 1, ..either(2300, 25) },
        UnaryFn::Erf => Loop { elements: 1, ..either(41, 13) },
    }
}

/// Sigmoid: "10/2 | 6/4". The others are in section 6.3 without load and store, for which 2 cycles are added, as the
/// sigmoid has 2 more here than there in f16: "gelu 10/5; gelu_erf 30/15" for a vector of f32 | f16. bf16 goes by f32.
fn smooth_loop(func: Smooth, dtype: DType, chip: &Chip) -> Loop {
    let column = Column::of(dtype);
    let half = column == Column::F16;
    let cycles = match func {
        Smooth::Sigmoid if half => 6,
        Smooth::Sigmoid => 10,
        Smooth::Gelu if half => 17,
        Smooth::Gelu => 32,
        Smooth::GeluTanh if half => 7,
        Smooth::GeluTanh => 12,
    };
    Loop::new(cycles, float_vector(column, chip))
}

fn binary_loop(func: BinaryFn, dtype: DType, chip: &Chip) -> Loop {
    match Column::of(dtype) {
        Column::Bool => logical_loop(),
        Column::Int => int_loop(func, dtype),
        Column::Long => long_loop(func, dtype),
        column => float_loop(func, column == Column::F16, float_vector(column, chip)),
    }
}

fn float_loop(func: BinaryFn, half: bool, vector: u64) -> Loop {
    let either = |f32_cycles, f16_cycles| Loop::new(if half { f16_cycles } else { f32_cycles }, vector);
    match func {
        BinaryFn::Div => either(10, 21),
        BinaryFn::Rem => either(133, 300),
        BinaryFn::Pow => Loop { elements: 1, ..either(312, 325) },
        BinaryFn::Atan2 => either(272, 578),
        BinaryFn::Max | BinaryFn::Min => either(3, 4),
        // Add, sub, mul: "1+2".
        _ => either(3, 3),
    }
}

/// Logical "and" and "or". Assumption: "xor" and comparisons of bool are the same.
fn logical_loop() -> Loop {
    Loop::new(5, 4)
}

/// "7/1 (16-bit 3/4)".
fn bitwise_loop(dtype: DType) -> Loop {
    if dtype.size_bytes() == 2 { Loop::new(3, 4) } else { Loop::new(7, 1) }
}

fn int_loop(func: BinaryFn, dtype: DType) -> Loop {
    match func {
        BinaryFn::Div => Loop::new(if dtype.is_signed_int() { 277 } else { 265 }, 1),
        // Assumption: unsigned remainders as signed ones, the only row.
        BinaryFn::Rem => Loop::new(292, 1),
        BinaryFn::Pow => Loop::new(32, 1),
        // Of "7-8".
        BinaryFn::Max | BinaryFn::Min => Loop::new(8, 1),
        BinaryFn::And | BinaryFn::Or | BinaryFn::Xor | BinaryFn::Shl | BinaryFn::Shr => bitwise_loop(dtype),
        _ => Loop::new(7, 1),
    }
}

fn long_loop(func: BinaryFn, dtype: DType) -> Loop {
    match func {
        BinaryFn::Add | BinaryFn::Sub => Loop::new(11, 1),
        BinaryFn::Mul => Loop::new(30, 1),
        _ => int_loop(func, dtype).doubled(),
    }
}

/// Four elements a turn. Assumption: `le` and `ge`, which the table lacks, as `lt` and `gt`.
fn compare_loop(func: CompareFn, dtype: DType) -> Loop {
    let is_ne = func == CompareFn::Ne;
    // Of "22-26": it does not say which comparison takes which.
    let int = Loop::new(26, 4);
    match Column::of(dtype) {
        Column::F32 => Loop::new(if is_ne { 20 } else { 14 }, 4),
        Column::F16 => Loop::new(if is_ne { 11 } else { 9 }, 4),
        Column::Int => int,
        Column::Long => int.doubled(),
        Column::Bool => logical_loop(),
    }
}

/// `W(before + loops) + around`, the loops being those of the busiest worker.
fn looped(inner: Loop, out: OperandType, before: u64, around: u64, chip: &Chip) -> VertexCost {
    let turns = cost::per_worker(out.num_elements(), chip).div_ceil(inner.elements.max(1));
    cost::elementwise(c(before) + c(turns) * c(inner.cycles), around, chip)
}

/// The loops of the busiest worker in one of these kernels, without set-up; none for a number.
pub fn loop_slots(kernel: &Kernel, operands: &[OperandType], chip: &Chip) -> Cycles {
    let out = operands[operands.len() - 1];
    let inner = match kernel {
        Kernel::Unary(func) => unary_loop(*func, out.dtype, chip),
        Kernel::Smooth(func) => smooth_loop(*func, out.dtype, chip),
        Kernel::Binary(func) => binary_loop(*func, out.dtype, chip),
        Kernel::Compare(func) => compare_loop(*func, operands[0].dtype),
        Kernel::Select => Loop::new(5, 1),
        Kernel::Cast => cast_loop(operands[0].dtype, out.dtype, chip),
        _ => return c(0),
    };
    c(cost::per_worker(out.num_elements(), chip).div_ceil(inner.elements.max(1))) * c(inner.cycles)
}

/// UnaryOp1D: `W(17 (33 for exp) + loops) + 20`.
pub fn unary_cycles(func: UnaryFn, operands: &[OperandType], chip: &Chip) -> VertexCost {
    let out = operands[1];
    let before = if func == UnaryFn::Exp { 33 } else { 17 };
    looped(unary_loop(func, out.dtype, chip), out, before, 20, chip)
}

/// As a unary operation.
pub fn smooth_cycles(func: Smooth, operands: &[OperandType], chip: &Chip) -> VertexCost {
    looped(smooth_loop(func, operands[1].dtype, chip), operands[1], 17, 20, chip)
}

/// BinaryOp1D: `W(29 f32 | 26 f16 + loops) + 11`.
pub fn binary_cycles(func: BinaryFn, operands: &[OperandType], chip: &Chip) -> VertexCost {
    let out = operands[2];
    looped(binary_loop(func, out.dtype, chip), out, before_binary(out.dtype), 11, chip)
}

/// As BinaryOp1D.
pub fn compare_cycles(func: CompareFn, operands: &[OperandType], chip: &Chip) -> VertexCost {
    let lhs = operands[0];
    looped(compare_loop(func, lhs.dtype), lhs, before_binary(lhs.dtype), 11, chip)
}

/// Assumption: integers and bool, which the formula does not name, as f32.
fn before_binary(dtype: DType) -> u64 {
    if Column::of(dtype) == Column::F16 { 26 } else { 29 }
}

/// Select: "5/elem+6". Assumption: of one worker; we split it over all of them.
pub fn select_cycles(operands: &[OperandType], chip: &Chip) -> VertexCost {
    looped(Loop::new(5, 1), operands[3], 6, 0, chip)
}

/// Cast1D: "12 + W(37 + vecs...)".
pub fn cast_cycles(operands: &[OperandType], chip: &Chip) -> VertexCost {
    let [input, out] = [operands[0], operands[1]];
    looped(cast_loop(input.dtype, out.dtype, chip), out, 37, 12, chip)
}

/// Among floats a cycle for each vector of the wider type, the "max(ld,st vecs)" of the planner's row.
///
/// Assumption: other conversions go element by element, each one instruction (section 2: most take one
/// slot) with the load, store and loop of unary functions; twice that if either side has 64 bits.
fn cast_loop(from: DType, to: DType, chip: &Chip) -> Loop {
    let is_long = [from, to].map(Column::of).contains(&Column::Long);
    match (from.is_float() && to.is_float(), is_long) {
        (true, _) => Loop::new(1, cost::vector_len(from, chip).min(cost::vector_len(to, chip))),
        (false, false) => Loop::bare(1, 1),
        (false, true) => Loop::bare(1, 1).doubled(),
    }
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
        assert_eq!(entry(BinaryFn::Shl, DType::U16), Loop { cycles: 3, elements: 4 });
        assert_eq!(entry(BinaryFn::Rem, DType::U64), Loop { cycles: 584, elements: 1 });
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
