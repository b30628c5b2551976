//! Sessions: programs compiled for this computer that share named state. A program reads state and inputs, and gives
//! new state and outputs ([`Program`]); a session runs it, keeps the state, and saves and loads it.
//!
//! A line through points, trained:
//!
//! ```
//! use pando_base::{DType, Tensor};
//! use pando_graph::TensorType;
//! use pando_runtime::{CompileOptions, Session};
//! use pando_transform::loss::{self, Reduction};
//! use pando_transform::train::{self, Forward, Network, Training};
//! use pando_transform::Optimizer;
//!
//! # fn main() -> pando_base::Result<()> {
//! let points = TensorType::new(DType::F32, ["N"]); // as many as come
//! let network = Network {
//!     weights: vec![("slope".into(), Tensor::scalar(DType::F32, 0.0))],
//!     inputs: vec![("x".into(), points.clone()), ("y".into(), points)],
//!     ..Network::default()
//! };
//! let training = Training::new(Optimizer::named("sgd", &[("lr", 0.1)])?);
//! let job = train::job(&network, &training, |b, at| {
//!     let (x, y) = (at.get("x")?, at.get("y")?);
//!     let slope = b.broadcast(at.get("slope")?, b.ty(x).dims.clone(), &[])?;
//!     let line = b.mul(slope, x)?;
//!     Ok(Forward::new(loss::mse(b, line, y, Reduction::Mean)?))
//! })?;
//!
//! let mut session = Session::of_job(job, &CompileOptions::default())?;
//! let x = Tensor::from_f64(DType::F32, [3], &[1.0, 2.0, 3.0]);
//! let y = Tensor::from_f64(DType::F32, [3], &[2.0, 4.0, 6.0]);
//! for _ in 0..50 {
//!     session.train(&[&[(&x).into(), (&y).into()]])?;
//! }
//! assert!((session.state("slope")?.get_f64(0) - 2.0).abs() < 1e-5);
//! # Ok(())
//! # }
//! ```
//!
//! `examples/digits.rs` is a whole script: batches, accuracy, a falling learning rate, checkpoints.
//!
//! Knows the engine (`engine.rs` is the only place that does) and files; knows nothing of what programs mean.

mod checkpoint;
mod engine;
pub mod errors;
mod session;
mod state;

pub use pando_cpu::{CompileOptions, Input, MatmulPrecision};
pub use pando_transform::Program;
pub use session::Session;
