//! The type of a value: an element type and dimensions that are numbers or names. Not here:
//! arithmetic on dimensions (`dims.rs`).

use crate::errors;
use pando_base::{DType, Result, Shape};
use smallvec::SmallVec;
use std::fmt;
use std::sync::Arc;

/// A dimension's size: a number, or a name for a number that is not known yet. Names are global to a
/// module: the same name means the same number in every function.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dim {
    Known(u64),
    Named(Arc<str>),
}

pub type Dims = SmallVec<[Dim; 6]>;

impl Dim {
    pub fn named(name: &str) -> Dim {
        Dim::Named(name.into())
    }

    pub fn known(&self) -> Option<u64> {
        match self {
            Dim::Known(size) => Some(*size),
            Dim::Named(_) => None,
        }
    }
}

impl From<u64> for Dim {
    fn from(size: u64) -> Dim {
        Dim::Known(size)
    }
}

impl From<&str> for Dim {
    fn from(name: &str) -> Dim {
        Dim::named(name)
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Dim::Known(size) => write!(f, "{size}"),
            Dim::Named(name) => f.write_str(name),
        }
    }
}

/// Known sizes as dimensions.
pub fn known_dims(sizes: &[u64]) -> Dims {
    sizes.iter().map(|&size| Dim::Known(size)).collect()
}

/// The type of a value. Text: `f32[N,3]`, a scalar `f32[]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TensorType {
    pub dtype: DType,
    pub dims: Dims,
}

impl TensorType {
    pub fn new(dtype: DType, dims: impl IntoIterator<Item = impl Into<Dim>>) -> Self {
        TensorType { dtype, dims: dims.into_iter().map(Into::into).collect() }
    }

    pub fn scalar(dtype: DType) -> Self {
        TensorType { dtype, dims: Dims::new() }
    }

    pub fn rank(&self) -> usize {
        self.dims.len()
    }

    /// The shape if every dimension is a number.
    pub fn shape(&self) -> Option<Shape> {
        self.dims.iter().map(Dim::known).collect::<Option<Vec<u64>>>().map(Shape::from)
    }

    /// The shape, or an error that lists the names still without a number.
    pub fn require_shape(&self) -> Result<Shape> {
        self.shape().ok_or_else(|| errors::unknown_dims(self))
    }

    /// The same dimensions with another element type.
    pub fn with_dtype(&self, dtype: DType) -> Self {
        TensorType { dtype, dims: self.dims.clone() }
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dims: Vec<String> = self.dims.iter().map(Dim::to_string).collect();
        write!(f, "{}[{}]", self.dtype, dims.join(","))
    }
}
