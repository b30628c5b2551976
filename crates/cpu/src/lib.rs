//! From a graph to numbers on this computer, fast: `graph → plan → run`.
//!
//! [`compile`] takes a module; [`Model::run`] takes tensors. A plan is made per set of input shapes and kept:
//! everything is flat (`flat.rs`), layout ops are views (`view.rs`), elementwise chains are one pass
//! (`step/program.rs`), products have epilogues, attention is one step (`step/attention.rs`), memory is one arena
//! (`plan/memory.rs`), constants are folded, packed once and held once (`constants.rs`). Kernels (`kernel/`)
//! exist for each level of instructions ([`Isa`]).
//!
//! State (`state.rs`) is updated in place: results that replace parameters are written where these are, and the order
//! of steps (`plan/schedule.rs`) uses up each gradient soon after it is made. What is prepared from state that a
//! model only reads, packed weights above all, is kept until the state changes. Loops update what they carry in
//! place, too.
//!
//! Backward passes over images have steps of their own (`plan/backward.rs`): gradients of kernels are sums over pixels
//! in registers, those of strided convolutions a convolution for each phase (`plan/phases.rs`), batch normalization
//! takes two passes over memory each way, and updates of a weight and its moments are one (`plan/together.rs`).
//!
//! Products with constant right sides are of words of 32 bits (`kernel/gemm/words.rs`): an f32, two bf16 or i16, four
//! bytes; weights of 16 bits stay so. A unit for products of tiles (AMX, `kernel/gemm/amx`) takes bf16 and bytes, and f32
//! as sums of bf16 where that is exact enough for the precision asked for, and faster: in products, and in convolutions
//! (`step/conv/unit.rs`). What quantised models subtract
//! before they multiply is subtracted from the product (`plan/quantised.rs`).
//!
//! Quantised networks (`plan/bytes`) stay bytes from layer to layer, channels last: convolutions and products of u8 and i8
//! with sums in i32 (`kernel/bytes`), scaled, bounded, added to and rounded before they leave the registers, whether the
//! model says so (QLinearConv) or has f32 operators between dequantising and quantising. What picks or moves elements
//! works on codes, functions of one byte are tables (`plan/tables.rs`). ResNet-50 takes 22 ms an image on the same core,
//! where the multiply-adds alone take 18.
//!
//! Convolutions of f32 images have a layout of their own: channels in blocks of 16, the lanes of a register
//! (`plan/layout.rs`), through chains of convolutions, pools, sums and activations, with copies only where
//! other ops come in. Kernels are direct (`kernel/conv.rs`), or Winograd's where that is faster and as exact
//! (`step/conv/winograd.rs`); scale, shift, residual and bounds are done before results leave the registers,
//! activations while they are in the L1 cache (`plan/blocked.rs`). Batches go through some images at a time, so
//! that intermediate results stay in the caches (`images.rs`). The floor is the multiply-add units, 118 GFLOP/s of
//! a core of Zen 4, where direct kernels reach 92 to 99 % (71 % for the three channels of a first layer); the
//! images of ResNet-50 take 64 ms each, where direct multiply-adds alone take 69 and Winograd's 56.
//!
//! Results are those of the graph's evaluator but for rounding: f32 arithmetic in f32. They do not depend
//! on the number of threads and are the same bits from run to run. One choice is measured, once in a process: whether a
//! unit for tiles is faster than vectors, for each number of parts ([`TileUnit::time_shares`]); without the unit
//! ([`CompileOptions::tile_unit`]) bits are the same on all computers of a level.

mod allocation;
mod constants;
mod errors;
mod exec;
mod flat;
mod gradients;
mod images;
mod isa;
mod kernel;
mod model;
mod options;
mod plan;
mod pool;
mod recognise;
mod state;
mod step;
mod variable;
mod view;

pub use isa::{Isa, TileUnit};
pub use model::{Input, Model, StepTime, compile, compile_owned, medians};
pub use options::{CompileOptions, MatmulPrecision};
pub use state::compile_stateful;
pub use variable::Variable;
