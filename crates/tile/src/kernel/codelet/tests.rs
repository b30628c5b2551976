//! Goal: codelets compute what they say, and cost what their instructions cost.

use super::*;
use crate::block::Block;
use crate::kernel::Kernel;
use crate::kernel::cost::tests::{bow, cycles as tile_cycles};
use crate::kernel::values::tests::{arg, out, run};
use pando_base::Tensor;

fn kernel(code: &str, width: u64, issue: u64) -> Kernel {
    Kernel::Codelet(Box::new(Codelet::parse(code, width, issue, 2).expect("valid code")))
}

#[test]
fn computes() {
    let operands = || vec![arg(DType::F32, &[3], &[1.0, 2.0, 4.0]), arg(DType::F32, &[3], &[8.0, 8.0, 16.0])];
    let with_out = |count| operands().into_iter().chain((0..count).map(|_| out(DType::F32, &[3]))).collect();
    assert_eq!(run(&kernel("2 * i0 + i1 / (i0 + 0)", 1, 1), with_out(1)), [10.0, 8.0, 12.0]);
    assert_eq!(run(&kernel("i1 -1*i0", 1, 1), with_out(1)), [7.0, 6.0, 12.0]);
    assert_eq!(run(&kernel("i0[-1] + i0[1] + 0*i1", 1, 1), with_out(1)), [2.0, 5.0, 2.0]);
}

#[test]
fn offsets_count_in_the_variable() {
    let mut input = arg(DType::F16, &[1, 4], &[1.0, 2.0, 3.0, 4.0]);
    input.block = Block::new(&[(0, 1), (9, 13)]);
    let block = Block::new(&[(0, 1), (10, 12)]);
    let result = Arg::new(block, &[1, 99], Tensor::zeros(DType::F16, [1, 2]));
    assert_eq!(run(&kernel("i0[0,1] - i0[0,-1]", 1, 1), vec![input, result]), [2.0, 2.0]);
}

#[test]
fn refuses() {
    let parse = |code| Codelet::parse(code, 1, 1, 2).unwrap_err();
    assert_eq!(parse("i9"), "inputs are i0 to i7");
    assert!(parse("i0 +").contains("expected a number"), "{}", parse("i0 +"));
    assert!(parse("i0 i1").contains("expected an operator"), "{}", parse("i0 i1"));
    assert!(parse(&format!("{}i0{}", "(".repeat(99), ")".repeat(99))).contains("nest"));
    for (width, issue, turns) in [(1, 3, 2), (0, 1, 2), (9, 1, 2), (1, 1, 3)] {
        assert!(Codelet::parse("i0", width, issue, turns).is_err());
    }
    let f32s = |lens| OperandType { dtype: DType::F32, lens };
    let wide = Codelet::parse("i0", 4, 1, 2).expect("valid code");
    assert!(check(&wide, &[f32s(&[4]), f32s(&[4])]).unwrap_err().contains("at most 2 of f32"));
    let offset = Codelet::parse("i0[1,1]", 1, 1, 2).expect("valid code");
    assert!(check(&offset, &[f32s(&[4]), f32s(&[4])]).unwrap_err().contains("one offset a dimension"));
    let copy = Codelet::parse("i0", 1, 1, 2).expect("valid code");
    assert!(check(&copy, &[f32s(&[3]), f32s(&[4])]).is_err());
}

/// STREAM's triad: two loads, a product, a sum, a store and the loop's two; side by side the five of memory
/// and loop. Around them 6 · 21 + 20 for the start and 82 for the launch of elementwise vertices.
#[test]
fn counts_instructions() {
    let lens = [600u64];
    let operand = OperandType { dtype: DType::F32, lens: &lens };
    let time = |width, issue| {
        tile_cycles(kernel("i0 + 3 * i1", width, issue).cycles(&[operand; 3], &bow())) - (6 * 21 + 20 + 82)
    };
    assert_eq!([time(1, 1), time(2, 1), time(1, 2)], [600 * 7, 300 * 7, 600 * 5]);
    // A shared term is computed once, a division takes 7 slots for two.
    let code = kernel("(i0 + i1) * (i0 + i1), i0 / i1", 2, 1);
    let four = [operand; 4];
    assert_eq!(tile_cycles(code.cycles(&four, &bow())) - (6 * 21 + 20 + 82), 300 * (2 + 2 + 7 + 2 + 2));
    assert_eq!(code.flops(&four), 600 * 3);
}
