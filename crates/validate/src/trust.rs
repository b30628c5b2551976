//! How far to believe a prediction: a small file computed from the rows, so that whoever prints a prediction
//! can say how far off predictions of the kind were without predicting sixty programs first.
//!
//! `pando validate --write FILE` makes the file; a test checks that the one in the repository is true.

use crate::errors;
use crate::series::Kind;
use crate::summary::KindSummary;
use pando_base::{DType, Result};
use pando_graph::{Func, Module, Op};
use pando_profile::Trust;
use pando_tile::Program;
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// The file's place in this crate.
pub const TRUST_FILE: &str = "data/trust.toml";
const TEXT: &str = include_str!("../data/trust.toml");

/// What was compared for one kind, and how it came out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Range {
    pub kind: String,
    pub rows: usize,
    /// Of |predicted - measured| / measured.
    pub median_error: f64,
    pub max_error: f64,
    /// What the rows cover, in words.
    pub covers: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    range: Vec<Range>,
}

/// The file's contents for these summaries.
pub fn trust_text(summaries: &[KindSummary]) -> String {
    let mut text = String::from(
        "# How far predictions were from published measurements, per kind of program.\n\
         # Written by `pando validate --write`; a test checks that it is true.\n",
    );
    for summary in summaries {
        write!(
            text,
            "\n[[range]]\nkind = \"{}\"\nrows = {}\nmedian_error = {:.3}\nmax_error = {:.3}\ncovers = \"{}\"\n",
            summary.kind.name(),
            summary.all.rows,
            summary.all.median_abs_error,
            summary.all.max_abs_error,
            covers(summary),
        )
        .expect("writing to a string");
    }
    text
}

fn covers(summary: &KindSummary) -> String {
    let what = match summary.kind {
        Kind::Kernel => "vertices with up to thousands of elements a tile",
        Kind::Exchange => "halos and spreads of up to thousands of bytes a tile",
        Kind::Product => "f8, f16 and f32 weights of 1024 to 4304, and products by heads, on one chip",
        Kind::Sparse => {
            "f16 weights of 4096 with a quarter to a 32nd of them, in elements or blocks of 16, on one chip"
        }
        Kind::Stencil => "2-D and 3-D stencils on one chip",
        Kind::Host => "streams, links and syncs of one chip",
        Kind::Model => "f16 and f32 inference on one chip",
        Kind::ModelF8 => "inference with f8 products on one chip",
    };
    let sizes = summary.sizes.map_or(String::new(), |(low, high)| format!(", n from {low} to {high}"));
    format!("{what}{sizes}; {}", summary.systems.join(", "))
}

/// The ranges of the repository's file.
pub fn ranges() -> Result<Vec<Range>> {
    let file: File =
        toml::from_str(TEXT).map_err(|error| errors::bad_file(TRUST_FILE, &error.to_string()))?;
    Ok(file.range)
}

/// What to print with a prediction of this kind.
///
/// Outside of what the rows cover nothing is known; the worst row is what to reckon with.
pub fn trust(kind: Kind) -> Result<Trust> {
    let ranges = ranges()?;
    let Some(range) = ranges.iter().find(|range| range.kind == kind.name()) else {
        return Ok(Trust {
            range: format!("no {} was compared with a measurement", kind.name()),
            error: None,
        });
    };
    Ok(Trust {
        range: format!(
            "{} published {} measurements ({}), {:.0} % at worst, to be reckoned with beyond them",
            range.rows,
            range.kind,
            range.covers,
            100.0 * range.max_error
        ),
        error: Some(range.median_error),
    })
}

/// The kind of measurement that a graph's prediction resembles: a single product, or a model. The graph is in the
/// precision that is predicted.
pub fn kind_of_graph(module: &Module) -> Kind {
    let narrow = |func: &Func| func.values.values().any(|value| matches!(value.ty.dtype, DType::F8(..)));
    let model = if module.funcs.values().any(narrow) { Kind::ModelF8 } else { Kind::Model };
    let nodes = module.funcs.values().flat_map(|func| func.nodes.values());
    let products = nodes.clone().filter(|node| matches!(node.op, Op::Dot(_) | Op::Conv(_))).count();
    let others = nodes.filter(|node| !matches!(node.op, Op::Constant(_))).count() - products;
    if products == 1 && others == 0 { Kind::Product } else { model }
}

/// The same for a tile program: without exchanges its vertices are all there is.
pub fn kind_of_program(program: &Program) -> Kind {
    if program.exchanges.is_empty() { Kind::Kernel } else { Kind::Stencil }
}
