//! Goal: sessions train as PyTorch does, checkpoints resume bit for bit and survive whatever interrupts them, and
//! mistakes change nothing. Method: a small network with weights and data made of integers; losses from PyTorch
//! (`tests/golden/make.py`).

mod checkpoints;
mod network;
mod random_programs;
mod sessions;
mod training;
