//! What is going on, on stderr, while it takes longer than a moment; only on a terminal.

use indicatif::{ProgressBar, ProgressStyle};
use std::time::Duration;

/// A spinner that names the current pass; gone when dropped.
pub struct Progress(ProgressBar);

impl Progress {
    pub fn new() -> Self {
        // Draws nothing where stderr is not a terminal.
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        Progress(bar)
    }

    pub fn pass(&self, name: &str) {
        self.0.set_message(name.to_string());
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
