//! What every other crate needs and no crate owns: ids and arenas, intervals, number formats,
//! shapes, dense tensors, scalar function names, random numbers, errors with a position, and the
//! tokenizer of the text formats. Knows nothing of graphs, tiles, machines or files.

pub mod dtype;
pub mod error;
pub mod float8;
pub mod id;
pub mod lexer;
pub mod random;
pub mod ranges;
pub mod scalar;
pub mod shape;
pub mod tensor;

pub use dtype::DType;
pub use error::{Error, Result};
pub use float8::F8Format;
pub use id::{Arena, Id, IdSet, SideTable};
pub use ranges::Ranges;
pub use scalar::{BinaryFn, CompareFn, ReduceFn, UnaryFn};
pub use shape::Shape;
pub use tensor::Tensor;
