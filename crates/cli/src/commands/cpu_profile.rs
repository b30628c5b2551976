//! Where a run on this computer spends its time: a table, JSON, and a trace for Perfetto or Chrome
//! (`chrome://tracing`, ui.perfetto.dev).

use pando_base::{Error, Result};
use pando_cpu::StepTime;
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::Path;

/// Rows of the table of operations; JSON has all.
const SHOWN: usize = 20;
/// Columns for the name of an operation.
const NAME_WIDTH: usize = 40;

/// Steps with the same kind, or the same kind and name, taken together.
struct Row<'a> {
    kind: &'a str,
    name: &'a str,
    calls: u64,
    seconds: f64,
    flops: u64,
    bytes: u64,
}

impl Row<'_> {
    /// 10^9 floating-point operations a second, where products are the work.
    fn gflops(&self) -> Option<f64> {
        (self.flops > 0 && self.seconds > 0.0).then(|| self.flops as f64 / self.seconds / 1e9)
    }

    /// 10^9 bytes a second, where moving them is the work.
    fn gbytes(&self) -> Option<f64> {
        (self.flops == 0 && self.seconds > 0.0).then(|| self.bytes as f64 / self.seconds / 1e9)
    }
}

/// Steps that agree in `key`, the slowest first.
fn grouped<'a>(steps: &'a [StepTime], key: impl Fn(&'a StepTime) -> (&'a str, &'a str)) -> Vec<Row<'a>> {
    let mut rows: Vec<Row> = Vec::new();
    let mut places = std::collections::HashMap::new();
    for step in steps {
        let (kind, name) = key(step);
        let at = *places.entry((kind, name)).or_insert(rows.len());
        if at == rows.len() {
            rows.push(Row { kind, name, calls: 0, seconds: 0.0, flops: 0, bytes: 0 });
        }
        let row = &mut rows[at];
        row.calls += 1;
        row.seconds += step.seconds;
        row.flops += step.flops;
        row.bytes += step.bytes;
    }
    rows.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    rows
}

fn by_kind(steps: &[StepTime]) -> Vec<Row<'_>> {
    grouped(steps, |step| (step.kind, ""))
}

fn by_operation(steps: &[StepTime]) -> Vec<Row<'_>> {
    grouped(steps, |step| (step.kind, &step.name))
}

fn total(steps: &[StepTime]) -> f64 {
    steps.iter().map(|step| step.seconds).sum()
}

/// Two tables: by kind, and the slowest operations.
pub fn table(steps: &[StepTime]) -> String {
    let total = total(steps);
    let mut text = String::new();
    lines(&mut text, "kind", &by_kind(steps), total, |row| row.kind.to_string());
    let operations = by_operation(steps);
    let shown = &operations[..operations.len().min(SHOWN)];
    text.push('\n');
    lines(&mut text, "operation", shown, total, |row| {
        if row.name.is_empty() { row.kind.to_string() } else { format!("{} {}", row.kind, row.name) }
    });
    let rest = operations.len() - shown.len();
    if rest > 0 {
        let seconds: f64 = operations[shown.len()..].iter().map(|row| row.seconds).sum();
        let _ = writeln!(text, "{:<NAME_WIDTH$} {:>6} {:>10.3}", format!("{rest} more"), "", seconds * 1e3);
    }
    text
}

fn lines(text: &mut String, title: &str, rows: &[Row], total: f64, label: impl Fn(&Row) -> String) {
    let _ = writeln!(
        text,
        "{title:<NAME_WIDTH$} {:>6} {:>10} {:>6} {:>9} {:>8}",
        "calls", "ms", "%", "GFLOP/s", "GB/s"
    );
    for row in rows {
        let share = if total > 0.0 { row.seconds / total * 100.0 } else { 0.0 };
        let rate = |rate: Option<f64>| rate.map_or("-".to_string(), |rate| format!("{rate:.1}"));
        let _ = writeln!(
            text,
            "{:<NAME_WIDTH$} {:>6} {:>10.3} {share:>6.1} {:>9} {:>8}",
            shortened(&label(row)),
            row.calls,
            row.seconds * 1e3,
            rate(row.gflops()),
            rate(row.gbytes()),
        );
    }
}

