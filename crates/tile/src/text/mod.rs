//! The `.tile` text format. Printing and parsing are inverse; `parse` also validates.
//!
//! ```text
//! program "sum" tiles=4 replicas=1
//! var %x: f32[8,4] input on 0 4*1 [a0:8, 0..4]
//! var %y: f32[8,4] const splat(1) on 0 4*1 [a0:8, 0..4]
//! var %z: f32[8,4] output on 0 4*1 [a0:8, 0..4]
//! compute @cs0 "add" {
//!   binary.add on 0 4*1 %x[a0:8, 0..4], %y[a0:8, 0..4], %z[a0:8, 0..4]
//! }
//! main {
//!   host.in %x
//!   compute @cs0
//!   host.out %z
//! }
//! ```
//!
//! A grid is `on BASE EXTENT*STRIDE …`; a span is `BEGIN..END` or `aAXIS:TOTAL[/GRAIN][*MUL(LO,HI)]`.
//! Exchanges hold `copy %dst <- %src`, `copy %dst[0..4, 0..8] <- %src[d1, d0*2+3]` or
//! `copy flat %dst[0..32] <- %src[8..40]`; several destinations are separated by commas. Steps may stand in
//! `repeat COUNT { … }`, `if %flag { … } else { … }` and `while %flag trips COUNT { … } do { … }`.

mod kernels;
mod parser;
mod printer;

pub use parser::parse;
pub use printer::print;

/// For fuzzing: whatever parses must print to text that reads back to the same program.
pub fn fuzz_parse(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(program) = parse(text, "fuzz.tile") else { return };
    let printed = print(&program);
    let again = parse(&printed, "printed").expect("printed programs parse");
    assert_eq!(print(&again), printed, "printing and parsing are inverse");
}
