//! Checkers written from the definitions, independent of how programs are made: each returns what is
//! wrong as sentences, none if the program is sound. They run on any valid program.

mod exchange;
mod locality;
mod memory;
mod race;
mod stream;

pub use exchange::check_exchanges;
pub use locality::check_locality;
pub use memory::{check_placement, check_room};
pub use race::check_races;
pub use stream::check_streams;

use crate::program::Program;

/// All checks that need no placement.
pub fn check(program: &Program) -> Vec<String> {
    let mut findings = check_locality(program);
    if findings.is_empty() {
        findings.extend(check_races(program));
    }
    findings.extend(check_exchanges(program));
    findings.extend(check_streams(program));
    findings
}
