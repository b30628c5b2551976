//! Loops over memory that know nothing of graphs, views or plans: pointers and counts in, numbers out. The
//! only code with instructions of its own per [`Isa`](crate::isa::Isa).

pub mod bytes;
pub mod conv;
pub mod elementwise;
pub mod finish;
pub mod gemm;
pub mod half;
pub mod kernel_gradient;
pub mod lanes;
pub mod math;
pub mod norm;
pub mod number;
pub mod random;
pub mod row_gradients;
pub mod rows;
pub mod smooth;
mod softmax;
pub mod waves;
pub mod winograd;
