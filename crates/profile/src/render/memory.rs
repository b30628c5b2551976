//! What fills the fullest tile: categories, and the largest variables there.

use super::Style;
use super::columns::{Align, bar, shortened};
use super::time::with_heading;
use super::units::{bytes, percent};
use crate::schema::Profile;

pub fn fullest(profile: &Profile, style: Style, out: &mut String) {
    let memory = &profile.memory;
    let share =
        |value: u64| if memory.tile_bytes == 0 { 0.0 } else { value as f64 / memory.tile_bytes as f64 };
    let row = |name: String, value: u64| vec![name, bytes(value), percent(share(value)), bar(share(value))];
    let heading = format!("memory of tile {}, the fullest", memory.max_tile);
    let mut rows = vec![vec![heading, "bytes".into(), "of tile".into(), String::new()]];
    for (name, value) in memory.fullest.named().into_iter().filter(|&(_, value)| value > 0) {
        rows.push(row(format!("  {name}"), value));
    }
    rows.push(row("  all".into(), memory.max_used));
    rows.push(row("  mean over tiles".into(), memory.mean_used.round() as u64));
    if let Some(gaps) = memory.gap_bytes {
        rows.push(row("  gaps between addresses".into(), gaps));
    }
    for region in &memory.regions {
        let share = region.used as f64 / region.bytes.max(1) as f64;
        let name = format!("  {} region, of {}", region.name, bytes(region.bytes));
        rows.push(vec![name, bytes(region.used), percent(share), bar(share)]);
    }
    if !profile.fit.largest.is_empty() {
        rows.push(vec!["largest variables there".into()]);
        rows.extend(
            profile.fit.largest.iter().map(|var| row(format!("  {}", shortened(&var.name)), var.bytes)),
        );
    }
    use Align::{Left, Right};
    with_heading(&rows, &[Left, Right, Right, Left], style, out);
}
