//! The nodes, initializers and names of a model being written.

use crate::elem::Elem;
use crate::errors;
use crate::proto::{
    AttributeProto, AttributeType, Dimension, DimensionValue, GraphProto, NodeProto, TensorProto,
    TensorShapeProto, TensorTypeProto, TypeProto, TypeValue, ValueInfoProto,
};
use bytes::Bytes;
use pando_base::{DType, Result, Tensor};
use pando_graph::TensorType;
use rustc_hash::{FxHashMap, FxHashSet};

#[derive(Default)]
pub struct Writer {
    /// Of the graph or subgraph being written.
    pub nodes: Vec<NodeProto>,
    /// Of the whole model: subgraphs see them too.
    pub initializers: Vec<TensorProto>,
    /// The newest operator needs this version.
    pub opset: i64,
    taken: FxHashSet<String>,
    count: u64,
    /// Constants of the module by name, small ones by type and bits.
    named_constants: FxHashMap<String, String>,
    small_constants: FxHashMap<(DType, Vec<u64>, Vec<u8>), String>,
}

impl Writer {
    /// A name for a value that users see: its own if that is free.
    pub fn public_name(&mut self, own: &str, otherwise: &str) -> String {
        let wanted = if own.is_empty() { otherwise } else { own };
        let mut name = wanted.to_string();
        while !self.taken.insert(name.clone()) {
            name.push('_');
        }
        name
    }

    pub fn fresh(&mut self) -> String {
        loop {
            self.count += 1;
            let name = format!("v{}", self.count);
            if self.taken.insert(name.clone()) {
                return name;
            }
        }
    }

    pub fn node(&mut self, op: &str, inputs: &[&str]) -> String {
        self.with(op, inputs, vec![])
    }

    pub fn with(&mut self, op: &str, inputs: &[&str], attributes: Vec<AttributeProto>) -> String {
        self.many(op, inputs, 1, attributes).swap_remove(0)
    }

    pub fn many(
        &mut self,
        op: &str,
        inputs: &[&str],
        outputs: usize,
        attributes: Vec<AttributeProto>,
    ) -> Vec<String> {
        let outputs: Vec<String> = (0..outputs).map(|_| self.fresh()).collect();
        self.push(op, inputs, outputs.clone(), attributes);
        outputs
    }

    /// A node whose result has this name.
    pub fn named(&mut self, op: &str, inputs: &[&str], output: &str) {
        self.push(op, inputs, vec![output.into()], vec![]);
    }

    fn push(&mut self, op: &str, inputs: &[&str], output: Vec<String>, attribute: Vec<AttributeProto>) {
        // Missing operands at the end are left out.
        let last = inputs.iter().rposition(|name| !name.is_empty()).map_or(0, |at| at + 1);
        self.nodes.push(NodeProto {
            input: inputs[..last].iter().map(|name| name.to_string()).collect(),
            output,
            name: format!("{op}_{}", self.nodes.len()),
            op_type: op.into(),
            attribute,
            domain: String::new(),
            overload: String::new(),
        });
    }

    /// A tensor as an initializer; constants with a name are written once, small ones shared.
    pub fn constant(&mut self, name: &str, tensor: impl FnOnce() -> Tensor) -> Result<String> {
        if let Some(known) = self.named_constants.get(name) {
            return Ok(known.clone());
        }
        let tensor = tensor();
        let elem = Elem::of(tensor.dtype());
        if matches!(tensor.dtype(), DType::F8(..)) {
            return Err(errors::no_onnx_type(tensor.dtype()));
        }
        let shape: Vec<u64> = tensor.shape().to_vec();
        let key = (tensor.dtype(), shape.clone(), tensor.bytes().to_vec());
        let small = tensor.num_elements() <= 64;
        let written = match self.small_constants.get(&key) {
            Some(known) if small => known.clone(),
            _ => {
                let own = if name.is_empty() { self.fresh() } else { self.public_name(name, name) };
                self.initializers.push(TensorProto {
                    dims: shape.iter().map(|&size| size as i64).collect(),
                    data_type: elem.0,
                    name: own.clone(),
                    raw_data: Some(Bytes::copy_from_slice(tensor.bytes())),
                    ..TensorProto::default()
                });
                own
            }
        };
        if small {
            self.small_constants.insert(key, written.clone());
        }
        if !name.is_empty() {
            self.named_constants.insert(name.into(), written.clone());
        }
        Ok(written)
    }

