//! What a model's owner could try next. Rules of thumb over the profile, each with the figure that speaks for it, the
//! largest share first. Not here: whether a suggestion helps; whoever can compile the model again tries its change.

use crate::render::{bytes, percent};
use crate::schema::Profile;

/// Shares below this are not worth trying; advice that nobody can try has to be about more.
const WORTHWHILE: f64 = 0.05;
const WORTH_READING: f64 = 0.15;

/// Another way to compile the model, by the options of the command line.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    HalfPrecision,
    /// Operands of products in 8 bits.
    EightBits,
    MicroBatch(u64),
    AvailableMemoryProportion(f64),
    /// Tiles for the host's transfers, and a call long enough for them to matter.
    IoTiles {
        tiles: u32,
        iterations: u64,
    },
    Stages(u64),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Suggestion {
    /// Share of the run's time or of a tile's memory that speaks for it.
    pub share: f64,
    /// That figure in words.
    pub finding: String,
    /// What to do, and why.
    pub advice: String,
    /// The same for a program; none where it is the model that has to change.
    pub change: Option<Change>,
}

/// All that apply, the one about the largest share first. `eight_bits`: whether the chip multiplies 8 bits faster.
pub fn suggestions(profile: &Profile, eight_bits: bool) -> Vec<Suggestion> {
    let narrow: fn(&Profile) -> Option<Suggestion> = if eight_bits { eights } else { |_| None };
    let rules = [halves, narrow, host_tiles, host_bytes, batch, smaller_batch, coarser, finer, stages, code];
    let mut found: Vec<Suggestion> = rules.into_iter().filter_map(|rule| rule(profile)).collect();
    let least =
        |suggestion: &Suggestion| if suggestion.change.is_some() { WORTHWHILE } else { WORTH_READING };
    found.retain(|suggestion| suggestion.share >= least(suggestion));
    found.sort_by(|a, b| b.share.total_cmp(&a.share));
    found
}

impl Change {
    /// As typed.
    pub fn options(&self) -> String {
        match self {
            Change::HalfPrecision => "--precision f16".into(),
            Change::EightBits => "--precision f8".into(),
            Change::MicroBatch(items) => format!("--micro-batch {items}"),
            Change::AvailableMemoryProportion(share) => format!("--available-memory-proportion {share}"),
            Change::IoTiles { tiles, iterations } => format!("--io-tiles {tiles} --iterations {iterations}"),
            Change::Stages(stages) => format!("--stages {stages}"),
        }
    }
}

