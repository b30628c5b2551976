//! Machines as data: what a chip, a machine and a POD consist of, how fast each part is, what it
//! costs, and where each number comes from.
//!
//! In: the name of a built-in system, or a TOML file of the user's. Out: a checked [`Machine`], a
//! plain struct whose numbers are all bounded (see [`check`]), or one sentence saying what is wrong
//! at which line. Deliberately not here: what a program costs on a machine (`tile` holds the
//! kernels' formulas, `sim` adds them up), how work is placed (`lower`), and any decision that
//! depends on a machine's name. A new machine is a new file under `data/`.

mod builtin;
mod check;
mod chip;
mod closest;
mod describe;
mod errors;
mod load;
mod locate;
mod machine;

pub use builtin::{names, text};
pub use check::check;
pub use chip::{Chip, Exchange, Issue, MatrixRate, Sram, Sync};
pub use describe::describe;
pub use load::{load, parse};
pub use machine::{Ddr, Gateway, GatewayTopology, Host, Links, Machine, Topology};
pub use pando_base::Error;
