//! The stages of a pipeline side by side: how well they are balanced, and which is full.

use super::columns::{Align, aligned, bar};
use super::units::{bytes, count, duration, percent};
use super::{Style, Tone, line};
use crate::schema::{Profile, Stage};

pub fn stages(profile: &Profile, style: Style, out: &mut String) {
    if profile.stages.is_empty() {
        return;
    }
    let slowest = profile.stages.iter().map(|stage| stage.cycles).max().unwrap_or(0).max(1);
    let heading =
        ["stages", "cycles", "time", "links", "fullest tile", "always live", "fits", "of the slowest", ""];
    let mut rows = vec![heading.map(String::from).to_vec()];
    rows.extend(profile.stages.iter().enumerate().map(|(at, stage)| row(profile, at, stage, slowest)));
    use Align::{Left, Right};
    let columns = [Left, Right, Right, Right, Right, Right, Left, Right, Left];
    for (at, text) in aligned(&rows, &columns).into_iter().enumerate() {
        line(out, if at == 0 { style.paint(Tone::Heading, &text) } else { text });
    }
    out.push('\n');
}

fn row(profile: &Profile, at: usize, stage: &Stage, slowest: u64) -> Vec<String> {
    let share = stage.cycles as f64 / slowest as f64;
    vec![
        format!("  {at}"),
        count(stage.cycles),
        duration(profile.seconds(stage.cycles)),
        percent(stage.link_cycles as f64 / stage.cycles.max(1) as f64),
        bytes(stage.max_used),
        bytes(stage.always_live),
        if stage.fits { "yes".into() } else { "NO".into() },
        percent(share),
        bar(share),
    ]
}