impl Suggestion {
    /// One sentence.
    pub fn sentence(&self) -> String {
        match &self.change {
            Some(change) => format!("{}: {} {}", self.finding, change.options(), self.advice),
            None => format!("{}: {}", self.finding, self.advice),
        }
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

fn suggest(share: f64, finding: String, change: Option<Change>, advice: &str) -> Option<Suggestion> {
    Some(Suggestion { share, finding, advice: advice.into(), change })
}

fn halves(profile: &Profile) -> Option<Suggestion> {
    let computing = share(profile.totals.parts.compute, profile.totals.parts.total());
    let finding = format!("computing in f32 takes {} of the time", percent(computing));
    let is_f32 = profile.totals.peak_type == "f32" && profile.totals.flops > 0;
    let advice = "multiplies four times as fast and halves the weights";
    suggest(if is_f32 { computing } else { 0.0 }, finding, Some(Change::HalfPrecision), advice)
}

fn eights(profile: &Profile) -> Option<Suggestion> {
    let computing = share(profile.totals.parts.compute, profile.totals.parts.total());
    let finding = format!("computing in f16 takes {} of the time", percent(computing));
    let is_f16 = profile.totals.peak_type == "f16" && profile.totals.flops > 0;
    let advice = "multiplies twice as fast, if the model stays accurate enough";
    suggest(if is_f16 { computing / 2.0 } else { 0.0 }, finding, Some(Change::EightBits), advice)
}

/// Largest part of an I/O tile that one item's transfers may take: with the next one's and the last one's, all of it.
const IO_TILE_SHARE: u64 = 3;

fn host_tiles(profile: &Profile) -> Option<Suggestion> {
    if profile.host_io.io_tiles > 0 || !profile.stages.is_empty() {
        return None;
    }
    let waiting = share(profile.totals.parts.host, profile.totals.parts.total());
    let iterations = profile.host_io.iterations.max(1);
    let moved = profile.totals.host_in_bytes.saturating_add(profile.totals.host_out_bytes) / iterations;
    let holds = |tiles: &u32| moved / u64::from(*tiles) <= profile.memory.tile_bytes / IO_TILE_SHARE;
    let tiles = [32, 64, 128, 192].into_iter().find(holds)?;
    let finding = format!("work waits for the host for {} of the time", percent(waiting));
    let change = Change::IoTiles { tiles, iterations: iterations.max(100) };
    let enough = profile.system.tiles_per_chip > 2 * tiles;
    suggest(if enough { waiting } else { 0.0 }, finding, Some(change), "let transfers run beside the work")
}

fn host_bytes(profile: &Profile) -> Option<Suggestion> {
    let waiting = share(profile.totals.parts.host, profile.totals.parts.total());
    let moved = profile.totals.host_in_bytes.saturating_add(profile.totals.host_out_bytes);
    let finding = format!("the host takes {} of the time for {} a run", percent(waiting), bytes(moved));
    // Whether the model can take or give fewer is for its owner to say.
    let advice = if profile.totals.host_in_bytes >= profile.totals.host_out_bytes {
        "send fewer bytes an item, such as f16 or 8-bit inputs"
    } else {
        "return fewer bytes an item, such as the few results that are looked at"
    };
    suggest(waiting * 0.9, finding, None, advice)
}

fn batch_of(profile: &Profile) -> u64 {
    (profile.items_per_run / profile.host_io.iterations.max(1)).max(1)
}

fn batch(profile: &Profile) -> Option<Suggestion> {
    let memory = &profile.memory;
    let free = memory.tile_bytes.saturating_sub(memory.max_used_with_gaps.unwrap_or(memory.max_used));
    let finding = format!("{} of the fullest tile are free", bytes(free));
    // What grows with the batch must fit twice.
    let fits_twice = profile.fit.fits && memory.fullest.temporary < free;
    let share = if fits_twice { share(free, memory.tile_bytes) / 2.0 } else { 0.0 };
    let change = Change::MicroBatch(batch_of(profile) * 2);
    suggest(share, finding, Some(change), "lets more items share weights, syncs and set-up")
}

fn smaller_batch(profile: &Profile) -> Option<Suggestion> {
    let (memory, batch) = (&profile.memory, batch_of(profile));
    let grows = share(memory.fullest.temporary, memory.max_used);
    let finding = format!("{} of the fullest tile are activations", percent(grows));
    let applies = !profile.fit.fits && batch > 1;
    suggest(
        if applies { grows } else { 0.0 },
        finding,
        Some(Change::MicroBatch(batch / 2)),
        "needs half of them",
    )
}

fn moving(profile: &Profile) -> f64 {
    let parts = &profile.totals.parts;
    share(parts.exchange + parts.sync + parts.local_copy, parts.total())
}

fn coarser(profile: &Profile) -> Option<Suggestion> {
    let finding = format!("moving data between tiles takes {} of the time", percent(moving(profile)));
    let share = if profile.fit.fits { moving(profile) } else { 0.0 };
    suggest(share, finding, Some(Change::AvailableMemoryProportion(1.0)), "allows coarser splits")
}

fn finer(profile: &Profile) -> Option<Suggestion> {
    let memory = &profile.memory;
    let temporary = share(memory.fullest.temporary, memory.max_used);
    let finding = format!("temporary data take {} of the fullest tile", percent(temporary));
    let share = if profile.fit.fits { 0.0 } else { temporary };
    suggest(share, finding, Some(Change::AvailableMemoryProportion(0.2)), "splits operations further")
}

fn stages(profile: &Profile) -> Option<Suggestion> {
    let stages = profile.stages.len().max(1) as u64 * 2;
    let over = share(profile.fit.over_bytes, profile.fit.available_bytes);
    let finding = format!("{} too much for one chip", bytes(profile.fit.over_bytes));
    let enough = stages <= profile.system.chips && profile.fit.over_bytes > 0;
    let change = Some(Change::Stages(stages));
    suggest(if enough { 0.5 + over } else { 0.0 }, finding, change, "divide the model over more chips")
}

fn code(profile: &Profile) -> Option<Suggestion> {
    let taken = share(profile.memory.fullest.exchange_code, profile.memory.tile_bytes);
    let finding =
        format!("exchange code takes {} of the fullest tile", bytes(profile.memory.fullest.exchange_code));
    suggest(taken, finding, None, "repeat equal layers, which share it, or use fewer, larger operations")
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
        let sentences = |profile: &Profile| -> Vec<String> {
            suggestions(profile, false).iter().map(Suggestion::sentence).collect()
        };
        let found = sentences(&profile);
        assert_eq!(found.len(), 4, "{found:?}");
        assert!(found[0].starts_with("the host takes 65.0 % of the time for 2.0 KiB"), "{found:?}");
        assert!(found[1].contains("--precision f16"), "{found:?}");
        // A small program with room to spare.
        let roomy =
            Profile { memory: Memory { tile_bytes: 1000, max_used: 100, ..Memory::default() }, ..profile };
        assert!(sentences(&roomy).iter().any(|sentence| sentence.contains("--micro-batch 8")));
        assert_eq!(sentences(&Profile::default()), Vec::<String>::new());
    }

    #[test]
    fn what_does_not_fit_is_divided() {
        let mut profile = Profile {
            memory: Memory { tile_bytes: 1000, max_used: 1500, ..Memory::default() },
            fit: Fit { fits: false, over_bytes: 500, available_bytes: 1000, ..Fit::default() },
            ..Profile::default()
        };
        profile.system.chips = 4;
        let found = suggestions(&profile, true);
        assert_eq!(found[0].change, Some(Change::Stages(2)));
        assert_eq!(found[0].change.as_ref().unwrap().options(), "--stages 2");
        profile.system.chips = 1;
        assert!(suggestions(&profile, true).iter().all(|found| found.change != Some(Change::Stages(2))));
    }
}
