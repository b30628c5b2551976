//! The table for people.

use crate::predict::Row;
use crate::summary::{KindSummary, Summary, summarize};
use std::fmt::Write;

/// Rows by kind, the summary per kind, and the reasons for rows that are far off. Ends in a newline.
pub fn table(rows: &[Row]) -> String {
    let mut out = String::new();
    let summaries = KindSummary::of(rows);
    let width = rows.iter().map(|row| row.id.chars().count()).max().unwrap_or(0);
    for summary in &summaries {
        let own: Vec<&Row> = rows.iter().filter(|row| row.kind == summary.kind).collect();
        line(
            &mut out,
            &format!(
                "{:<width$}  {:>10} {:>10} {:<8} {:>7}  {:<7} {:<11} what",
                summary.kind.name(),
                "measured",
                "predicted",
                "unit",
                "error",
                "system",
                "code"
            ),
        );
        own.iter().for_each(|row| line(&mut out, &row_text(row, width)));
        out.push('\n');
    }
    notes(rows, &mut out);
    sources(rows, &mut out);
    totals(rows, &summaries, &mut out);
    out
}

fn line(out: &mut String, text: &str) {
    writeln!(out, "{}", text.trim_end()).expect("writing to a string");
}

fn row_text(row: &Row, width: usize) -> String {
    let mark = match (&row.fitted, row.is_far()) {
        (_, true) => '!',
        (Some(_), _) => 'f',
        _ => ' ',
    };
    format!(
        "{:<width$}  {:>10} {:>10} {:<8} {:>6} {mark} {:<7} {:<11} {}",
        row.id,
        number(row.measured),
        number(row.predicted),
        row.unit,
        format!("{:+.1}%", 100.0 * row.error()),
        row.system,
        row.code.name(),
        row.what
    )
}

/// Four significant digits, thousands as they are.
fn number(value: f64) -> String {
    let digits = if value <= 0.0 { 0 } else { (3 - value.log10().floor() as i64).clamp(0, 6) as usize };
    format!("{value:.digits$}")
}

fn notes(rows: &[Row], out: &mut String) {
    line(out, "f: a constant was fitted with this row. !: more than a factor of two off.");
    for row in rows.iter().filter(|row| row.is_far()) {
        line(out, &format!("! {}: {}", row.id, row.reason.as_deref().unwrap_or("no reason is known")));
    }
    for row in rows {
        if let Some(remark) = &row.remark {
            line(out, &format!("{}: {remark}", row.id));
        }
    }
    let mut fitted: Vec<&str> = rows.iter().filter_map(|row| row.fitted.as_deref()).collect();
    fitted.sort_unstable();
    fitted.dedup();
    fitted.iter().for_each(|constant| line(out, &format!("f {constant}")));
    out.push('\n');
}

/// Each source once, with the rows that come from it.
fn sources(rows: &[Row], out: &mut String) {
    let mut seen: Vec<&str> = Vec::new();
    line(out, "sources");
    for row in rows {
        if !seen.contains(&row.source.as_str()) {
            seen.push(&row.source);
            let own = rows.iter().filter(|other| other.source == row.source).count();
            let name = if own == 1 { row.id.clone() } else { format!("{} and {} more", row.id, own - 1) };
            line(out, &format!("  {name}: {}", row.source));
        }
    }
    out.push('\n');
}

fn totals(rows: &[Row], summaries: &[KindSummary], out: &mut String) {
    line(
        out,
        &format!(
            "{:<10} {:>5} {:>13} {:>13}   {:>10} {:>13}",
            "kind", "rows", "median error", "worst error", "not fitted", "median error"
        ),
    );
    for summary in summaries {
        let own = rows.iter().filter(|row| row.kind == summary.kind && row.fitted.is_none());
        line(out, &total(summary.kind.name(), &summary.all, &summarize(own)));
    }
    let own = rows.iter().filter(|row| row.fitted.is_none());
    line(out, &total("all", &summarize(rows.iter()), &summarize(own)));
    line(out, "Errors are |predicted - measured| / measured, plus the reading error where a plot was read.");
}

fn total(name: &str, all: &Summary, not_fitted: &Summary) -> String {
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    format!(
        "{name:<10} {:>5} {:>13} {:>13}   {:>10} {:>13}",
        all.rows,
        percent(all.median_abs_error),
        percent(all.max_abs_error),
        not_fitted.rows,
        percent(not_fitted.median_abs_error)
    )
}
