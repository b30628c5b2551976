//! What a plan runs: one file per kind of step. A step reads views, writes dense views and says nothing of
//! where they come from.

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
pub mod rows;
pub mod windows;

use crate::exec::Run;
use crate::view::View;
use pando_base::Result;

pub struct Step {
    pub kind: Kind,
    pub inputs: Vec<View>,
    pub outputs: Vec<View>,
    /// Bytes that only this step uses while it runs.
    pub scratch: Option<View>,
}

pub enum Kind {
    Elementwise(program::Program),
    Movement(movement::Movement),
    Gemm(gemm::Gemm),
    Packing(packing::Packing),
    Conv(conv::Conv),
    Winograd(conv::winograd::Winograd),
    Pool(conv::pool::Pool),
    Pass(conv::finish::Pass),
    IntegerDot(integers::IntegerDot),
    Rows(rows::Rows),
    Reduction(reduce::Reduction, pando_base::ReduceFn),
    Order(order::Order),
    Depthwise(depthwise::Depthwise),
    Control(control::Control),
    Fallback(fallback::Fallback),
}

impl Step {
    pub fn run(&self, run: &mut Run) -> Result<()> {
        match &self.kind {
            Kind::Elementwise(program) => elementwise::run(program, self, run),
            Kind::Movement(movement) => movement::run(movement, self, run),
            Kind::Gemm(gemm) => gemm::run(gemm, self, run),
            Kind::Packing(packing) => packing::run(packing, self, run),
            Kind::Conv(conv) => conv::run(conv, self, run),
            Kind::Winograd(winograd) => conv::winograd::run(winograd, self, run),
            Kind::Pass(pass) => conv::finish::run(pass, self, run),
            Kind::Pool(pool) => conv::pool::run(pool, self, run),
            Kind::Depthwise(depthwise) => depthwise::run(depthwise, self, run),
            Kind::IntegerDot(dot) => integers::run(dot, self, run),
            Kind::Rows(rows) => rows::run(rows, self, run),
            Kind::Reduction(reduction, func) => reduce::run(reduction, *func, self, run),
            Kind::Order(order) => order::run(order, self, run),
            Kind::Control(control) => return control::run(control, self, run),
            Kind::Fallback(fallback) => return fallback::run(fallback, self, run),
        }
        Ok(())
    }

    /// What a profile calls it.
    pub fn name(&self) -> &'static str {
        match &self.kind {
            Kind::Elementwise(_) => "elementwise",
            Kind::Movement(movement) => movement.name(),
            Kind::Gemm(gemm) if matches!(gemm.right, gemm::Right::Windows(_)) => "conv",
            Kind::Gemm(_) => "gemm",
            Kind::Packing(_) => "packing",
            Kind::Conv(conv) => conv.name(),
            Kind::Winograd(_) => "winograd",
            Kind::Pool(_) => "pool",
            Kind::Pass(_) => "elementwise",
            Kind::Depthwise(_) => "depthwise",
            Kind::IntegerDot(_) => "integer_dot",
            Kind::Rows(rows) => rows.name,
            Kind::Reduction(..) => "reduce",
            Kind::Order(order) => order.name(),
            Kind::Control(control::Control::Images { .. }) => "images",
            Kind::Control(_) => "control",
            Kind::Fallback(fallback) => fallback.name,
        }
    }
}

impl Kind {
    /// Whether elementwise work on the result can be done by the step itself.
    pub fn takes_epilogue(&self, output: pando_base::DType) -> bool {
        match self {
            // The epilogue overwrites the results.
            Kind::Conv(conv) => conv.epilogue.is_none() && output.size_bytes() == 4,
            Kind::Winograd(winograd) => winograd.epilogue.is_none() && output.size_bytes() == 4,
            Kind::Gemm(gemm) => gemm.epilogue.is_none(),
            Kind::Depthwise(depthwise) => depthwise.epilogue.is_none(),
            _ => false,
        }
    }

    /// With a program whose first input is the step's result.
    pub fn with_epilogue(self, program: program::Program) -> Kind {
        let epilogue = Some(program);
        match self {
            Kind::Gemm(gemm) => Kind::Gemm(gemm::Gemm { epilogue, ..gemm }),
            Kind::Depthwise(depthwise) => Kind::Depthwise(depthwise::Depthwise { epilogue, ..depthwise }),
            Kind::Conv(conv) => Kind::Conv(conv::Conv { epilogue, ..conv }),
            Kind::Winograd(winograd) => Kind::Winograd(conv::winograd::Winograd { epilogue, ..winograd }),
            _ => unreachable!("only steps that take epilogues are asked"),
        }
    }
}
