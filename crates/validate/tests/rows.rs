//! Goal: what `pando validate` and `pando profile` say about errors is true, and good enough. Method: all rows
//! are predicted; summaries are compared with the project's targets and with the file that profiles quote.

use pando_validate::{Kind, KindSummary, Row, TRUST_FILE, ranges, rows, series, summarize, trust_text};
use std::sync::LazyLock;

static ROWS: LazyLock<Vec<Row>> =
    LazyLock::new(|| rows(&series().expect("series parse"), "").expect("every row is predicted"));

fn of(kinds: &'static [Kind]) -> impl Iterator<Item = &'static Row> + Clone {
    ROWS.iter().filter(move |row| kinds.contains(&row.kind))
}

#[test]
fn enough_rows_with_distinct_names() {
    assert!(ROWS.len() >= 60, "{}", ROWS.len());
    let mut ids: Vec<&str> = ROWS.iter().map(|row| row.id.as_str()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), ROWS.len());
    for row in ROWS.iter() {
        assert!(row.measured > 0.0 && row.predicted > 0.0 && row.predicted.is_finite(), "{row:?}");
        assert!(row.source.contains(".md "), "{} does not say where its number is from", row.id);
    }
}

/// The targets: 10 % over vertices and exchanges, 20 % over whole models, by the median. Products
/// and hand-written programs have none; these are ours.
#[test]
fn median_errors() {
    let low = summarize(of(&[Kind::Kernel, Kind::Exchange]));
    assert!(low.median_abs_error <= 0.10, "{low:?}");
    let products = summarize(of(&[Kind::Product]));
    assert!(products.median_abs_error <= 0.10, "{products:?}");
    for kinds in [&[Kind::Model][..], &[Kind::ModelF8], &[Kind::Model, Kind::ModelF8]] {
        let models = summarize(of(kinds));
        assert!(models.median_abs_error <= 0.20, "{models:?}");
    }
    let programs = summarize(of(&[Kind::Stencil]));
    assert!(programs.median_abs_error <= 0.20, "{programs:?}");
}

/// Far is a factor of two, of whole models 20 %.
#[test]
fn far_rows_have_a_reason() {
    let is_model = |row: &Row| matches!(row.kind, Kind::Model | Kind::ModelF8);
    for row in ROWS.iter().filter(|row| row.is_far() || is_model(row) && row.abs_error() > 0.2) {
        assert!(row.reason.is_some(), "{} is far off without a reason", row.id);
    }
}

/// Nothing may be tuned to what is predicted in earnest.
#[test]
fn only_low_rows_were_fitted_with() {
    for row in of(&[Kind::Product, Kind::Stencil, Kind::Model, Kind::ModelF8]) {
        assert!(row.fitted.is_none(), "{}", row.id);
    }
}

#[test]
fn fitted_constants_are_those_of_the_fit() {
    for fit in pando_validate::fit::fits().expect("the fit runs") {
        assert_eq!(fit.fitted.round(), fit.held, "{}: fitted {}", fit.constant, fit.fitted);
    }
}

/// `BLESS=1` writes the file.
#[test]
fn the_trust_file_is_true() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(TRUST_FILE);
    let text = trust_text(&KindSummary::of(&ROWS));
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &text).expect("writable");
        return;
    }
    let held = std::fs::read_to_string(&path).expect("readable");
    assert_eq!(held, text, "run `pando validate --write crates/validate/{TRUST_FILE}`");
    assert_eq!(ranges().expect("it parses").len(), KindSummary::of(&ROWS).len());
}

#[test]
fn wrong_patterns_are_the_users_problem() {
    let error = rows(&series().expect("series parse"), "nothing-like-it").unwrap_err();
    assert!(error.to_string().contains("no row has 'nothing-like-it'"), "{error}");
}
