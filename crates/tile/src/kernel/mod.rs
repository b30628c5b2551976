//! Kernels: the code that vertices run. Each kernel's operand rules, values and cycles stand side by
//! side in one file; this file only names the kernels and dispatches.
//!
//! A kernel sees dense blocks of its operands and, where indices matter (windows, iota, gather), where
//! these blocks lie in the whole variable. Values are computed as a tile would: in the operands' types,
//! with the partial sums' type and order that the hardware has. Cycles are a formula of the blocks' sizes
//! and the chip's data.

use crate::block::Block;
use pando_base::random::Distribution;
use pando_base::{BinaryFn, CompareFn, DType, ReduceFn, Tensor, UnaryFn};
use pando_machine::Chip;
use smallvec::SmallVec;

mod amp;
mod arg;
mod codelet;
mod combine;
mod conv;
mod cost;
mod dot;
mod elementwise;
mod gather;
mod map;
mod matmul;
mod movement;
mod random;
mod reduce;
mod scan;
mod scatter;
mod slice;
mod sort;
mod sparse;
mod values;
mod window;
mod window_grad;

use arg::same_but_ones;
pub use arg::{Access, Arg, OperandType, VertexCost};
pub use codelet::Codelet;
pub use elementwise::Smooth;
pub use map::{MAX_INPUTS, MapAttrs, MapFn, MapStep};
pub use window::missing as missing_window_input;
pub use window_grad::holds as holds_gradient_windows;

/// Dimension lists of kernels.
pub type Dims = SmallVec<[u8; 4]>;

/// What a vertex computes, with everything but its operands.
#[derive(Clone, Debug, PartialEq)]
pub enum Kernel {
    /// `out`: the value everywhere.
    Fill { value: f64 },
    /// `in, out`: the same bits; of equal shape but for dimensions of length 1, types of one size.
    Copy,
    /// `in, out`.
    Unary(UnaryFn),
    /// `lhs, rhs, out`: equal shapes and types.
    Binary(BinaryFn),
    /// `lhs, rhs, out`: `out` is bool.
    Compare(CompareFn),
    /// `condition (bool), then, else, out`.
    Select,
    /// `inputs…, kept…, out`: a chain of the elementwise functions above; inputs may repeat along dimensions.
    Map(MapAttrs),
    /// `in, out`: a function of several steps that the vendor's library has in one.
    Smooth(Smooth),
    /// `in, out`: conversion to `out`'s type; float to integer truncates and saturates.
    Cast,
    /// `in, out`: an i32 and the next one.
    Count,
    /// `in, out`: dimension `i` of `in` is dimension `dims[i]` of `out`; `in` repeats along the rest, and
    /// where its length is 1.
    Broadcast { dims: Dims },
    /// `in, out`: dimension `i` of `out` is dimension `perm[i]` of `in`.
    Transpose { perm: Dims },
    /// `in, out`: combines over `axes`, which `out` lacks or keeps with length 1. Floats are combined in
    /// f32; both may be different ones.
    Reduce { func: ReduceFn, axes: Dims },
    /// `lhs, rhs, out` on the matrix unit, whose weights are `rhs`. The product has the batch dimensions, then lhs's
    /// free ones, then rhs's; dimension `i` of `out` is its dimension `order[i]`, or `i` if `order` is empty;
    /// dimensions of length 1 may be added. Sums are kept in `partials`, in the unit's order.
    MatMul { batch: SmallVec<[(u8, u8); 2]>, contract: SmallVec<[(u8, u8); 2]>, order: Dims, partials: DType },
    /// `row [1.., k], vector [k], out [1..]`: one row's dot product by a single worker (hand-written
    /// matrix–vector programs have one vertex a row).
    RowDot,
    /// `x [n, k], values [.., s, side, side], rows [.., s], columns [.., s], out [.., n, m]`: a dense block times the
    /// blocks of a transposed sparse matrix, which stand where rows and columns say, counted in blocks of the whole.
    SparseMatMul,
    /// `input [n, c, spatial…], weights [o, c/groups, kernel…], out [n, o, spatial…]` on the matrix unit.
    /// Blocks are placed by their global indices: output `y` reads input `y·stride − pad + k·dilation`;
    /// what lies outside the input's *variable* counts as zero. Unfolding takes one more operand, which it
    /// fills with the windows.
    Conv(ConvAttrs),
    /// `data, indices (any integer type), out`: `out` has `axis` of `data` replaced by the dimensions of
    /// `indices`. Indices are clamped to `[0, size)`; rows outside the block at hand give zero.
    Gather { axis: u8, size: u64 },
    /// `out`: each element's index along the axis.
    Iota { axis: u8 },
    /// `inputs…, outputs…`: arithmetic of neighbouring elements, written by hand.
    Codelet(Box<Codelet>),
    /// `seed (u32[2]), out`: elements that depend on the seed and their index in the variable only.
    Random { distribution: Distribution },
    /// `seed (u32[2]), x (f32), out (f16 or bf16)`: a neighbour, the nearer one more often.
    Round,
    /// `in, out`: combines what lies under a window at each element of `out`. Blocks are placed as those of a
    /// convolution are; what lies outside the input's *variable* is neutral.
    ReduceWindow { func: ReduceFn, attrs: WindowAttrs },
    /// `in, gradient, out`: the gradient of such a maximum or minimum, which goes to the first extreme of each window.
    WindowGrad { func: ReduceFn, attrs: WindowAttrs },
    /// `[start,] in, out`: running combination along an axis.
    Scan(ScanAttrs),
    /// `[data,] indices, updates, out`: rows of `updates` go to the rows that `indices` say.
    Scatter(ScatterAttrs),
    /// `data, index, row, out`, which is `data` itself: the row that the index says is replaced where it lies.
    Update { axis: u8, size: u64 },
    /// `whole, number (any integer type), slice`.
    TakeSlice(SliceAttrs),
    /// `number (any integer type), slice, whole`, of which the rest stays.
    PutSlice(SliceAttrs),
    /// `keys, out [, order (i32)]`: sorts lines along the axis; equal keys keep their order.
    Sort { axis: u8, descending: bool, ordered: bool },
    /// `own, other, out`: of two sorted blocks merged along the last dimension, the half that belongs to the
    /// tile's place along `side`. With orders `own, order, other, order, out, order, picks`.
    Merge { side: u8, descending: bool, ordered: bool },
    /// `own, other, picks (i32), out`: elements of both as a merge picked them.
    Pick,
    /// `data, indices (i32), out`: for each element of `out` the element of `data` whose index along the axis
    /// is given.
    Take { axis: u8 },
}

