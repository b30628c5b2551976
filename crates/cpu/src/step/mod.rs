//! What a plan runs: one file per kind of step. A step reads views, writes dense views and says nothing of
//! where they come from.

pub mod attention;
pub mod bytes;
pub mod control;
pub mod conv;
pub mod depthwise;
pub mod elementwise;
pub mod fallback;
pub mod gemm;
pub mod integers;
pub mod movement;
pub mod order;
pub mod packing;
pub mod program;
pub mod reduce;
pub mod row_gradients;
pub mod rows;
pub mod table;
pub mod windows;

use crate::exec::Run;
use crate::view::{BufferId, View};
use pando_base::Result;
use std::sync::Arc;

pub struct Step {
    /// What a user calls the operation.
    pub name: Arc<str>,
    pub kind: Kind,
    pub inputs: Vec<View>,
    pub outputs: Vec<View>,
    /// Bytes that only this step uses while it runs.
    pub scratch: Option<View>,
}

pub enum Kind {
    Elementwise(program::Program),
    /// Elementwise steps on the same elements: each may read what those before have made.
    Together(Vec<Step>),
    Movement(movement::Movement),
    Gemm(Box<gemm::Gemm>),
    Bytes(Box<bytes::Bytes>),
    Attention(Box<attention::Attention>),
    Packing(packing::Packing),
    Conv(conv::Conv),
    Winograd(conv::winograd::Winograd),
    UnitConv(Box<conv::unit::UnitConv>),
    Interleave(conv::interleave::Interleave),
    Norm(conv::norm::Norm),
    PoolGradient(conv::pool_gradient::PoolGradient),
    KernelGradient(conv::kernel_gradient::KernelGradient),
    Pool(conv::pool::Pool),
    Pass(conv::finish::Pass),
    Shuffle(conv::shuffle::Shuffle),
    IntegerDot(integers::IntegerDot),
    Rows(rows::Rows),
    /// Bytes by bytes.
    Table,
    RowGradient(Box<row_gradients::RowGradient>),
    Reduction(reduce::Reduction, pando_base::ReduceFn),
    Order(order::Order),
    Depthwise(depthwise::Depthwise),
    Control(control::Control),
    Fallback(fallback::Fallback),
}

impl Step {
    pub fn run(&self, run: &mut Run) -> Result<()> {
        match &self.kind {
            Kind::Elementwise(_) => elementwise::run(std::slice::from_ref(self), run),
            Kind::Together(parts) => elementwise::run(parts, run),
            Kind::Movement(movement) => movement::run(movement, self, run),
            Kind::Gemm(gemm) => gemm::run(gemm, self, run),
            Kind::Bytes(bytes) => bytes::run(bytes, self, run),
            Kind::Attention(attention) => attention::run(attention, self, run),
            Kind::Packing(packing) => packing::run(packing, self, run),
            Kind::Conv(conv) => conv::run(conv, self, run),
            Kind::Winograd(winograd) => conv::winograd::run(winograd, self, run),
            Kind::UnitConv(conv) => conv::unit::run(conv, self, run),
            Kind::Interleave(interleave) => conv::interleave::run(interleave, self, run),
            Kind::PoolGradient(gradient) => conv::pool_gradient::run(gradient, self, run),
            Kind::Norm(norm) => conv::norm::run(norm, self, run),
            Kind::KernelGradient(gradient) => conv::kernel_gradient::run(gradient, self, run),
            Kind::Pass(pass) => conv::finish::run(pass, self, run),
            Kind::Shuffle(shuffle) => conv::shuffle::run(shuffle, self, run),
            Kind::Pool(pool) => conv::pool::run(pool, self, run),
            Kind::Depthwise(depthwise) => depthwise::run(depthwise, self, run),
            Kind::IntegerDot(dot) => integers::run(dot, self, run),
            Kind::Rows(rows) => rows::run(rows, self, run),
            Kind::Table => table::run(self, run),
            Kind::RowGradient(gradient) => row_gradients::run(gradient, self, run),
            Kind::Reduction(reduction, func) => reduce::run(reduction, *func, self, run),
            Kind::Order(order) => order::run(order, self, run),
            Kind::Control(control) => return control::run(control, self, run),
            Kind::Fallback(fallback) => return fallback::run(fallback, self, run),
        }
        Ok(())
    }

    /// The operand that its first result may lie over, once nobody else needs it: it is read row by row.
    pub fn operand_to_overwrite(&self) -> Option<BufferId> {
        let operand = match &self.kind {
            Kind::Rows(_) | Kind::RowGradient(_) => &self.inputs[0],
            _ => return None,
        };
        let whole =
            operand.is_dense() && operand.offset == 0 && operand.num_bytes() == self.outputs[0].num_bytes();
        let once = self.inputs.iter().filter(|view| view.buffer == operand.buffer).count() == 1;
        (whole && once).then_some(operand.buffer)
    }

