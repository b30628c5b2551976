//! The closed set of primitive operations. An op holds attributes only; operands and results belong to
//! the node, so that a walk over a function is written once. What each op demands and yields is in
//! `ops/`, what it computes in `eval/`.

use crate::module::{ConstId, FuncId};
use crate::types::{Dim, Dims};
pub use pando_base::random::Distribution;
use pando_base::{BinaryFn, CompareFn, DType, ReduceFn, UnaryFn};
use smallvec::{SmallVec, smallvec};
use std::fmt;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// A constant of the module.
    Constant(ConstId),
    /// The index along `axis`.
    Iota {
        dtype: DType,
        dims: Dims,
        axis: usize,
    },
    /// Pseudo-random elements; operand: the seed, `u32[2]`. The same seed gives the same elements.
    Random {
        distribution: Distribution,
        dtype: DType,
        dims: Dims,
    },
    Unary(UnaryFn),
    Binary(BinaryFn),
    Compare(CompareFn),
    /// `(condition, if true, if false)`, element by element.
    Select,
    /// The nearest value of another type; see [`DType::round`]. Integers to integers wrap.
    Convert(DType),
    /// The same bits under another type of the same size.
    Bitcast(DType),
    Reshape {
        dims: Dims,
    },
    /// Result dimension `i` is operand dimension `perm[i]`.
    Transpose {
        perm: Vec<usize>,
    },
    /// Operand dimension `i` becomes result dimension `axes[i]`; it is equal to it or 1.
    Broadcast {
        dims: Dims,
        axes: Vec<usize>,
    },
    Slice(Slice),
    /// Operands: data, and the scalar that fills.
    Pad(Pad),
    Concat {
        axis: usize,
    },
    Reverse {
        axes: Vec<usize>,
    },
    /// `(data, indices)`: rows of `data` along `axis`. Indices out of range are clamped.
    Gather {
        axis: usize,
    },
    /// `(data, indices, updates)`: row `i` of `updates` goes to row `indices[i]` of `data` along `axis`,
    /// in order; the last one stays, or all are combined. Indices out of range are clamped, so that a
    /// sum is the exact adjoint of a gather.
    Scatter {
        axis: usize,
        combine: Option<ReduceFn>,
    },
    Dot(Dot),
    Conv(Conv),
    /// The reduced axes are removed. No elements give the function's neutral element.
    Reduce {
        func: ReduceFn,
        axes: Vec<usize>,
    },
    ReduceWindow(ReduceWindow),
    Scan(Scan),
    /// Operands: keys, then any number of payloads that move with them.
    Sort(Sort),
    Call(FuncId),
    /// `(condition, arguments…)`; the condition is `bool[]`.
    If {
        then_func: FuncId,
        else_func: FuncId,
    },
    /// Carried values. `cond` maps them to `bool[]`, `body` to their next values.
    While {
        cond: FuncId,
        body: FuncId,
    },
    /// Carried values. `body` takes the iteration number `i32[]`, from 0, before them.
    Repeat {
        count: u64,
        body: FuncId,
    },
}

/// `begin, begin + step, …` below `end`, per dimension. `end` may be the operand's own named size.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Slice {
    pub begin: Vec<u64>,
    pub end: Dims,
    pub step: Vec<u64>,
}

/// Per dimension: `interior` fillers between neighbours, then `low` before and `high` after. Negative
/// `low` and `high` crop.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pad {
    pub low: Vec<i64>,
    pub high: Vec<i64>,
    pub interior: Vec<u64>,
}

/// Sums products over pairs of (lhs axis, rhs axis). Result: batch dimensions in the order given, then
/// the free dimensions of lhs, then of rhs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Dot {
    pub batch: Vec<(usize, usize)>,
    pub contract: Vec<(usize, usize)>,
    /// Type of the sums and the result; the left operand's if `None`.
    pub dtype: Option<DType>,
}

/// Input `[N, C, spatial…]`, kernel `[O, C/groups, spatial…]`, result `[N, O, spatial…]`. No flipping of
/// the kernel (cross-correlation).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Conv {
    pub strides: Vec<u64>,
    /// Zeros before and after, placed after input dilation; negative crops.
    pub padding: Vec<(i64, i64)>,
    /// Distance of neighbouring input elements (transposed convolution); 1 is dense.
    pub input_dilation: Vec<u64>,
    pub kernel_dilation: Vec<u64>,
    pub groups: u64,
    /// Type of the sums and the result; the input's if `None`.
    pub dtype: Option<DType>,
}

