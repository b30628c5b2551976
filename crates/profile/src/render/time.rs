//! Where the cycles go: by kind with bars, and the costliest operations.

use super::columns::{Align, aligned, bar, shortened};
use super::units::{count, duration, percent};
use super::{Style, Tone, line};
use crate::reduce::costliest as costliest_operations;
use crate::schema::{Cycles, Operation, Profile};

pub fn by_kind(profile: &Profile, style: Style, out: &mut String) {
    let whole = profile.totals.parts.total();
    let mut rows = vec![["time", "cycles", "time", "share", ""].map(String::from).to_vec()];
    for (name, cycles) in profile.totals.parts.named().into_iter().filter(|&(_, cycles)| cycles > 0) {
        let share = share(cycles, whole);
        rows.push(vec![
            format!("  {name}"),
            count(cycles),
            duration(profile.seconds(cycles)),
            percent(share),
            bar(share),
        ]);
    }
    use Align::{Left, Right};
    with_heading(&rows, &[Left, Right, Right, Right, Left], style, out);
}

/// Operations shown.
const MOST: usize = 10;

pub fn costliest(profile: &Profile, style: Style, out: &mut String) {
    let whole = profile.totals.parts.total();
    let shown = costliest_operations(&profile.operations, MOST);
    let heading = ["costliest operations", "cycles", "time", "share", "tiles", "mostly"];
    let mut rows = vec![heading.map(String::from).to_vec()];
    rows.extend(shown.iter().map(|operation| operation_row(profile, operation, whole)));
    use Align::{Left, Right};
    with_heading(&rows, &[Left, Right, Right, Right, Right, Left], style, out);
    let rest = profile.operations.len() - shown.len();
    if rest > 0 {
        let cycles = shown.iter().fold(whole, |left, operation| left.saturating_sub(operation.cycles));
        line(out, format!("  and {} more, {}", count(rest as u64), percent(share(cycles, whole))));
    }
}

fn operation_row(profile: &Profile, operation: &Operation, whole: u64) -> Vec<String> {
    vec![
        format!("  {}", shortened(&operation.name)),
        count(operation.cycles),
        duration(profile.seconds(operation.cycles)),
        percent(share(operation.cycles, whole)),
        count(operation.tiles_used.into()),
        main_part(&operation.parts).into(),
    ]
}

/// The kind that most of the cycles are; the first of several.
fn main_part(parts: &Cycles) -> &'static str {
    let named = parts.named();
    let most = named.iter().map(|&(_, cycles)| cycles).max().unwrap_or(0);
    named.iter().find(|&&(_, cycles)| cycles == most && most > 0).map_or("", |&(name, _)| name)
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Prints rows of which the first is the heading.
pub fn with_heading(rows: &[Vec<String>], aligns: &[Align], style: Style, out: &mut String) {
    for (at, text) in aligned(rows, aligns).into_iter().enumerate() {
        let text = if at == 0 { style.paint(Tone::Heading, &text) } else { text };
        line(out, text);
    }
}