/// Attributes of a sliding window, one entry per dimension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowAttrs {
    pub window: SmallVec<[u64; 4]>,
    pub strides: SmallVec<[u64; 4]>,
    /// Neutral elements before the first input element; negative skips elements.
    pub padding_low: SmallVec<[i64; 4]>,
    pub dilation: SmallVec<[u64; 4]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanAttrs {
    pub func: ReduceFn,
    pub axis: u8,
    /// Of the elements before.
    pub exclusive: bool,
    /// From the end.
    pub reverse: bool,
    /// Whether an operand holds what came before the block.
    pub start: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScatterAttrs {
    /// Nothing: the last update stays.
    pub combine: Option<ReduceFn>,
    pub axis: u8,
    /// Rows of the whole output; indices are clamped to them.
    pub size: u64,
    /// Whether an operand holds what the output begins as.
    pub onto: bool,
}

/// Slices of a dimension, dealt in chunks in turn: slice `i` has the chunks `i`, `i + slices`, ….
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SliceAttrs {
    pub axis: u8,
    /// Elements of the dimension at a time.
    pub chunk: u64,
    pub slices: u64,
}

/// Attributes of a convolution, one entry per spatial dimension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConvAttrs {
    pub strides: SmallVec<[u64; 2]>,
    /// Zeros before the first input element.
    pub padding_low: SmallVec<[u64; 2]>,
    pub kernel_dilation: SmallVec<[u64; 2]>,
    pub groups: u64,
    pub partials: DType,
    pub method: ConvMethod,
}

/// How a vertex computes a convolution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ConvMethod {
    /// A kernel position after the other.
    #[default]
    Positions,
    /// As a matrix product over input channels and kernel positions together, where each tile has one output
    /// position, whose window is the whole block of the input.
    Product,
    /// The same anywhere: the window of every output is first written out.
    Unfolded,
}

impl ConvMethod {
    pub const ALL: [ConvMethod; 3] = [ConvMethod::Positions, ConvMethod::Product, ConvMethod::Unfolded];

