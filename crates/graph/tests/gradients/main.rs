//! Goal: gradients are right. Method: against central differences in f64 without rounding, for random programs
//! (`random_programs.rs`) and for the standard composites (`composites.rs`); against values from PyTorch, for what
//! differences cannot tell (`values.rs`); as text, for what programs a gradient should be (`programs.rs`).

mod composites;
mod differences;
mod programs;
mod random_programs;
mod values;
