//! The tile IR: what each tile of a chip does, and when.
//!
//! A [`Program`] holds variables spread over tiles, compute sets of *vertex groups* (one kernel over a
//! grid of tiles), exchanges that move data between tiles, and the order in which they happen. All
//! regions are closed forms of grid coordinates, so a program's size follows the number of operations,
//! never the number of tiles; [`expand()`] yields the explicit form with one vertex and one message each.
//!
//! Knows nothing of graphs or of how a program came to be; hand-written programs are equals.

pub mod block;
pub mod check;
pub mod expand;
pub mod grid;
pub mod kernel;
pub mod liveness;
pub mod memory;
pub mod message;
pub mod program;
pub mod span;
pub mod stream;
pub mod text;
pub mod tile_sums;
pub mod traffic;
pub mod validate;

pub use block::Block;
pub use expand::expand;
pub use grid::{Axis, Class, Grid};
pub use kernel::{Access, Arg, Kernel, OperandType, VertexCost};
pub use program::{
    ComputeSet, ComputeSetId, Copy, CopyMap, Exchange, ExchangeId, Flags, Group, Init, Layout, Operand,
    PREFETCH, Placement, Program, Region, Role, SrcIndex, Step, Var, VarId,
};
pub use span::{Part, Span};
pub use text::{parse, print};
pub use tile_sums::TileSums;
pub use validate::validate;
