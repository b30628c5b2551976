//! How far predictions are from published measurements.
//!
//! In: the series of measurements in `data/`, each with the program that was measured. Out: one row per
//! measurement with what this project predicts for it, summaries per kind, and the range in which predictions
//! can be trusted. Deliberately not here: any cost. What a row needs is a tile program, a graph that the
//! compiler lowers, or a machine's own figures; nothing knows that it is being validated.

pub mod errors;
pub mod fit;
mod models;
mod predict;
mod render;
mod series;
mod summary;
mod trust;

pub use models::model_of;
pub use predict::{Row, rows};
pub use render::table;
pub use series::{Code, Kind, Series, series};
pub use summary::{KindSummary, Summary, summarize};
pub use trust::{Range, TRUST_FILE, kind_of_graph, kind_of_program, ranges, trust, trust_text};
