//! Where a run on this computer spends its time: a table, JSON, and a trace for Perfetto or Chrome
//! (`chrome://tracing`, ui.perfetto.dev).

use pando_base::{Error, Result};
use pando_cpu::StepTime;
use pando_profile::reduce::{common_name, pattern};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fmt::Write;
use std::hash::Hash;
use std::path::Path;

/// Rows of the table of operations; JSON has all.
const SHOWN: usize = 20;
/// Columns for the name of an operation.
const NAME_WIDTH: usize = 40;
/// Columns for the sizes of its result.
const SIZES_WIDTH: usize = 16;

/// Steps taken together.
struct Row<'a> {
    kind: &'a str,
    /// As often as there are steps.
    names: Vec<&'a str>,
    /// Of the first result.
    sizes: &'a [usize],
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
fn grouped<'a, K: Eq + Hash>(steps: &'a [StepTime], key: impl Fn(&'a StepTime) -> K) -> Vec<Row<'a>> {
    let mut rows: Vec<Row> = Vec::new();
    let mut places = HashMap::new();
    for step in steps {
        let at = *places.entry(key(step)).or_insert(rows.len());
        if at == rows.len() {
            let (kind, sizes) = (step.kind, &step.sizes[..]);
            rows.push(Row { kind, names: Vec::new(), sizes, seconds: 0.0, flops: 0, bytes: 0 });
        }
        let row = &mut rows[at];
        row.names.push(&step.name);
        row.seconds += step.seconds;
        row.flops += step.flops;
        row.bytes += step.bytes;
    }
    rows.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    rows
}

fn by_kind(steps: &[StepTime]) -> Vec<Row<'_>> {
    grouped(steps, |step| step.kind)
}

fn by_operation(steps: &[StepTime]) -> Vec<Row<'_>> {
    grouped(steps, |step| (step.kind, &step.name))
}

/// Equal layers do the same work, under names that differ in numbers.
fn by_work(steps: &[StepTime]) -> Vec<Row<'_>> {
    grouped(steps, |step| (step.kind, pattern(&step.name), &step.sizes, step.flops))
}

fn total(steps: &[StepTime]) -> f64 {
    steps.iter().map(|step| step.seconds).sum()
}

/// Two tables: by kind, and the slowest operations, those of equal layers together.
pub fn table(steps: &[StepTime]) -> String {
    let total = total(steps);
    let mut text = String::new();
    lines(&mut text, ["kind", ""], &by_kind(steps), total, |row| [row.kind.to_string(), String::new()]);
    let operations = by_work(steps);
    let (shown, rest) = operations.split_at(operations.len().min(SHOWN));
    text.push('\n');
    lines(&mut text, ["operation", "result"], shown, total, |row| {
        let sizes: Vec<String> = row.sizes.iter().map(usize::to_string).collect();
        [format!("{} {}", row.kind, common_name(&row.names)).trim_end().to_string(), sizes.join("x")]
    });
    if !rest.is_empty() {
        let calls: usize = rest.iter().map(|row| row.names.len()).sum();
        let seconds: f64 = rest.iter().map(|row| row.seconds).sum();
        let _ =
            writeln!(text, "{:<NAME_WIDTH$} {:>SIZES_WIDTH$} {calls:>6} {:>10.3}", "more", "", seconds * 1e3);
    }
    text
}

/// `label`: of a row, its name and its sizes.
fn lines(
    text: &mut String,
    heading: [&str; 2],
    rows: &[Row],
    total: f64,
    label: impl Fn(&Row) -> [String; 2],
) {
    let [name, sizes] = heading;
    let _ = writeln!(
        text,
        "{name:<NAME_WIDTH$} {sizes:>SIZES_WIDTH$} {:>6} {:>10} {:>6} {:>9} {:>8}",
        "calls", "ms", "%", "GFLOP/s", "GB/s"
    );
    for row in rows {
        let share = if total > 0.0 { row.seconds / total * 100.0 } else { 0.0 };
        let rate = |rate: Option<f64>| rate.map_or("-".to_string(), |rate| format!("{rate:.1}"));
        let [name, sizes] = label(row);
        let _ = writeln!(
            text,
            "{:<NAME_WIDTH$} {sizes:>SIZES_WIDTH$} {:>6} {:>10.3} {share:>6.1} {:>9} {:>8}",
            shortened(&name),
            row.names.len(),
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
    json!({
        "total_ms": total(steps) * 1e3,
        "kinds": by_kind(steps).iter().map(|row| row_json(row, "")).collect::<Vec<_>>(),
        "operations": by_operation(steps).iter().map(|row| row_json(row, row.names[0])).collect::<Vec<_>>(),
    })
}

fn row_json(row: &Row, name: &str) -> Value {
    json!({
        "kind": row.kind, "name": name, "calls": row.names.len(), "ms": row.seconds * 1e3,
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
            "args": {
                "kind": step.kind, "sizes": step.sizes, "flops": step.flops, "bytes": step.bytes,
            },
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
        assert_eq!((rows[0].kind, rows[0].names.len(), rows[0].gbytes()), ("copy", 2, Some(0.8)));
        assert_eq!((rows[1].kind, rows[1].names.len(), rows[1].gflops()), ("gemm", 1, Some(3.0)));
        let table = table(&steps);
        let line = table.lines().find(|line| line.starts_with("gemm b")).unwrap();
        assert_eq!(
            line.split_whitespace().collect::<Vec<_>>(),
            ["gemm", "b", "1", "2.000", "44.4", "3.0", "-"]
        );
    }

    #[test]
    fn equal_layers_are_one_row() {
        let layer =
            |name, sizes: &[usize]| StepTime { sizes: sizes.into(), ..step("gemm", name, 1.0, 1_000_000) };
        let table = table(&[layer("h.0.a", &[4, 8]), layer("h.1.a", &[4, 8]), layer("h.2.a", &[4, 9])]);
        let line = |start: &str| {
            let line =
                table.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{table}"));
            line.split_whitespace().map(String::from).collect::<Vec<_>>()
        };
        assert_eq!(line("gemm h.*.a"), ["gemm", "h.*.a", "4x8", "2", "2.000", "66.7", "1.0", "-"]);
        assert_eq!(line("gemm h.2.a"), ["gemm", "h.2.a", "4x9", "1", "1.000", "33.3", "1.0", "-"]);
    }

    #[test]
    fn long_names_keep_their_ends() {
        let name = format!("gemm {}end", "x".repeat(100));
        let short = shortened(&name);
        assert_eq!(short.chars().count(), NAME_WIDTH);
        assert!(short.starts_with("gemm …x") && short.ends_with("end"), "{short}");
    }
}
