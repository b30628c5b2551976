//! The programs of rows: templates of tile programs and graphs, and whole models by name.

use crate::errors;
use crate::resnet::resnet50;
use pando_base::Result;
use pando_graph::Module;
use pando_lower::{Precision, with_precision};

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

/// A model in a precision: a built-in one, as `zoo:NAME?OPTION=VALUE` spells it, or `resnet50-folded`.
pub fn model(spec: &str, precision: Precision) -> Result<Module> {
    if let Some(batch) = spec.strip_prefix(FOLDED_RESNET) {
        let batch =
            batch.parse().map_err(|_| errors::bad_series("data", spec, "the batch is not a number"))?;
        return Ok(with_precision(resnet50(batch)?, precision));
    }
    let (name, options) = pando_zoo::parse(spec)?;
    Ok(with_precision(pando_zoo::build(name, &options)?, precision))
}
