//! Time of loops that the host feeds.
//!
//! A stream's body is three parts: items are taken from the I/O tiles, worked on, results are brought to the I/O tiles
//! ([`pando_tile::stream`]). Beside the work the host writes the next item and then reads the last one's results (I/O
//! tiles do one transfer at a time); the chip goes on when both have ended. So with parts `enter`, `work`, `leave` and
//! transfers `load`, `store` a period is `enter + max(work, load + store) + leave`, but never less than the host
//! needs from one item to the next. The first item's load and the last one's store have nothing to run beside; that the
//! first and last of the periods have one transfer less is not counted.

use super::Timer;
use super::host::callback_period;
use pando_profile::{Cycles, Step as TimedStep, StepKind};
use pando_tile::Step;
use std::ops::Range;

/// Cycles of one item in a loop that the host feeds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// From the start of one item to that of the next.
    pub period: u64,
    /// From the start of an item's first transfer to the end of its last one.
    pub latency: u64,
    /// Of its transfers with the host.
    pub host: u64,
    /// Of everything else.
    pub chip: u64,
}

/// Saturating.
fn sum(cycles: &[u64]) -> u64 {
    cycles.iter().fold(0, |sum, &cycles| sum.saturating_add(cycles))
}

impl Timer<'_> {
    pub(super) fn stream(&mut self, step: &Step, times: u64) {
        let Step::Stream { count, load, body, store } = step else { unreachable!("only called for these") };
        let window = pando_tile::stream::window(self.program, step).expect("valid streams have one");
        let (all, later) = (times.saturating_mul(*count), times.saturating_mul(count - 1));
        let first = self.part(load, times);
        let mut parts = [0u64; 3];
        parts[0] = self.part_cycles(&body[..window.start], all);
        let beside = self.timeline.steps.len();
        self.push_beside(first.clone(), later);
        parts[1] = self.part_cycles(&body[window.clone()], all);
        parts[2] = self.part_cycles(&body[window.end..], all);
        let last = self.part(store, times);
        self.push_beside(last.clone(), later);
        let after = last.end..self.timeline.steps.len();
        let (load, store) = (self.cycles_of(first.clone(), times), self.cycles_of(last, times));
        let (host, chip) = (sum(&[load, store]), sum(&parts));
        let work = parts[1].max(host);
        let own = sum(&[parts[0], work, parts[2]]);
        let period =
            if first.is_empty() { own } else { own.max(callback_period(self.program, self.machine)) };
        self.hide(beside..beside + first.len(), load.saturating_sub(parts[1]), period - own);
        self.hide(after, work - parts[1].max(load), 0);
        let latency = if *count > 1 { sum(&[period, period, host]) } else { sum(&[chip, host]) };
        self.timeline.pace = Some(Pace { period, latency, host, chip });
    }

    /// A loop with transfers in its body: the host may be slower than the body.
    pub(super) fn await_host(&mut self, step: &Step, begin: usize, times: u64) {
        let Step::Repeat { count, body } = step else { return };
        if !body.iter().any(|step| matches!(step, Step::HostIn(_) | Step::HostOut(_))) {
            return;
        }
        let all = times.saturating_mul(*count);
        let latency = self.cycles_of(begin..self.timeline.steps.len(), all);
        let steps = &mut self.timeline.steps[begin..];
        let host = sum(&steps
            .iter()
            .filter(|step| step.times == all)
            .map(|step| step.parts.host)
            .collect::<Vec<_>>());
        let asks = |step: &&mut TimedStep| step.kind == StepKind::HostIn && step.times == all;
        let mut period = latency;
        if let Some(step) = steps.iter_mut().find(asks) {
            period = latency.max(callback_period(self.program, self.machine));
            step.cycles = sum(&[step.cycles, period - latency]);
            step.parts.host = step.cycles;
        }
        self.timeline.pace = Some(Pace { period, latency, host, chip: latency.saturating_sub(host) });
    }

    /// The same transfers for all items that have neighbours.
    fn push_beside(&mut self, transfers: Range<usize>, times: u64) {
        for index in transfers {
            let step = self.timeline.steps[index].clone();
            self.push(TimedStep { name: format!("{} beside work", step.name), ..step }, times, 0);
        }
    }

    fn part(&mut self, steps: &[Step], times: u64) -> Range<usize> {
        let begin = self.timeline.steps.len();
        self.walk(steps, times);
        begin..self.timeline.steps.len()
    }

    fn part_cycles(&mut self, steps: &[Step], times: u64) -> u64 {
        let part = self.part(steps, times);
        self.cycles_of(part, times)
    }

    /// Cycles of one of `times` passes over steps.
    fn cycles_of(&self, steps: Range<usize>, times: u64) -> u64 {
        let all = |all: u64, step: &TimedStep| all.saturating_add(step.total_cycles());
        self.timeline.steps[steps].iter().fold(0, all) / times.max(1)
    }

    /// Of transfers that run beside other steps only the `exposed` cycles are waited for, and those by which the host
    /// is `late`.
    fn hide(&mut self, steps: Range<usize>, exposed: u64, mut late: u64) {
        let mut left = exposed;
        for step in &mut self.timeline.steps[steps] {
            let waits = left.min(step.cycles);
            left -= waits;
            step.hidden_cycles = step.cycles - waits;
            step.cycles = sum(&[waits, std::mem::take(&mut late)]);
            step.parts = Cycles { host: step.cycles, ..Cycles::default() };
        }
    }
}