    /// What a profile calls this kind of step.
    pub fn kind_name(&self) -> &'static str {
        match &self.kind {
            Kind::Elementwise(_) | Kind::Together(_) => "elementwise",
            Kind::Movement(movement) => movement.name(),
            Kind::Gemm(gemm) if matches!(gemm.right, gemm::Right::Windows(_)) => "conv",
            Kind::Gemm(_) => "gemm",
            Kind::Bytes(bytes) => bytes.name(),
            Kind::Attention(_) => "attention",
            Kind::Packing(_) => "packing",
            Kind::Conv(conv) => conv.name(),
            Kind::Winograd(_) => "winograd",
            Kind::UnitConv(_) => "conv on unit",
            Kind::Interleave(_) => "interleave",
            Kind::PoolGradient(_) => "pool gradient",
            Kind::Norm(norm) => norm.name(),
            Kind::KernelGradient(_) => "conv kernel gradient",
            Kind::Pool(_) => "pool",
            Kind::Pass(_) => "elementwise",
            Kind::Shuffle(_) => "shuffle",
            Kind::Depthwise(_) => "depthwise",
            Kind::IntegerDot(_) => "integer_dot",
            Kind::Rows(rows) => rows.name,
            Kind::Table => "table",
            Kind::RowGradient(gradient) => gradient.name,
            Kind::Reduction(..) => "reduce",
            Kind::Order(order) => order.name(),
            Kind::Control(control::Control::Images { .. }) => "images",
            Kind::Control(_) => "control",
            Kind::Fallback(fallback) => fallback.name,
        }
    }

    /// Multiplications and additions of products; 0 where bytes are the measure of the work.
    pub fn flops(&self) -> u64 {
        let multiply_adds = match &self.kind {
            Kind::Gemm(gemm) => [gemm.batch, gemm.m, gemm.n, gemm.k],
            Kind::Attention(attention) => {
                let (scores, mix) = (&attention.scores, &attention.mix);
                [scores.batch, scores.m, scores.n, scores.k + mix.n]
            }
            Kind::IntegerDot(dot) => [dot.batch, dot.m, dot.n, dot.k],
            Kind::Depthwise(d) => {
                [d.images * d.channels, d.windows.runs.len(), d.windows.run_length, d.windows.offsets.len()]
            }
            Kind::Conv(conv) => return 2 * conv.multiply_adds,
            Kind::Bytes(bytes) => return 2 * bytes.multiply_adds,
            Kind::Winograd(winograd) => return 2 * winograd.multiply_adds,
            Kind::UnitConv(conv) => return 2 * conv.multiply_adds,
            Kind::KernelGradient(gradient) => return 2 * gradient.multiply_adds,
            _ => return 0,
        };
        2 * multiply_adds.map(|size| size as u64).iter().product::<u64>()
    }

    /// What it must read and write: each element of its inputs and outputs once.
    pub fn bytes(&self) -> u64 {
        let distinct = |view: &View| {
            let axes = view.sizes.iter().zip(&view.strides).filter(|&(_, &stride)| stride != 0);
            axes.map(|(&size, _)| size as u64).product::<u64>() * view.dtype.size_bytes()
        };
        match (&self.kind, self.inputs.as_slice()) {
            // Of the table only the rows that are asked for.
            (Kind::Movement(movement::Movement::Gather { .. }), [_, indices]) => {
                distinct(indices) + 2 * distinct(&self.outputs[0])
            }
            (_, inputs) => inputs.iter().chain(&self.outputs).map(distinct).sum(),
        }
    }
}

impl Kind {
    /// Whether elementwise work on the result, up to values of a type, can be done by the step itself: results
    /// are in the order of their positions.
    pub fn takes_epilogue(&self, output: pando_base::DType) -> bool {
        match self {
            // The epilogue overwrites the results.
            Kind::Conv(conv) => conv.epilogue.is_none() && output.size_bytes() == 4,
            Kind::Winograd(winograd) => winograd.epilogue.is_none() && output.size_bytes() == 4,
            Kind::UnitConv(conv) => conv.epilogue.is_none() && output.size_bytes() == 4,
            Kind::Gemm(gemm) => gemm.target.is_none(),
            Kind::Attention(attention) => attention.mix.target.is_none(),
            Kind::Depthwise(_) => true,
            // The epilogue overwrites the results.
            Kind::RowGradient(gradient) => gradient.sums == 0 && output.size_bytes() == 4,
            _ => false,
        }
    }

    /// With a program whose first input is the step's result, after what the step does already.
    pub fn with_epilogue(mut self, program: program::Program) -> Kind {
        let epilogue = match &mut self {
            Kind::Gemm(gemm) => &mut gemm.epilogue,
            Kind::Attention(attention) => &mut attention.mix.epilogue,
            Kind::Depthwise(depthwise) => &mut depthwise.epilogue,
            Kind::RowGradient(gradient) => &mut gradient.epilogue,
            Kind::Conv(conv) => &mut conv.epilogue,
            Kind::Winograd(winograd) => &mut winograd.epilogue,
            Kind::UnitConv(conv) => &mut conv.epilogue,
            _ => unreachable!("only steps that take epilogues are asked"),
        };
        *epilogue = Some(match epilogue.take() {
            Some(first) => first.then(program),
            None => program,
        });
        self
    }
}