    pub const fn name(self) -> &'static str {
        match self {
            ConvMethod::Positions => "positions",
            ConvMethod::Product => "product",
            ConvMethod::Unfolded => "unfolded",
        }
    }
}

impl Kernel {
    /// The name in the text format.
    pub fn name(&self) -> String {
        match self {
            Kernel::Fill { .. } => "fill".into(),
            Kernel::Copy => "copy".into(),
            Kernel::Unary(func) => format!("unary.{func}"),
            Kernel::Binary(func) => format!("binary.{func}"),
            Kernel::Compare(func) => format!("compare.{func}"),
            Kernel::Select => "select".into(),
            Kernel::Cast => "cast".into(),
            Kernel::Smooth(func) => func.name().into(),
            Kernel::Count => "count".into(),
            Kernel::Round => "round".into(),
            Kernel::Update { .. } => "update".into(),
            Kernel::TakeSlice(_) => "take_slice".into(),
            Kernel::PutSlice(_) => "put_slice".into(),
            Kernel::Map(_) => "map".into(),
            Kernel::Broadcast { .. } => "broadcast".into(),
            Kernel::Transpose { .. } => "transpose".into(),
            Kernel::Reduce { func, .. } => format!("reduce.{func}"),
            Kernel::MatMul { .. } => "matmul".into(),
            Kernel::RowDot => "rowdot".into(),
            Kernel::SparseMatMul => "sparse_matmul".into(),
            Kernel::Conv(_) => "conv".into(),
            Kernel::Gather { .. } => "gather".into(),
            Kernel::Iota { .. } => "iota".into(),
            Kernel::Codelet(_) => "codelet".into(),
            Kernel::Random { distribution } => format!("random.{distribution}"),
            Kernel::ReduceWindow { func, .. } => format!("reduce_window.{func}"),
            Kernel::WindowGrad { func, .. } => format!("window_grad.{func}"),
            Kernel::Scan(attrs) => format!("scan.{}", attrs.func),
            Kernel::Scatter(ScatterAttrs { combine: Some(func), .. }) => format!("scatter.{func}"),
            Kernel::Scatter(_) => "scatter".into(),
            Kernel::Sort { .. } => "sort".into(),
            Kernel::Merge { .. } => "merge".into(),
            Kernel::Pick => "pick".into(),
            Kernel::Take { .. } => "take".into(),
        }
    }

