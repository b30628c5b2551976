//! Small models, built message by message, and running them.
#![allow(dead_code, reason = "each test program uses a part")]

use bytes::Bytes;
use pando_base::{DType, Result, Tensor};
use pando_onnx::elem::Elem;
use pando_onnx::proto::*;
use pando_onnx::{Imported, Options, parse};
use prost::Message;

pub fn node(op: &str, inputs: &[&str], outputs: &[&str], attributes: Vec<AttributeProto>) -> NodeProto {
    let strings = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
    let (domain, op) = op.rsplit_once(':').unwrap_or(("", op));
    NodeProto {
        input: strings(inputs),
        output: strings(outputs),
        name: format!("{op}_{}", outputs.first().unwrap_or(&"")),
        op_type: op.into(),
        attribute: attributes,
        domain: domain.into(),
        overload: String::new(),
    }
}

fn attribute(name: &str, ty: AttributeType) -> AttributeProto {
    AttributeProto { name: name.into(), r#type: ty as i32, ..AttributeProto::default() }
}

pub fn int(name: &str, i: i64) -> AttributeProto {
    AttributeProto { i, ..attribute(name, AttributeType::Int) }
}

pub fn float(name: &str, f: f32) -> AttributeProto {
    AttributeProto { f, ..attribute(name, AttributeType::Float) }
}

pub fn ints(name: &str, ints: &[i64]) -> AttributeProto {
    AttributeProto { ints: ints.to_vec(), ..attribute(name, AttributeType::Ints) }
}

pub fn string(name: &str, s: &str) -> AttributeProto {
    AttributeProto { s: Bytes::copy_from_slice(s.as_bytes()), ..attribute(name, AttributeType::String) }
}

pub fn subgraph(name: &str, g: GraphProto) -> AttributeProto {
    AttributeProto { g: Some(Box::new(g)), ..attribute(name, AttributeType::Graph) }
}

pub fn reference(name: &str, to: &str, ty: AttributeType) -> AttributeProto {
    AttributeProto { ref_attr_name: to.into(), ..attribute(name, ty) }
}

/// `name: type[dims]`, where a dimension is a number or a name: `x: f32[N,3]`.
pub fn info(text: &str) -> ValueInfoProto {
    let (name, ty) = text.split_once(": ").unwrap();
    let (dtype, dims) = ty.trim_end_matches(']').split_once('[').unwrap();
    let dim = |text: &str| Dimension {
        value: Some(match text.parse() {
            Ok(size) => DimensionValue::DimValue(size),
            Err(_) => DimensionValue::DimParam(text.into()),
        }),
    };
    let dim = dims.split(',').filter(|text| !text.is_empty()).map(dim).collect();
    let elem_type = Elem::of(DType::from_name(dtype).unwrap()).0;
    let ty = TensorTypeProto { elem_type, shape: Some(TensorShapeProto { dim }) };
    ValueInfoProto { name: name.into(), r#type: Some(TypeProto { value: Some(TypeValue::Tensor(ty)) }) }
}

pub fn named(name: &str) -> ValueInfoProto {
    ValueInfoProto { name: name.into(), r#type: None }
}

pub fn weight(name: &str, tensor: &Tensor) -> TensorProto {
    TensorProto {
        name: name.into(),
        dims: tensor.shape().iter().map(|&size| size as i64).collect(),
        data_type: Elem::of(tensor.dtype()).0,
        raw_data: Some(Bytes::copy_from_slice(tensor.bytes())),
        ..TensorProto::default()
    }
}

pub fn f32s(shape: &[u64], values: &[f64]) -> Tensor {
    Tensor::from_f64(DType::F32, shape.to_vec(), values)
}

pub fn i64s(shape: &[u64], values: &[i128]) -> Tensor {
    Tensor::from_ints(DType::I64, shape.to_vec(), values)
}

pub fn graph(
    inputs: &[&str],
    outputs: &[&str],
    weights: &[(&str, Tensor)],
    node: Vec<NodeProto>,
) -> GraphProto {
    GraphProto {
        node,
        name: "g".into(),
        initializer: weights.iter().map(|(name, tensor)| weight(name, tensor)).collect(),
        input: inputs.iter().map(|text| if text.contains(": ") { info(text) } else { named(text) }).collect(),
        output: outputs.iter().map(|name| named(name)).collect(),
        sparse_initializer: vec![],
    }
}

pub fn model_of(graph: GraphProto) -> ModelProto {
    let opset = |domain: &str, version| OperatorSetIdProto { domain: domain.into(), version };
    ModelProto {
        ir_version: 10,
        producer_name: "test".into(),
        graph: Some(graph),
        opset_import: vec![opset("", 23), opset("com.microsoft", 1), opset("own", 1), opset("ai.onnx.ml", 4)],
        functions: vec![],
    }
}

pub fn model(
    inputs: &[&str],
    outputs: &[&str],
    weights: &[(&str, Tensor)],
    nodes: Vec<NodeProto>,
) -> ModelProto {
    model_of(graph(inputs, outputs, weights, nodes))
}

pub fn import(model: &ModelProto) -> Result<Imported> {
    parse(model.encode_to_vec().into(), "m.onnx", None, &Options::default())
}

pub fn run(model: &ModelProto, args: &[Tensor]) -> Vec<Tensor> {
    let imported = import(model).unwrap();
    pando_graph::validate(&imported.module).unwrap();
    pando_graph::eval(&imported.module, imported.module.main().unwrap(), args).unwrap()
}

pub fn error(model: &ModelProto) -> String {
    import(model).expect_err("the model is wrong").to_string()
}

/// Numbers that repeat from run to run (xorshift64*).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 11) % n.max(1)
    }

    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len() as u64) as usize]
    }
}
