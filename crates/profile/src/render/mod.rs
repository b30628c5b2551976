//! One screen for a person: does it fit, how fast is it, where do time and memory go, how far to trust it.
//!
//! In: a profile. Out: text with aligned columns, deterministic, without colours unless asked for.
//! Deliberately not here: anything that is not in the profile; sums come from [`crate::reduce`].

mod columns;
mod memory;
mod stages;
mod summary;
mod time;
mod units;

pub use units::{amount, bytes, count, duration, energy, percent, rate};

use crate::schema::Profile;
use std::fmt::Write;

/// How text may be emphasised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Style {
    #[default]
    Plain,
    /// ANSI escape sequences, for terminals.
    Color,
}

/// What is emphasised, and so in which colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tone {
    Heading,
    Good,
    Bad,
    Faint,
}

impl Style {
    fn paint(self, tone: Tone, text: &str) -> String {
        let code = match tone {
            Tone::Heading => "1",
            Tone::Good => "1;32",
            Tone::Bad => "1;31",
            Tone::Faint => "2",
        };
        match self {
            Style::Plain => text.to_string(),
            Style::Color => format!("\x1b[{code}m{text}\x1b[0m"),
        }
    }
}

/// The whole screen, ending in a newline.
pub fn table(profile: &Profile, style: Style) -> String {
    let mut out = String::new();
    summary::verdict(profile, style, &mut out);
    out.push('\n');
    summary::speed(profile, &mut out);
    out.push('\n');
    stages::stages(profile, style, &mut out);
    time::by_kind(profile, style, &mut out);
    out.push('\n');
    time::costliest(profile, style, &mut out);
    out.push('\n');
    memory::fullest(profile, style, &mut out);
    out.push('\n');
    summary::trust(profile, style, &mut out);
    out
}

/// Writing to a string cannot fail.
fn line(out: &mut String, text: impl std::fmt::Display) {
    writeln!(out, "{text}").expect("writing to a string");
}
