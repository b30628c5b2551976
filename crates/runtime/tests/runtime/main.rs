//! Goal: sessions train as PyTorch does, checkpoints resume bit for bit and survive whatever interrupts them, and
//! mistakes change nothing. Method: a small network with weights and data made of integers; losses from PyTorch
//! (`tests/golden/make.py`).

mod checkpoints;
#[allow(dead_code)]
#[path = "../../examples/digits.rs"]
mod digits;
mod network;
mod random_programs;
mod sessions;
mod training;
