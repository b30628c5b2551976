//! The programs of rows: templates of tile programs and graphs, and whole models by name.

use crate::errors;
use crate::resnet::resnet50;
use pando_base::{DType, Result};
use pando_graph::{Builder, Module, TensorType};
use pando_lower::{Options, Precision, buckets_for, with_precision_but};
use pando_machine::Machine;

/// Templates; see `data/README.md`.
const PROGRAMS: [(&str, &str); 17] = [
    ("addition.tile", include_str!("../data/programs/addition.tile")),
    ("blur-pass.tile", include_str!("../data/programs/blur-pass.tile")),
    ("blur.tile", include_str!("../data/programs/blur.tile")),
    ("cast.tile", include_str!("../data/programs/cast.tile")),
    ("copy.tile", include_str!("../data/programs/copy.tile")),
    ("dense.graph", include_str!("../data/programs/dense.graph")),
    ("dense-f8.graph", include_str!("../data/programs/dense-f8.graph")),
    ("heads-f8.graph", include_str!("../data/programs/heads-f8.graph")),
    ("heads.graph", include_str!("../data/programs/heads.graph")),
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

/// Inference models as they are exported: without normalisations of their own.
const FOLDED_RESNET: &str = "resnet50-folded?batch=";

/// A product with a sparse matrix whose blocks are operands, in buckets.
const DYNAMIC_SPARSE: &str = "sparse-dynamic?";

/// A model in a precision: a built-in one, as `zoo:NAME?OPTION=VALUE` spells it, `resnet50-folded` or `sparse-dynamic`.
pub fn model(
    spec: &str,
    precision: Precision,
    keep_f32: &[String],
    machine: &Machine,
    options: &Options,
) -> Result<Module> {
    if let Some(sizes) = spec.strip_prefix(DYNAMIC_SPARSE) {
        return dynamic_sparse(spec, sizes, machine, options);
    }
    if let Some(batch) = spec.strip_prefix(FOLDED_RESNET) {
        let batch =
            batch.parse().map_err(|_| errors::bad_series("data", spec, "the batch is not a number"))?;
        return with_precision_but(resnet50(batch)?, precision, keep_f32);
    }
    let (name, options) = pando_zoo::parse(spec)?;
    with_precision_but(pando_zoo::build(name, &options)?, precision, keep_f32)
}

/// `[batch, features]` times a square matrix with so many blocks in each row of blocks.
fn dynamic_sparse(spec: &str, sizes: &str, machine: &Machine, options: &Options) -> Result<Module> {
    let size = |name: &str| -> Result<u64> {
        let mut pairs = sizes.split('&').filter_map(|pair| pair.split_once('='));
        let value = pairs.find(|(key, _)| *key == name).and_then(|(_, value)| value.parse().ok());
        value
            .filter(|&value| value > 0)
            .ok_or_else(|| errors::bad_series("data", spec, &format!("'{name}' is not a positive number")))
    };
    let [batch, features, block, blocks] =
        [size("batch")?, size("features")?, size("block")?, size("blocks")?];
    let all = blocks * (features / block);
    let x = [batch, features];
    let [rows, columns, slots] = buckets_for(x, features, block, all, DType::F16, machine, options);
    let mut b = Builder::new();
    b.begin("main");
    let x = b.param("x", TensorType::new(DType::F16, x));
    let values = b.param("values", TensorType::new(DType::F16, [rows, columns, slots, block, block]));
    let places =
        ["rows", "columns"].map(|name| b.param(name, TensorType::new(DType::I32, [rows, columns, slots])));
    let product = b.sparse_matmul_at(x, values, places[0], places[1], features)?;
    b.end(&[product]);
    Ok(b.finish())
}
