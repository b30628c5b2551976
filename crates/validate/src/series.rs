//! Measurements as data: `data/*.toml`, read at compile time. `data/README.md` describes the fields.

use crate::errors;
use pando_base::Result;
use serde::Deserialize;
use std::collections::BTreeMap;

/// What kind of thing was measured; summaries and trust are per kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// One vertex on every tile.
    Kernel,
    /// Moving data between the tiles of a chip, and between chips.
    Exchange,
    /// A matrix product, compiled.
    Product,
    /// A product with a sparse matrix, compiled.
    Sparse,
    /// A hand-written program of exchanges and compute sets.
    Stencil,
    /// The way to the host.
    Host,
    /// Inference with a whole model.
    Model,
    /// The same with operands of products in 8 bits.
    #[serde(rename = "model-f8")]
    ModelF8,
}

impl Kind {
    pub const ALL: [Kind; 8] = [
        Kind::Kernel,
        Kind::Exchange,
        Kind::Product,
        Kind::Sparse,
        Kind::Stencil,
        Kind::Host,
        Kind::Model,
        Kind::ModelF8,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Kind::Kernel => "kernel",
            Kind::Exchange => "exchange",
            Kind::Product => "product",
            Kind::Sparse => "sparse",
            Kind::Stencil => "stencil",
            Kind::Host => "host",
            Kind::Model => "model",
            Kind::ModelF8 => "model-f8",
        }
    }
}

/// Whose code ran, and so which code the prediction has to describe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Code {
    /// Hand-optimised: assembly, or intrinsics with hardware loops.
    Assembly,
    /// What the vendor's compiler makes of C++.
    Compiler,
    /// The vendor's libraries.
    Library,
    /// No code on tiles decides.
    Hardware,
    /// Another model of the machine, not the machine.
    Model,
}

impl Code {
    pub fn name(self) -> &'static str {
        match self {
            Code::Assembly => "assembly",
            Code::Compiler => "C++",
            Code::Library => "library",
            Code::Hardware => "hardware",
            Code::Model => "their model",
        }
    }
}

/// Measurements of one program at several sizes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Series {
    pub id: String,
    pub kind: Kind,
    /// What was measured, in words; `$name` stands for a point's parameter, here and in programs.
    pub what: String,
    pub system: String,
    pub code: Code,
    /// Where the number was published, and where the reference files restate it.
    pub source: String,
    /// The unit of `measured`; see [`crate::predict`] for what is computed from cycles.
    pub unit: String,
    /// Share of a measurement by which reading it from a plot may be wrong.
    #[serde(default)]
    pub reading_error: f64,
    /// The constants that were fitted with this series.
    #[serde(default)]
    pub fitted: Option<String>,
    /// Why a prediction is far off, for rows worse than a factor of two.
    #[serde(default)]
    pub reason: Option<String>,
    /// Which part of the time was measured.
    #[serde(default)]
    pub measures: Measures,
    pub experiment: Experiment,
    pub points: Vec<Point>,
}

/// One measurement: the value and the parameters of its program.
#[derive(Clone, Debug, Deserialize)]
pub struct Point {
    pub measured: f64,
    #[serde(default)]
    pub reason: Option<String>,
    #[serde(flatten)]
    pub parameters: BTreeMap<String, toml::Value>,
}

/// Parts of a run's time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Measures {
    Compute,
    /// The longest compute set alone: of a product, its vertices without the sums of their partial results.
    Longest,
    Exchange,
    /// Words on the wires, without the sync before and the set-up of each exchange.
    Moving,
    Sync,
    /// Everything but the host.
    #[default]
    Chip,
    /// The longer of the chip's and the host's part: transfers are prefetched.
    Overlapped,
    /// An iteration of a call as the experiment's `call` says: the call's steps and what starting it takes, divided.
    Call,
    /// A single request: everything, one after another, and the host has to be waited for.
    Request,
}

/// Number formats of a model: f8 are operands of products, all else f16.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ModelPrecision {
    #[default]
    F16,
    F32,
    F8,
}

/// What is asked of this project's model of the machine.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Experiment {
    /// A tile program: a template in `data/programs`.
    Tile(String),
    /// A graph, compiled: a template in `data/programs`. `partials` is the type of partial sums.
    Graph { file: String, partials: String },
    /// A built-in model, `NAME?OPTION=VALUE&…`, compiled for one chip.
    Model {
        name: String,
        partials: String,
        #[serde(default)]
        precision: ModelPrecision,
        #[serde(default)]
        call: Option<Call>,
        /// Share of a tile's memory for one product's temporary data; the default's if none.
        #[serde(default)]
        available_memory: Option<f64>,
        /// Composites that stay in f32.
        #[serde(default)]
        keep_f32: Vec<String>,
    },
    /// Bytes to or from the host, `bytes` of a point at a time.
    Host {
        direction: Direction,
        /// Whether the host has to be waited for.
        #[serde(default)]
        waiting: bool,
    },
    /// Both directions between two chips at once, over so many links.
    Link { links: u32 },
    /// A barrier that the host takes part in.
    HostSync,
}

/// How the host fed a model that was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Call {
    pub iterations: u64,
    pub io_tiles: u32,
    pub prefetch: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    In,
    Out,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    series: Vec<Series>,
}

const FILES: [(&str, &str); 7] = [
    ("kernels.toml", include_str!("../data/kernels.toml")),
    ("exchange.toml", include_str!("../data/exchange.toml")),
    ("products.toml", include_str!("../data/products.toml")),
    ("sparse.toml", include_str!("../data/sparse.toml")),
    ("stencils.toml", include_str!("../data/stencils.toml")),
    ("hosts.toml", include_str!("../data/hosts.toml")),
    ("models.toml", include_str!("../data/models.toml")),
];

/// All series, in the order of the files.
pub fn series() -> Result<Vec<Series>> {
    let mut all = Vec::new();
    for (name, text) in FILES {
        let file: File = toml::from_str(text).map_err(|error| errors::bad_file(name, &error.to_string()))?;
        all.extend(file.series);
    }
    Ok(all)
}

impl Series {
    /// The text with every `$name` replaced by the point's parameter; longer names first, so that `$n` leaves
    /// `$name` alone.
    pub fn fill(&self, text: &str, point: &Point) -> Result<String> {
        let mut names: Vec<&String> = point.parameters.keys().collect();
        names.sort_by_key(|name| std::cmp::Reverse(name.len()));
        let mut filled = text.to_string();
        for name in names {
            let value = match &point.parameters[name] {
                toml::Value::String(value) => value.clone(),
                value => value.to_string(),
            };
            filled = filled.replace(&format!("${name}"), &value);
        }
        match filled.find('$') {
            None => Ok(filled),
            Some(at) => {
                let rest: String = filled[at..].chars().take(16).collect();
                Err(errors::bad_series("data", &self.id, &format!("nothing to put for '{rest}'")))
            }
        }
    }

    /// The series' name and what tells its points apart.
    pub fn row_id(&self, point: &Point) -> String {
        match point.parameters.get("at") {
            Some(toml::Value::String(at)) => format!("{}-{at}", self.id),
            Some(at) => format!("{}-{at}", self.id),
            None => match point.parameters.get("n") {
                Some(n) => format!("{}-{n}", self.id),
                None => self.id.clone(),
            },
        }
    }
}

impl Point {
    pub fn number(&self, name: &str) -> Option<f64> {
        let value = self.parameters.get(name)?;
        value.as_float().or_else(|| value.as_integer().map(|value| value as f64))
    }
}
