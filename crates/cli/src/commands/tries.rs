//! Suggestions that have been tried: the model compiled again with each change, and what came of it. Only what helps is
//! shown.

use super::profile::predict;
use crate::args::{Precision, ProfileArgs};
use crate::progress::Progress;
use pando_profile::Profile;
use pando_profile::reduce::{Change, Suggestion};
use pando_profile::render::{amount, duration};
use serde_json::json;

/// More are not read.
pub const SHOWN: usize = 3;
/// A change is tried at most this often.
const TRIED: usize = 6;
/// And a larger batch doubled this often, a smaller one halved.
const DOUBLED: usize = 2;
const HALVED: usize = 3;
/// Gains below this share are within what any change does.
const GAIN: f64 = 0.03;

/// A change that helped.
pub struct Tried {
    pub sentence: String,
    options: String,
    throughput_per_s: f64,
    latency_s: f64,
    fits: bool,
}

/// Tries suggestions in order until enough have helped; after these come the ones about the model itself.
pub fn sentences(
    suggestions: &[Suggestion],
    base: &Profile,
    args: &ProfileArgs,
    progress: &Progress,
) -> (Vec<String>, Vec<Tried>) {
    let mut tried = Vec::new();
    for suggestion in suggestions.iter().filter(|suggestion| suggestion.change.is_some()).take(TRIED) {
        if tried.len() < SHOWN {
            tried.extend(best(suggestion, base, args, progress));
        }
    }
    tried.sort_by(|a: &Tried, b: &Tried| {
        b.fits.cmp(&a.fits).then(b.throughput_per_s.total_cmp(&a.throughput_per_s))
    });
    let others = suggestions.iter().filter(|suggestion| suggestion.change.is_none());
    let sentences = tried.iter().map(|tried| tried.sentence.clone());
    (sentences.chain(others.map(Suggestion::sentence)).take(SHOWN).collect(), tried)
}

/// The change; where it is a larger batch that helps, one larger still if that helps more; where it is a smaller batch,
/// the first that fits.
fn best(suggestion: &Suggestion, base: &Profile, args: &ProfileArgs, progress: &Progress) -> Option<Tried> {
    let first = attempt(suggestion, base, args, progress);
    let Some(Change::MicroBatch(items)) = suggestion.change else { return first };
    let of = |items: u64| {
        let other = Suggestion { change: Some(Change::MicroBatch(items)), ..suggestion.clone() };
        attempt(&other, base, args, progress)
    };
    if !base.fit.fits {
        let smaller = (1..HALVED).map(|times| items >> times).take_while(|&items| items > 0);
        return first.or_else(|| smaller.into_iter().find_map(of));
    }
    let mut best = first?;
    for times in 1..=DOUBLED {
        match of(items << times) {
            Some(tried) if tried.throughput_per_s > best.throughput_per_s * (1.0 + GAIN) => best = tried,
            _ => break,
        }
    }
    Some(best)
}

/// None if the change is impossible or does not help.
fn attempt(
    suggestion: &Suggestion,
    base: &Profile,
    args: &ProfileArgs,
    progress: &Progress,
) -> Option<Tried> {
    let change = suggestion.change.as_ref()?;
    progress.pass(&format!("trying {}", change.options()));
    let (changed, options) = with(change, args)?;
    let profile = predict(&changed).ok()?.into_profile();
    let gain = profile.throughput_per_s() / base.throughput_per_s().max(f64::MIN_POSITIVE) - 1.0;
    let helps = if base.fit.fits { profile.fit.fits && gain > GAIN } else { profile.fit.fits };
    let what = format!(
        "{} items/s ({:+.0} %), latency {}",
        amount(profile.throughput_per_s()),
        100.0 * gain,
        duration(profile.latency_s())
    );
    let result = if base.fit.fits { format!("gives {what}") } else { format!("fits: {what}") };
    helps.then(|| Tried {
        sentence: format!("{options} {result}; {}", suggestion.finding),
        options,
        throughput_per_s: profile.throughput_per_s(),
        latency_s: profile.latency_s(),
        fits: profile.fit.fits,
    })
}

/// The arguments with a change, and the change as typed; none if it is none for this model.
fn with(change: &Change, args: &ProfileArgs) -> Option<(ProfileArgs, String)> {
    let mut changed = args.clone();
    (changed.exact, changed.report) = (false, None);
    let options = &mut changed.options;
    let mut typed = change.options();
    match *change {
        Change::HalfPrecision => options.precision = Some(Precision::F16),
        Change::EightBits => options.precision = Some(Precision::F8),
        Change::AvailableMemoryProportion(share) => {
            let same = options.available_memory_proportion == share;
            options.available_memory_proportion = (!same).then_some(share)?;
        }
        Change::IoTiles { tiles, iterations } => {
            (options.io_tiles, options.iterations) = (tiles, Some(iterations));
        }
        Change::Stages(stages) => {
            changed.stages = stages;
            changed.stage_ends.clear();
        }
        Change::MicroBatch(items) => match batch_in_name(&args.model.model.to_string_lossy(), items) {
            Some(name) => {
                typed = name.clone();
                changed.model.model = name.into();
            }
            None => options.micro_batch = Some(items),
        },
    }
    Some((changed, typed))
}

/// The name of a built-in model that says its batch, with another batch.
fn batch_in_name(name: &str, items: u64) -> Option<String> {
    let (model, options) = name.strip_prefix("zoo:")?.split_once('?')?;
    let mut said = false;
    let option = |option: &str| {
        let is_batch = option.starts_with("batch=");
        said |= is_batch;
        if is_batch { format!("batch={items}") } else { option.to_string() }
    };
    let options: Vec<String> = options.split('&').map(option).collect();
    said.then(|| format!("zoo:{model}?{}", options.join("&")))
}

impl Tried {
    pub fn json(&self) -> serde_json::Value {
        json!({
            "options": self.options,
            "throughput_per_s": self.throughput_per_s,
            "latency_ms": self.latency_s * 1e3,
            "fits": self.fits,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_in_a_name_is_replaced_there() {
        let other = |name: &str| batch_in_name(name, 8);
        assert_eq!(other("zoo:vit-b16?dtype=f16&batch=4"), Some("zoo:vit-b16?dtype=f16&batch=8".into()));
        assert_eq!(
            [other("zoo:vit-b16"), other("zoo:vit-b16?dtype=f16"), other("a.onnx")],
            [None, None, None]
        );
    }
}
