//! Goal: what this crate appends to a graph computes what PyTorch computes. Method: values from PyTorch
//! (`tests/golden/make.py`), from the reference evaluator and from the engine.

mod common;
mod losses;
mod optimizers;
mod parts;
mod random;
