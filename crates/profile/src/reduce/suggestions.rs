//! What a model's owner could try next. Rules of thumb over the profile, each with the figure that speaks for it, the
//! largest share first. Not here: whether a suggestion would help; profiling again tells.

use crate::render::{bytes, percent};
use crate::schema::Profile;

/// Shares below this are not worth a person's time.
const WORTHWHILE: f64 = 0.2;
/// More than three are not read.
const MOST: usize = 3;

/// Up to three sentences for people who profiled a model, the one about the largest share first.
pub fn suggestions(profile: &Profile) -> Vec<String> {
    let mut found: Vec<(f64, String)> = [halves, host, batch, exchange, code]
        .into_iter()
        .filter_map(|rule| rule(profile))
        .filter(|&(share, _)| share >= WORTHWHILE)
        .collect();
    found.sort_by(|a, b| b.0.total_cmp(&a.0));
    found.into_iter().take(MOST).map(|(_, sentence)| sentence).collect()
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// A share of the run's time or of the tile's memory, and what to do about it.
type Found = Option<(f64, String)>;

fn halves(profile: &Profile) -> Found {
    let computing = share(profile.totals.parts.compute, profile.totals.cycles);
    let is_f32 = profile.totals.peak_type == "f32" && profile.totals.flops > 0;
    let sentence = format!(
        "computing in f32 takes {} of the time: --precision f16 multiplies four times as fast and halves the weights",
        percent(computing)
    );
    is_f32.then_some((computing, sentence))
}

fn host(profile: &Profile) -> Found {
    let waiting = share(profile.totals.parts.host, profile.totals.cycles);
    let moved = profile.totals.host_in_bytes + profile.totals.host_out_bytes;
    let sentence = format!(
        "the host takes {} of the time for {} a run: send fewer bytes an item, such as f16 or 8-bit inputs",
        percent(waiting),
        bytes(moved)
    );
    Some((waiting, sentence))
}

fn batch(profile: &Profile) -> Found {
    let memory = &profile.memory;
    let free = memory.tile_bytes.saturating_sub(memory.max_used);
    let sentence = format!(
        "{} of the fullest tile are free: --micro-batch {} lets more items share weights, syncs and set-up",
        bytes(free),
        profile.items_per_run.max(1) * 2
    );
    // What grows with the batch must fit twice.
    let fits_twice = profile.fit.fits && memory.fullest.temporary < free;
    fits_twice.then_some((share(free, memory.tile_bytes) / 2.0, sentence))
}

fn exchange(profile: &Profile) -> Found {
    let parts = &profile.totals.parts;
    let moving = share(parts.exchange + parts.sync + parts.local_copy, profile.totals.cycles);
    let sentence = format!(
        "moving data between tiles takes {} of the time: a higher --available-memory-proportion allows coarser splits",
        percent(moving)
    );
    Some((moving, sentence))
}

fn code(profile: &Profile) -> Found {
    let taken = share(profile.memory.fullest.exchange_code, profile.memory.tile_bytes);
    let sentence = format!(
        "exchange code takes {} of the fullest tile: repeat equal layers, which share it, or use fewer, larger operations",
        bytes(profile.memory.fullest.exchange_code)
    );
    Some((taken, sentence))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{Cycles, Fit, Memory, Totals};

    #[test]
    fn the_largest_share_comes_first() {
        let profile = Profile {
            items_per_run: 4,
            totals: Totals {
                cycles: 100,
                parts: Cycles { compute: 30, exchange: 5, host: 65, ..Cycles::default() },
                flops: 1,
                peak_type: "f32".into(),
                host_in_bytes: 2048,
                ..Totals::default()
            },
            memory: Memory { tile_bytes: 1000, max_used: 900, ..Memory::default() },
            fit: Fit { fits: true, ..Fit::default() },
            ..Profile::default()
        };
        let found = suggestions(&profile);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("the host takes 65.0 % of the time for 2.0 KiB"), "{found:?}");
        assert!(found[1].contains("--precision f16"), "{found:?}");
        // A small program with room to spare.
        let roomy =
            Profile { memory: Memory { tile_bytes: 1000, max_used: 100, ..Memory::default() }, ..profile };
        assert!(suggestions(&roomy).iter().any(|sentence| sentence.contains("--micro-batch 8")));
        assert_eq!(suggestions(&Profile::default()), Vec::<String>::new());
    }
}
