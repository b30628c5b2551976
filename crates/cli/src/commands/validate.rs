//! `pando validate`: predictions beside published measurements, and how far to trust what resembles them.

use crate::args::ValidateArgs;
use crate::output::{note, print, print_json};
use pando_base::{Error, Result};
use pando_validate::{KindSummary, Row, rows, series, summarize, table, trust_text};
use serde_json::{Value, json};

pub fn validate(args: &ValidateArgs) -> Result<()> {
    let pattern = args.group.as_deref().or(args.row.as_deref()).unwrap_or("");
    let rows = rows(&series()?, pattern)?;
    if let Some(path) = &args.write {
        std::fs::write(path, trust_text(&KindSummary::of(&rows))).map_err(|error| {
            Error::in_file(path.display().to_string(), format!("cannot be written: {error}"))
        })?;
        note(&format!("trust ranges written to {}", path.display()));
    }
    if args.json { print_json(&to_json(&rows)) } else { print(&table(&rows)) }
}

fn to_json(rows: &[Row]) -> Value {
    let summary = summarize(rows.iter());
    let kinds: Vec<Value> = KindSummary::of(rows)
        .iter()
        .map(|kind| {
            json!({
                "kind": kind.kind.name(),
                "rows": kind.all.rows,
                "median_abs_error": kind.all.median_abs_error,
                "max_abs_error": kind.all.max_abs_error,
                "not_fitted_rows": kind.not_fitted.rows,
                "not_fitted_median_abs_error": kind.not_fitted.median_abs_error,
                "systems": kind.systems,
            })
        })
        .collect();
    json!({
        "rows": rows.iter().map(row_json).collect::<Vec<Value>>(),
        "median_abs_error": summary.median_abs_error,
        "max_abs_error": summary.max_abs_error,
        "kinds": kinds,
    })
}

fn row_json(row: &Row) -> Value {
    json!({
        "id": row.id,
        "kind": row.kind.name(),
        "what": row.what,
        "config": format!("{} on {}, {} code", row.what, row.system, row.code.name()),
        "system": row.system,
        "code": row.code.name(),
        "unit": row.unit,
        "measured": row.measured,
        "predicted": row.predicted,
        "error": row.error(),
        "reading_error": row.reading_error,
        "range": [row.measured * (1.0 - row.reading_error), row.measured * (1.0 + row.reading_error)],
        "source": row.source,
        "fitted": row.fitted,
        "reason": row.reason,
        "remark": row.remark,
    })
}