    /// How each operand is used, in order.
    pub fn signature(&self) -> &'static [Access] {
        use Access::{In, Out};
        match self {
            Kernel::Fill { .. } | Kernel::Iota { .. } => &[Out],
            Kernel::Copy
            | Kernel::Unary(_)
            | Kernel::Smooth(_)
            | Kernel::Cast
            | Kernel::Count
            | Kernel::Broadcast { .. }
            | Kernel::Transpose { .. }
            | Kernel::Reduce { .. }
            | Kernel::Random { .. }
            | Kernel::ReduceWindow { .. } => &[In, Out],
            Kernel::Scan(attrs) => {
                if attrs.start {
                    &[In, In, Out]
                } else {
                    &[In, Out]
                }
            }
            Kernel::Scatter(attrs) => {
                if attrs.onto {
                    &[In, In, In, Out]
                } else {
                    &[In, In, Out]
                }
            }
            Kernel::Sort { ordered, .. } => {
                if *ordered {
                    &[In, Out, Out]
                } else {
                    &[In, Out]
                }
            }
            Kernel::SparseMatMul => &[In, In, In, In, Out],
            Kernel::Merge { ordered: true, .. } => &[In, In, In, In, Out, Out, Out],
            Kernel::Conv(ConvAttrs { method: ConvMethod::Unfolded, .. }) => &[In, In, Out, Out],
            Kernel::Binary(_)
            | Kernel::Compare(_)
            | Kernel::MatMul { .. }
            | Kernel::RowDot
            | Kernel::Round
            | Kernel::Conv(_)
            | Kernel::WindowGrad { .. }
            | Kernel::Merge { .. }
            | Kernel::Take { .. }
            | Kernel::TakeSlice(_)
            | Kernel::PutSlice(_)
            | Kernel::Gather { .. } => &[In, In, Out],
            Kernel::Map(attrs) => {
                // As many inputs as there are, at most MAX_INPUTS; more do not pass the check.
                const ALL: &[Access; MAX_INPUTS + 3] =
                    &[In, In, In, In, In, In, In, In, In, In, In, Out, Out];
                let outputs = MAX_INPUTS + 2 + usize::from(attrs.kept.is_some());
                &ALL[(MAX_INPUTS + 1).saturating_sub(attrs.inputs.len())..outputs]
            }
            Kernel::Select | Kernel::Pick | Kernel::Update { .. } => &[In, In, In, Out],
            Kernel::Codelet(codelet) => codelet.signature(),
        }
    }

    /// Checks types and sizes of the operands of one vertex; the sentence says what is wrong.
    pub fn check(&self, operands: &[OperandType]) -> Result<(), String> {
        let expected = self.signature().len();
        if operands.len() != expected {
            return Err(format!("{} takes {expected} operands, not {}", self.name(), operands.len()));
        }
        match self {
            Kernel::Fill { .. } => Ok(()),
            Kernel::Copy => movement::check_copy(operands),
            Kernel::Unary(func) => elementwise::check_unary(*func, operands),
            Kernel::Binary(func) => elementwise::check_binary(*func, operands),
            Kernel::Compare(_) => elementwise::check_compare(operands),
            Kernel::Select => elementwise::check_select(operands),
            Kernel::Cast => elementwise::check_cast(operands),
            Kernel::Smooth(_) => elementwise::check_unary(UnaryFn::Exp, operands),
            Kernel::Count => movement::check_count(operands),
            Kernel::Update { axis, size } => scatter::check(&scatter::update(*axis, *size), operands),
            Kernel::TakeSlice(attrs) => slice::check(attrs, operands[0], operands[1], operands[2]),
            Kernel::PutSlice(attrs) => slice::check(attrs, operands[2], operands[0], operands[1]),
            Kernel::Map(attrs) => map::check(attrs, operands),
            Kernel::Broadcast { dims } => movement::check_broadcast(dims, operands),
            Kernel::Transpose { perm } => movement::check_transpose(perm, operands),
            Kernel::Reduce { func, axes } => reduce::check(*func, axes, operands),
            Kernel::MatMul { batch, contract, order, partials } => {
                matmul::check(batch, contract, order, *partials, operands)
            }
            Kernel::RowDot => dot::check(operands),
            Kernel::SparseMatMul => sparse::check(operands),
            Kernel::Conv(attrs) => conv::check(attrs, operands),
            Kernel::Gather { axis, size } => gather::check(*axis, *size, operands),
            Kernel::Iota { axis } => movement::check_iota(*axis, operands),
            Kernel::Codelet(codelet) => codelet::check(codelet, operands),
            Kernel::Random { distribution } => random::check(*distribution, operands),
            Kernel::Round => random::check_round(operands),
            Kernel::ReduceWindow { func, attrs } => window::check(*func, attrs, operands),
            Kernel::WindowGrad { func, attrs } => window_grad::check(*func, attrs, operands),
            Kernel::Scan(attrs) => scan::check(attrs, operands),
            Kernel::Scatter(attrs) => scatter::check(attrs, operands),
            Kernel::Sort { axis, .. } => sort::check_sort(*axis, operands),
            Kernel::Merge { side, ordered, .. } => sort::check_merge(*side, *ordered, operands),
            Kernel::Pick => sort::check_pick(operands),
            Kernel::Take { axis } => sort::check_take(*axis, operands),
        }
    }

    /// Computes the outputs of one vertex whose operands passed [`Kernel::check`].
    pub fn run(&self, args: &mut [Arg]) {
        match self {
            Kernel::Fill { value } => movement::run_fill(*value, args),
            Kernel::Copy => movement::run_copy(args),
            Kernel::Unary(func) => elementwise::run_unary(*func, args),
            Kernel::Binary(func) => elementwise::run_binary(*func, args),
            Kernel::Compare(func) => elementwise::run_compare(*func, args),
            Kernel::Select => elementwise::run_select(args),
            Kernel::Cast => elementwise::run_cast(args),
            Kernel::Smooth(func) => elementwise::run_smooth(*func, args),
            Kernel::Count => movement::run_count(args),
            Kernel::Update { axis, size } => scatter::run(&scatter::update(*axis, *size), args),
            Kernel::TakeSlice(attrs) => slice::run_take(attrs, args),
            Kernel::PutSlice(attrs) => slice::run_put(attrs, args),
            Kernel::Map(attrs) => map::run(attrs, args),
            Kernel::Broadcast { dims } => movement::run_broadcast(dims, args),
            Kernel::Transpose { perm } => movement::run_transpose(perm, args),
            Kernel::Reduce { func, axes } => reduce::run(*func, axes, args),
            Kernel::MatMul { batch, contract, order, partials } => {
                matmul::run(batch, contract, order, *partials, args)
            }
            Kernel::RowDot => dot::run(args),
            Kernel::SparseMatMul => sparse::run(args),
            Kernel::Conv(attrs) => conv::run(attrs, args),
            Kernel::Gather { axis, size } => gather::run(*axis, *size, args),
            Kernel::Iota { axis } => movement::run_iota(*axis, args),
            Kernel::Codelet(codelet) => codelet::run(codelet, args),
            Kernel::Random { distribution } => random::run(*distribution, args),
            Kernel::Round => random::run_round(args),
            Kernel::ReduceWindow { func, attrs } => window::run(*func, attrs, args),
            Kernel::WindowGrad { func, attrs } => window_grad::run(*func, attrs, args),
            Kernel::Scan(attrs) => scan::run(attrs, args),
            Kernel::Scatter(attrs) => scatter::run(attrs, args),
            Kernel::Sort { axis, descending, .. } => sort::run_sort(*axis, *descending, args),
            Kernel::Merge { side, descending, ordered } => {
                sort::run_merge(*side, *descending, *ordered, args)
            }
            Kernel::Pick => sort::run_pick(args),
            Kernel::Take { axis } => sort::run_take(*axis, args),
        }
    }

    /// Time of one vertex on a chip.
    pub fn cycles(&self, operands: &[OperandType], chip: &Chip) -> VertexCost {
        match self {
            Kernel::Fill { .. } => movement::fill_cycles(operands, chip),
            Kernel::Iota { .. } => movement::iota_cycles(operands, chip),
            Kernel::Copy => movement::copy_cycles(operands, chip),
            Kernel::Unary(func) => elementwise::unary_cycles(*func, operands, chip),
            Kernel::Binary(func) => elementwise::binary_cycles(*func, operands, chip),
            Kernel::Compare(func) => elementwise::compare_cycles(*func, operands, chip),
            Kernel::Select => elementwise::select_cycles(operands, chip),
            Kernel::Cast => elementwise::cast_cycles(operands, chip),
            Kernel::Smooth(func) => elementwise::smooth_cycles(*func, operands, chip),
            Kernel::Count => movement::count_cycles(chip),
            Kernel::Update { axis, .. } => scatter::update_cycles(*axis, operands, chip),
            Kernel::TakeSlice(_) => slice::cycles(operands[2], chip),
            Kernel::PutSlice(_) => slice::cycles(operands[1], chip),
            Kernel::Map(attrs) => map::cycles(attrs, operands, chip),
            Kernel::Broadcast { dims } => movement::broadcast_cycles(dims, operands, chip),
            Kernel::Transpose { perm } => movement::transpose_cycles(perm, operands, chip),
            Kernel::Reduce { axes, .. } => reduce::cycles(axes, operands, chip),
            Kernel::MatMul { batch, contract, order, partials } => {
                matmul::cycles(batch, contract, order, *partials, operands, chip)
            }
            Kernel::RowDot => dot::cycles(operands, chip),
            Kernel::SparseMatMul => sparse::cycles(operands, chip),
            Kernel::Conv(attrs) => conv::cycles(attrs, operands, chip),
            Kernel::Gather { axis, .. } => gather::cycles(*axis, operands, chip),
            Kernel::Codelet(codelet) => codelet::cycles(codelet, operands, chip),
            Kernel::Random { .. } => random::cycles(operands, chip),
            Kernel::Round => random::round_cycles(operands, chip),
            Kernel::ReduceWindow { attrs, .. } => window::cycles(attrs, operands, chip),
            Kernel::WindowGrad { attrs, .. } => window_grad::cycles(attrs, operands, chip),
            Kernel::Scan(attrs) => scan::cycles(attrs, operands, chip),
            Kernel::Scatter(attrs) => scatter::cycles(attrs, operands, chip),
            Kernel::Sort { axis, .. } => sort::sort_cycles(*axis, operands, chip),
            Kernel::Merge { ordered, .. } => sort::merge_cycles(*ordered, operands, chip),
            Kernel::Pick | Kernel::Take { .. } => sort::pick_cycles(operands, chip),
        }
    }

    /// Which of a convolution's vertices it is that [`Kernel::cycles`] prices.
    pub fn conv_vertex(attrs: &ConvAttrs, operands: &[OperandType], chip: &Chip) -> &'static str {
        conv::vertex(attrs, operands, chip)
    }

    /// Floating-point operations of one vertex: two per multiply–add, one per output element elsewhere,
    /// none for movement.
    pub fn flops(&self, operands: &[OperandType]) -> u64 {
        match self {
            Kernel::Unary(_)
            | Kernel::Smooth(_)
            | Kernel::Binary(_)
            | Kernel::Compare(_)
            | Kernel::Select => operands.last().map_or(0, OperandType::num_elements),
            Kernel::Map(attrs) => map::flops(attrs, operands),
            Kernel::Reduce { .. } => operands[0].num_elements(),
            Kernel::MatMul { batch, contract, .. } => matmul::flops(batch, contract, operands),
            Kernel::RowDot => operands[0].num_elements().saturating_mul(2),
            Kernel::SparseMatMul => sparse::flops(operands),
            Kernel::Conv(_) => conv::flops(operands),
            Kernel::Codelet(codelet) => codelet.flops(operands),
            Kernel::ReduceWindow { attrs, .. } => window::flops(attrs, operands),
            Kernel::Scan(_) => operands[operands.len() - 1].num_elements(),
            Kernel::Scatter(attrs) if attrs.combine.is_some() => operands[operands.len() - 2].num_elements(),
            _ => 0,
        }
    }

    /// What its code is known by: vertices of one name share it. Every chain of functions is code of its own.
    pub fn code_name(&self) -> String {
        match self {
            Kernel::Map(attrs) => format!("map {:?}", attrs.steps),
            _ => self.name(),
        }
    }

    /// Operands that are loaded 128 bits at a time, which only the interleaved region gives in a cycle: what the matrix
    /// unit multiplies by (hardware.md section 2, coefficient load: ld128putcs).
    pub fn wide_operands(&self) -> &'static [usize] {
        match self {
            Kernel::MatMul { .. } | Kernel::Conv(_) => &[1],
            _ => &[],
        }
    }

    /// Pairs of operands that are accessed in one cycle and so lie in different memory elements: the matrix unit loads
    /// inputs while it stores results (hardware.md section 2: a store in the cycle of a load, ld2xst64).
    pub fn apart_operands(&self) -> &'static [(usize, usize)] {
        match self {
            Kernel::MatMul { .. } | Kernel::Conv(_) => &[(0, 2)],
            _ => &[],
        }
    }

    /// Bytes of code that a tile needs to run this kernel, shared by all its vertices of that [`Kernel::code_name`].
    ///
    /// Assumption: 4 bytes an instruction (hardware.md section 2: 32-bit instructions), and 64 to 384 of
    /// them by how many loops and cases a kernel has.
    pub fn code_bytes(&self) -> u64 {
        match self {
            Kernel::MatMul { .. } | Kernel::SparseMatMul | Kernel::Conv(_) => 1536,
            Kernel::Count => 64,
            Kernel::Reduce { .. }
            | Kernel::ReduceWindow { .. }
            | Kernel::WindowGrad { .. }
            | Kernel::Gather { .. }
            | Kernel::Scatter(_)
            | Kernel::Sort { .. }
            | Kernel::Merge { .. }
            | Kernel::Transpose { .. } => 640,
            Kernel::Broadcast { .. } | Kernel::Cast | Kernel::Select => 384,
            // The loop's frame, and a few instructions and their remainder cases a step.
            Kernel::Map(attrs) => 256 + 64 * attrs.steps.len() as u64,
            _ => 256,
        }
    }
}

/// Convenience for tests and callers that have blocks: operand types of blocks.
pub fn operand_types<'a>(dtypes: &[DType], lens: &'a [SmallVec<[u64; 4]>]) -> SmallVec<[OperandType<'a>; 4]> {
    dtypes.iter().zip(lens).map(|(&dtype, lens)| OperandType { dtype, lens }).collect()
}

/// A vertex's operand as a kernel's `run` sees it; here so that the module's users need one import.
impl Arg {
    pub fn new(block: Block, shape: &[u64], data: Tensor) -> Self {
        debug_assert_eq!(block.lens().as_slice(), &**data.shape());
        Arg { block, shape: SmallVec::from_slice(shape), data }
    }
}