    fn small(&mut self, tensor: Tensor) -> String {
        self.constant("", || tensor).expect("the writer's own constants have ONNX's types")
    }

    /// A vector of int64.
    pub fn ints(&mut self, values: &[i64]) -> String {
        let values: Vec<i128> = values.iter().map(|&value| value.into()).collect();
        self.small(Tensor::from_ints(DType::I64, [values.len() as u64], &values))
    }

    /// A scalar.
    pub fn number(&mut self, dtype: DType, value: f64) -> String {
        self.small(match dtype.is_float() {
            true => Tensor::from_f64(dtype, [], &[value]),
            false => Tensor::from_ints(dtype, [], &[value as i128]),
        })
    }

    pub fn cast(&mut self, x: &str, dtype: DType) -> String {
        self.with("Cast", &[x], vec![int("to", Elem::of(dtype).0.into())])
    }

    pub fn reshape(&mut self, x: &str, shape: &[u64]) -> String {
        let sizes: Vec<i64> = shape.iter().map(|&size| size as i64).collect();
        let sizes = self.ints(&sizes);
        self.with("Reshape", &[x, &sizes], vec![int("allowzero", 1)])
    }

    pub fn transpose(&mut self, x: &str, perm: &[usize]) -> String {
        let perm: Vec<i64> = perm.iter().map(|&axis| axis as i64).collect();
        self.with("Transpose", &[x], vec![ints("perm", &perm)])
    }

    /// `x` in another type for an operator that lacks its own, and back.
    pub fn through(
        &mut self,
        x: &str,
        own: DType,
        other: DType,
        f: impl FnOnce(&mut Writer, &str) -> String,
    ) -> String {
        if own == other {
            return f(self, x);
        }
        let inside = self.cast(x, other);
        let result = f(self, &inside);
        self.cast(&result, own)
    }
}

fn attribute(name: &str, ty: AttributeType) -> AttributeProto {
    AttributeProto { name: name.into(), r#type: ty as i32, ..AttributeProto::default() }
}

pub fn int(name: &str, i: i64) -> AttributeProto {
    AttributeProto { i, ..attribute(name, AttributeType::Int) }
}

pub fn ints(name: &str, ints: &[i64]) -> AttributeProto {
    AttributeProto { ints: ints.to_vec(), ..attribute(name, AttributeType::Ints) }
}

pub fn string(name: &str, s: &str) -> AttributeProto {
    AttributeProto { s: Bytes::copy_from_slice(s.as_bytes()), ..attribute(name, AttributeType::String) }
}

pub fn graph(name: &str, graph: GraphProto) -> AttributeProto {
    AttributeProto { g: Some(Box::new(graph)), ..attribute(name, AttributeType::Graph) }
}

/// The name and type of an input or output.
pub fn info(name: &str, ty: &TensorType) -> Result<ValueInfoProto> {
    if matches!(ty.dtype, DType::F8(..)) {
        return Err(errors::no_onnx_type(ty.dtype));
    }
    let dim = |&size: &u64| Dimension { value: Some(DimensionValue::DimValue(size as i64)) };
    let shape = TensorShapeProto { dim: ty.require_shape()?.iter().map(dim).collect() };
    let tensor = TensorTypeProto { elem_type: Elem::of(ty.dtype).0, shape: Some(shape) };
    let r#type = Some(TypeProto { value: Some(TypeValue::Tensor(tensor)) });
    Ok(ValueInfoProto { name: name.into(), r#type })
}
