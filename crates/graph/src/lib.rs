//! The tensor IR: what is computed, on tensors. A module of constants and functions over a small closed
//! set of primitive ops; its types, text format, validator, builder and reference evaluator. Everything
//! else about models is a composite: a named function with a body of primitives.
//! Knows no tiles, cycles, machines or files.

mod bind;
mod builder;
mod consts;
pub mod dims;
pub mod errors;
mod eval;
mod expanded;
pub mod generate;
mod grad;
mod module;
mod op;
mod ops;
pub mod testing;
pub mod text;
mod types;
mod validate;

pub use bind::bind_dims;
pub use builder::{
    Buckets, Builder, Cell, Layer, Pattern, is_sparse_matmul, is_stochastic_rounding, rebuild, same_body,
};
pub use consts::{Const, ConstData};
pub use eval::{EvalOptions, eval, eval_wide, eval_with, wide, wide_values};
pub use expanded::check_expanded_size;
pub use grad::extreme_window_gradient;
pub use module::{ConstId, Func, FuncId, Module, Node, NodeId, Value, ValueDef, ValueId};
pub use op::{Conv, Distribution, Dot, Op, Pad, ReduceWindow, Scan, Slice, Sort};
pub use ops::infer;
pub use pando_base::random;
pub use text::{fuzz_parse, parse, print};
pub use types::{Dim, Dims, TensorType, known_dims};
pub use validate::{call_order, validate};
