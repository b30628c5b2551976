//! The programs of rows: templates of tile programs and graphs, and whole models by name.

use crate::errors;
use crate::series::Point;
use pando_base::{DType, Result, Shape};
use pando_graph::{Builder, ConstData, Dim, Dims, Module, TensorType, ValueId};

/// Templates; see `data/README.md`.
const PROGRAMS: [(&str, &str); 13] = [
    ("addition.tile", include_str!("../data/programs/addition.tile")),
    ("blur-pass.tile", include_str!("../data/programs/blur-pass.tile")),
    ("blur.tile", include_str!("../data/programs/blur.tile")),
    ("copy.tile", include_str!("../data/programs/copy.tile")),
    ("dense.graph", include_str!("../data/programs/dense.graph")),
    ("heart.tile", include_str!("../data/programs/heart.tile")),
    ("heat2d.tile", include_str!("../data/programs/heat2d.tile")),
    ("heat3d.tile", include_str!("../data/programs/heat3d.tile")),
    ("product-vertex.tile", include_str!("../data/programs/product-vertex.tile")),
    ("rotation.tile", include_str!("../data/programs/rotation.tile")),
    ("vector1.tile", include_str!("../data/programs/vector1.tile")),
    ("vector2.tile", include_str!("../data/programs/vector2.tile")),
    ("matvec.tile", include_str!("../../../tests/tile/matvec-10000x1000.tile")),
];

pub fn program(file: &str) -> Result<&'static str> {
    let found = PROGRAMS.iter().find(|(name, _)| *name == file);
    found.map(|(_, text)| *text).ok_or_else(|| errors::bad_file(file, "there is no such program"))
}

/// The model of a row: `encoder` is a BERT-like stack with the point's `layers`, `hidden`, `heads`, `batch` and
/// `sequence`, on embeddings, in f16.
pub fn model(name: &str, point: &Point) -> Result<Module> {
    let size = |parameter: &str| {
        point
            .number(parameter)
            .map(|size| size as u64)
            .ok_or_else(|| errors::bad_series("data", name, &format!("a point lacks '{parameter}'")))
    };
    match name {
        "encoder" => encoder(&Encoder {
            layers: size("layers")?,
            hidden: size("hidden")?,
            heads: size("heads")?,
            batch: size("batch")?,
            sequence: size("sequence")?,
        }),
        _ => Err(errors::bad_series("data", name, "there is no such model")),
    }
}

struct Encoder {
    layers: u64,
    hidden: u64,
    heads: u64,
    batch: u64,
    sequence: u64,
}

/// Words of BERT's vocabulary.
const VOCABULARY: u64 = 30_522;

fn weight(b: &mut Builder, name: &str, dims: &[u64]) -> ValueId {
    let data = ConstData::Normal { seed: 1, mean: 0.0, std: 0.02 };
    b.weight(name, DType::F16, Shape::new(dims), data)
}

fn dense(b: &mut Builder, name: &str, x: ValueId, inputs: u64, outputs: u64) -> Result<ValueId> {
    let w = weight(b, &format!("{name}.w"), &[inputs, outputs]);
    let bias = weight(b, &format!("{name}.b"), &[outputs]);
    let y = b.matmul(x, w)?;
    let dims: Dims = b.ty(y).dims.clone();
    let bias = b.broadcast_trailing(bias, dims)?;
    b.add(y, bias)
}

fn encoder(size: &Encoder) -> Result<Module> {
    let mut b = Builder::new();
    b.begin("main");
    let tokens = size.batch * size.sequence;
    let ids = TensorType { dtype: DType::I32, dims: std::iter::once(Dim::from(tokens)).collect() };
    let ids = b.param("ids", ids);
    let table = weight(&mut b, "words", &[VOCABULARY, size.hidden]);
    let mut x = b.gather(table, ids, 0)?;
    for layer in 0..size.layers {
        x = encoder_layer(&mut b, &format!("layer{layer}"), x, size)?;
    }
    b.end(&[x]);
    Ok(b.finish())
}

/// Attention and a feed-forward block, each added to its input and normalised.
fn encoder_layer(b: &mut Builder, name: &str, x: ValueId, size: &Encoder) -> Result<ValueId> {
    let hidden = size.hidden;
    let context = attention(b, name, x, size)?;
    let projected = dense(b, &format!("{name}.project"), context, hidden, hidden)?;
    let sum = b.add(x, projected)?;
    let x = norm(b, &format!("{name}.norm1"), sum, hidden)?;
    let wide = dense(b, &format!("{name}.wide"), x, hidden, 4 * hidden)?;
    let wide = b.gelu(wide)?;
    let narrow = dense(b, &format!("{name}.narrow"), wide, 4 * hidden, hidden)?;
    let sum = b.add(x, narrow)?;
    norm(b, &format!("{name}.norm2"), sum, hidden)
}

fn norm(b: &mut Builder, name: &str, x: ValueId, hidden: u64) -> Result<ValueId> {
    let scale = weight(b, &format!("{name}.scale"), &[hidden]);
    let bias = weight(b, &format!("{name}.bias"), &[hidden]);
    b.layer_norm(x, scale, bias, 1e-12)
}

fn attention(b: &mut Builder, name: &str, x: ValueId, size: &Encoder) -> Result<ValueId> {
    let (hidden, width) = (size.hidden, size.hidden / size.heads);
    let heads = |b: &mut Builder, part: &str, perm: &[usize]| -> Result<ValueId> {
        let y = dense(b, &format!("{name}.{part}"), x, hidden, hidden)?;
        let split = b.reshape(y, [size.batch, size.sequence, size.heads, width])?;
        b.transpose(split, perm)
    };
    let query = heads(b, "query", &[0, 2, 1, 3])?;
    let key = heads(b, "key", &[0, 2, 3, 1])?;
    let value = heads(b, "value", &[0, 2, 1, 3])?;
    let scores = b.matmul(query, key)?;
    let scores = b.binary_scalar(pando_base::BinaryFn::Mul, scores, 1.0 / (width as f64).sqrt())?;
    let shares = b.softmax(scores, 3)?;
    let context = b.matmul(shares, value)?;
    let context = b.transpose(context, &[0, 2, 1, 3])?;
    b.reshape(context, [size.batch * size.sequence, hidden])
}

/// The graph of a model's row, for tools that look inside.
pub fn model_of(series: &crate::Series, point: &Point) -> Result<Module> {
    match &series.experiment {
        crate::series::Experiment::Model { name, .. } => model(name, point),
        _ => Err(errors::bad_series("data", &series.id, "is not a model")),
    }
}
