//! Where the cycles go: by kind with bars, and the costliest operations.

use super::columns::{Align, aligned, bar, shortened};
use super::units::{count, duration, percent};
use super::{Style, Tone, line};
use crate::reduce::{Alike, alike};
use crate::schema::{Cycles, Profile};

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

/// Rows shown: operations, those of equal layers together.
const MOST: usize = 10;

pub fn costliest(profile: &Profile, style: Style, out: &mut String) {
    let whole = profile.totals.parts.total();
    let groups = alike(&profile.operations);
    let (shown, rest) = groups.split_at(groups.len().min(MOST));
    let heading = ["costliest operations", "number", "cycles", "time", "share", "tiles", "mostly"];
    let mut rows = vec![heading.map(String::from).to_vec()];
    rows.extend(shown.iter().map(|group| group_row(profile, group, whole)));
    use Align::{Left, Right};
    with_heading(&rows, &[Left, Right, Right, Right, Right, Right, Left], style, out);
    let left_out: u64 = rest.iter().map(|group| u64::from(group.operations)).sum();
    if left_out > 0 {
        let cycles = shown.iter().fold(whole, |left, group| left.saturating_sub(group.together.cycles));
        line(out, format!("  and {} more, {}", count(left_out), percent(share(cycles, whole))));
    }
}

fn group_row(profile: &Profile, group: &Alike, whole: u64) -> Vec<String> {
    let operation = &group.together;
    vec![
        format!("  {}", shortened(&operation.name)),
        count(group.operations.into()),
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
