//! Sums and selections over a profile, one small file each. Pure functions; nothing is stored.

mod alike;
mod bound;
mod by_kind;
mod fullest;
mod names;
mod operations;
mod over_time;
mod pipeline;
mod suggestions;

pub use alike::{Alike, alike};
pub use bound::bound;
pub use by_kind::{cycles_by_kind, cycles_by_step_kind};
pub use fullest::{fullest_tiles, live_at};
pub use names::{common_name, pattern};
pub use operations::{operation_name, operations};
pub use over_time::{MemoryPoint, memory_over_time};
pub use pipeline::pipeline;
pub use suggestions::{Change, Suggestion, suggestions};
