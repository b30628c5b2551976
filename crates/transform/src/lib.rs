//! From a graph to the graph that trains it: losses, optimizers, accumulation of gradients, clipping, loss scaling,
//! random numbers, and the programs of a training job put together from them (`train/`). All of it is functions
//! over a `pando_graph::Builder`; what comes out are modules that any engine runs.
//!
//! Values are those of PyTorch 2.15, by whose results the tests judge. Not here: derivatives
//! (`pando_graph::Builder::gradients`), and state between runs (`pando-runtime`).

pub mod accumulate;
pub mod clip;
pub mod errors;
mod formula;
pub mod loss;
pub mod loss_scaling;
pub mod optimizer;
mod program;
pub mod random;
mod settings;
pub mod train;

pub use accumulate::{Accumulation, GradientReduction, MeanStrategy};
pub use optimizer::Optimizer;
pub use program::Program;
