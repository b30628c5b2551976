//! The text format, written and read: exact inverses. One line per node, uniform `name=value`
//! attributes, result types after the colon. `attrs.rs` holds both directions of every op's attributes
//! side by side; `literal.rs` those of tensors.

mod attrs;
mod literal;
mod parse;
mod print;
#[cfg(test)]
mod tests;

pub use attrs::op_names;
pub use literal::{format_tensor, parse_tensor};
pub use parse::{parse, parse_op, parse_type};
pub use print::print;

/// For fuzzing: whatever parses must print, and parse again to the same text. Never panics otherwise.
pub fn fuzz_parse(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Ok(module) = parse(&text, "fuzz") {
        let printed = print(&module);
        let again = parse(&printed, "printed").expect("what was printed parses");
        assert_eq!(print(&again), printed, "printing is a fixed point");
    }
}