/// Long names keep their ends, which tell them apart.
fn shortened(name: &str) -> String {
    let length = name.chars().count();
    if length <= NAME_WIDTH {
        return name.to_string();
    }
    let (kind, rest) = name.split_once(' ').unwrap_or(("", name));
    let kept = NAME_WIDTH.saturating_sub(kind.chars().count() + 2);
    let skipped = rest.chars().count().saturating_sub(kept);
    format!("{kind} …{}", rest.chars().skip(skipped).collect::<String>())
}

/// `total_ms`, `kinds` and `operations`.
pub fn json(steps: &[StepTime]) -> Value {
    let rows = |rows: Vec<Row>| -> Vec<Value> { rows.iter().map(row_json).collect() };
    json!({
        "total_ms": total(steps) * 1e3,
        "kinds": rows(by_kind(steps)),
        "operations": rows(by_operation(steps)),
    })
}

fn row_json(row: &Row) -> Value {
    json!({
        "kind": row.kind, "name": row.name, "calls": row.calls, "ms": row.seconds * 1e3,
        "flops": row.flops, "bytes": row.bytes, "gflop_per_s": row.gflops(), "gb_per_s": row.gbytes(),
    })
}

/// Writes one run in the Trace Event Format: complete events, microseconds.
pub fn write_trace(path: &Path, model: &str, steps: &[StepTime]) -> Result<()> {
    let name =
        json!({"name": "process_name", "ph": "M", "pid": 1, "args": {"name": format!("pando {model}")}});
    let events = steps.iter().map(|step| {
        let name = if step.name.is_empty() { step.kind } else { &step.name };
        json!({
            "name": name, "cat": step.kind, "ph": "X", "pid": 1, "tid": 1,
            "ts": step.start_seconds * 1e6, "dur": step.seconds * 1e6,
            "args": {"kind": step.kind, "flops": step.flops, "bytes": step.bytes},
        })
    });
    let events: Vec<Value> = std::iter::once(name).chain(events).collect();
    let text = json!({"traceEvents": events, "displayTimeUnit": "ms"}).to_string();
    std::fs::write(path, text)
        .map_err(|error| Error::in_file(path.display().to_string(), format!("cannot be written: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(kind: &'static str, name: &str, milliseconds: f64, flops: u64) -> StepTime {
        let seconds = milliseconds / 1e3;
        StepTime {
            kind,
            name: name.into(),
            sizes: Vec::new(),
            start_seconds: 0.0,
            seconds,
            flops,
            bytes: 1_000_000,
        }
    }

    #[test]
    fn slowest_first_with_the_rate_of_their_work() {
        let steps = [step("copy", "a", 1.0, 0), step("gemm", "b", 2.0, 6_000_000), step("copy", "a", 1.5, 0)];
        let rows = by_operation(&steps);
        assert_eq!((rows[0].kind, rows[0].calls, rows[0].gbytes()), ("copy", 2, Some(0.8)));
        assert_eq!((rows[1].kind, rows[1].calls, rows[1].gflops()), ("gemm", 1, Some(3.0)));
        let table = table(&steps);
        let line = table.lines().find(|line| line.starts_with("gemm b")).unwrap();
        assert_eq!(
            line.split_whitespace().collect::<Vec<_>>(),
            ["gemm", "b", "1", "2.000", "44.4", "3.0", "-"]
        );
    }

    #[test]
    fn long_names_keep_their_ends() {
        let name = format!("gemm {}end", "x".repeat(100));
        let short = shortened(&name);
        assert_eq!(short.chars().count(), NAME_WIDTH);
        assert!(short.starts_with("gemm …x") && short.ends_with("end"), "{short}");
    }
}