impl Conv {
    /// Unit strides and dilations, no padding, one group.
    pub fn plain(spatial_rank: usize) -> Self {
        Conv {
            strides: vec![1; spatial_rank],
            padding: vec![(0, 0); spatial_rank],
            input_dilation: vec![1; spatial_rank],
            kernel_dilation: vec![1; spatial_rank],
            groups: 1,
            dtype: None,
        }
    }
}

/// A reduction at each position of a window that slides over all dimensions. Padding counts as the
/// function's neutral element; negative padding crops.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReduceWindow {
    pub func: ReduceFn,
    pub window: Vec<u64>,
    pub strides: Vec<u64>,
    pub padding: Vec<(i64, i64)>,
    pub dilation: Vec<u64>,
}

/// Running combination along `axis`. `exclusive`: of the elements before; starts with the neutral
/// element. `reverse`: from the end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Scan {
    /// `sum`, `prod`, `max` or `min`.
    pub func: ReduceFn,
    pub axis: usize,
    pub exclusive: bool,
    pub reverse: bool,
}

/// NaN counts as larger than every number; zeros of either sign are equal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sort {
    pub axis: usize,
    pub descending: bool,
    /// Equal keys keep their order. Without it any order of equal keys is right.
    pub stable: bool,
}

impl Op {
    /// The spelling in the text format: of the function for elementwise ops.
    pub const fn name(&self) -> &'static str {
        match self {
            Op::Constant(_) => "constant",
            Op::Iota { .. } => "iota",
            Op::Random { .. } => "random",
            Op::Unary(func) => func.name(),
            Op::Binary(func) => func.name(),
            Op::Compare(func) => func.name(),
            Op::Select => "select",
            Op::Convert(_) => "convert",
            Op::Bitcast(_) => "bitcast",
            Op::Reshape { .. } => "reshape",
            Op::Transpose { .. } => "transpose",
            Op::Broadcast { .. } => "broadcast",
            Op::Slice(_) => "slice",
            Op::Pad(_) => "pad",
            Op::Concat { .. } => "concat",
            Op::Reverse { .. } => "reverse",
            Op::Gather { .. } => "gather",
            Op::Scatter { .. } => "scatter",
            Op::Dot(_) => "dot",
            Op::Conv(_) => "conv",
            Op::Reduce { .. } => "reduce",
            Op::ReduceWindow(_) => "reduce_window",
            Op::Scan(_) => "scan",
            Op::Sort(_) => "sort",
            Op::Call(_) => "call",
            Op::If { .. } => "if",
            Op::While { .. } => "while",
            Op::Repeat { .. } => "repeat",
        }
    }

    /// The functions this op runs.
    pub fn funcs(&self) -> SmallVec<[FuncId; 2]> {
        match *self {
            Op::Call(func) | Op::Repeat { body: func, .. } => smallvec![func],
            Op::If { then_func, else_func } => smallvec![then_func, else_func],
            Op::While { cond, body } => smallvec![cond, body],
            _ => smallvec![],
        }
    }

    /// The same slots as [`Op::funcs`], to renumber.
    pub fn funcs_mut(&mut self) -> SmallVec<[&mut FuncId; 2]> {
        match self {
            Op::Call(func) | Op::Repeat { body: func, .. } => smallvec![func],
            Op::If { then_func, else_func } => smallvec![then_func, else_func],
            Op::While { cond, body } => smallvec![cond, body],
            _ => smallvec![],
        }
    }

    /// The dimensions that are attributes, to replace names by numbers.
    pub fn dims_mut(&mut self) -> &mut [Dim] {
        match self {
            Op::Iota { dims, .. }
            | Op::Random { dims, .. }
            | Op::Reshape { dims }
            | Op::Broadcast { dims, .. }
            | Op::Slice(Slice { end: dims, .. }) => dims,
            _ => &mut [],
        }
    }

    pub fn dims(&self) -> &[Dim] {
        match self {
            Op::Iota { dims, .. }
            | Op::Random { dims, .. }
            | Op::Reshape { dims }
            | Op::Broadcast { dims, .. }
            | Op::Slice(Slice { end: dims, .. }) => dims,
            _ => &[],
        }
    }

    /// Each result element depends on the operand elements at the same index only.
    pub const fn is_elementwise(&self) -> bool {
        matches!(
            self,
            Op::Unary(_) | Op::Binary(_) | Op::Compare(_) | Op::Select | Op::Convert(_) | Op::Bitcast(_)
        )
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
