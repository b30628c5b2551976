//! What a name stands for while a model is imported.

use crate::elem::Elem;
use crate::tensors::Text;
use pando_base::{DType, Result, Tensor};
use pando_graph::{Builder, Dim, TensorType, ValueId};
use std::rc::Rc;

#[derive(Clone, Debug)]
pub enum Value {
    Tensor(TensorValue),
    /// A sequence: its length is known, its elements are values like others.
    List(Rc<Vec<Value>>),
    /// An optional without an element; one with an element is the element itself.
    Absent,
    /// A tensor of strings, known.
    Text(Rc<Text>),
}

#[derive(Clone, Debug)]
pub struct TensorValue {
    pub id: ValueId,
    pub elem: Elem,
    /// The elements of a scalar or vector of integers, as far as they are sizes of other values.
    pub sizes: Option<Rc<Vec<Size>>>,
}

/// An integer that is known or the number behind a named dimension.
#[derive(Clone, Debug, PartialEq)]
pub enum Size {
    Int(i64),
    Named(Dim),
}

impl Size {
    pub fn of(dim: &Dim) -> Size {
        match dim.known() {
            Some(size) => Size::Int(size as i64),
            None => Size::Named(dim.clone()),
        }
    }

    pub fn int(&self) -> Option<i64> {
        match self {
            Size::Int(value) => Some(*value),
            Size::Named(_) => None,
        }
    }

    /// As a dimension; `None` if negative.
    pub fn dim(&self) -> Option<Dim> {
        match self {
            Size::Int(value) => u64::try_from(*value).ok().map(Dim::Known),
            Size::Named(dim) => Some(dim.clone()),
        }
    }
}

impl TensorValue {
    pub fn new(id: ValueId, elem: Elem) -> Self {
        TensorValue { id, elem, sizes: None }
    }
}

impl Value {
    /// A tensor with the element type that its graph type stands for.
    pub fn tensor(b: &Builder, id: ValueId) -> Value {
        Value::Tensor(TensorValue::new(id, Elem::of(b.ty(id).dtype)))
    }

    pub fn typed(id: ValueId, elem: Elem) -> Value {
        Value::Tensor(TensorValue::new(id, elem))
    }

    pub fn kind(&self) -> &'static str {
        match self {
            Value::Tensor(_) => "a tensor",
            Value::List(_) => "a sequence",
            Value::Absent => "an optional without element",
            Value::Text(_) => "a tensor of strings",
        }
    }
}

/// The sizes as a vector (or a scalar) of the graph: a named one is counted, by summing as many ones.
pub fn sizes_value(b: &mut Builder, sizes: &[Size], scalar: bool) -> Result<ValueId> {
    if let Some(known) = sizes.iter().map(Size::int).collect::<Option<Vec<i64>>>() {
        let values: Vec<i128> = known.into_iter().map(Into::into).collect();
        let shape = if scalar { vec![] } else { vec![values.len() as u64] };
        return Ok(b.constant(Tensor::from_ints(DType::I64, shape, &values)));
    }
    let mut parts = Vec::new();
    for size in sizes {
        let part = match size {
            Size::Int(value) => b.constant(Tensor::from_ints(DType::I64, [], &[(*value).into()])),
            Size::Named(dim) => {
                let ones = b.splat(&TensorType::new(DType::I64, [dim.clone()]), 1.0)?;
                b.reduce(pando_base::ReduceFn::Sum, ones, &[0])?
            }
        };
        parts.push(if scalar { part } else { b.reshape(part, [1u64])? });
    }
    if scalar { Ok(parts[0]) } else { b.concat(&parts, 0) }
}
