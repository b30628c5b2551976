//! Time of every step of a program, from the definitions below, without touching values.
//!
//! - A compute set takes as long as its slowest tile; see [`compute`] for what a tile takes.
//! - An exchange takes a barrier over the tiles (`sync.internal_cycles`) and the transfer
//!   ([`pando_tile::traffic`]) if anything crosses tiles, and then its copies within tiles: all tiles
//!   start together and nobody goes on before the slowest has finished (bulk-synchronous execution,
//!   poplar.md section 2.6).
//! - Adjacent steps from the host, or to it, are one transfer ([`host`]), as the vendor's compiler merges
//!   adjacent stream copies (poplar.md section 2.6).
//! - While a stream's body works between I/O tiles, the host's transfers of its neighbours run ([`stream`]).
//! - A loop multiplies, the slower side of a branch counts. Nothing is charged for branching: a
//!   supervisor's few cycles. How often a loop with a condition runs is what the program says.
//!
//! Replicas run side by side and only meet where they share a way to the host.

mod compute;
mod exchange;
mod host;
mod links;
mod stream;

pub use host::{call_cycles, host_cycles};
pub use links::{Hop, Linked, hop};
pub use stream::Pace;

use compute::time_compute;
use exchange::time_exchange;
use pando_machine::Machine;
use pando_profile::{Step as TimedStep, StepKind};
use pando_tile::traffic::Traffic;
use pando_tile::{ComputeSetId, Program, Step, VarId};
use rustc_hash::FxHashMap;

/// Times of a program's steps, loop bodies once. Memory fields of the steps are still zero.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timeline {
    pub steps: Vec<TimedStep>,
    /// For each point of the program (see [`pando_tile::liveness::points`]) the index of its step.
    pub step_of_point: Vec<u32>,
    /// Of the last loop that the host feeds.
    pub pace: Option<Pace>,
}

impl Timeline {
    /// Cycles of one run.
    pub fn cycles(&self) -> u64 {
        self.steps.iter().fold(0, |sum, step| sum.saturating_add(step.total_cycles()))
    }
}

/// Times a valid program. The cost follows the number of groups and, for exchanges, of tiles; equal exchanges are
/// looked at once.
pub fn time(program: &Program, machine: &Machine) -> Timeline {
    time_with(program, machine, &Traffic::new(program, &machine.chip), &Linked::default())
}

/// The same for a program whose traffic is known, and some of whose inputs and outputs are other chips'.
pub(crate) fn time_with(
    program: &Program,
    machine: &Machine,
    traffic: &Traffic,
    linked: &Linked,
) -> Timeline {
    let (computes, timeline) = Default::default();
    let mut timer = Timer { program, machine, traffic, linked, computes, timeline };
    timer.walk(&program.body, 1);
    timer.timeline
}

struct Timer<'a> {
    program: &'a Program,
    machine: &'a Machine,
    traffic: &'a Traffic,
    linked: &'a Linked,
    computes: FxHashMap<ComputeSetId, TimedStep>,
    timeline: Timeline,
}

impl Timer<'_> {
    fn walk(&mut self, steps: &[Step], times: u64) {
        let mut rest = steps;
        while let Some((step, after)) = rest.split_first() {
            let vars = self.transfer(rest);
            match step {
                Step::Repeat { .. } | Step::While { .. } => {
                    let begin = self.timeline.steps.len();
                    for (body, count) in step.bodies() {
                        self.walk(body, times.saturating_mul(count));
                    }
                    self.await_host(step, begin, times);
                }
                Step::Stream { .. } => self.stream(step, times),
                Step::If { then_body, else_body, .. } => self.branch(then_body, else_body, times),
                Step::Compute(id) => self.compute(*id, times),
                Step::Exchange(id) => {
                    let name = &self.program.exchanges[*id].name;
                    self.push(time_exchange(name, self.traffic.cost(*id), &self.machine.chip), times, 1);
                }
                Step::HostIn(_) => self.host(StepKind::HostIn, &vars, times),
                Step::HostOut(_) => self.host(StepKind::HostOut, &vars, times),
            }
            rest = if vars.is_empty() { after } else { &rest[vars.len()..] };
        }
    }

    /// The slower side counts; the steps of the other are listed as running never.
    fn branch(&mut self, then_body: &[Step], else_body: &[Step], times: u64) {
        let begin = self.timeline.steps.len();
        self.walk(then_body, times);
        let middle = self.timeline.steps.len();
        self.walk(else_body, times);
        let sides = self.timeline.steps.split_at_mut(middle);
        let cycles = |steps: &[TimedStep]| {
            steps.iter().fold(0, |sum: u64, step| sum.saturating_add(step.total_cycles()))
        };
        let (then_steps, else_steps) = (&mut sides.0[begin..], sides.1);
        let faster = if cycles(then_steps) < cycles(else_steps) { then_steps } else { else_steps };
        faster.iter_mut().for_each(|step| step.times = 0);
    }

    fn compute(&mut self, id: ComputeSetId, times: u64) {
        let (program, chip) = (self.program, &self.machine.chip);
        let timed =
            self.computes.entry(id).or_insert_with(|| time_compute(program, &program.compute_sets[id], chip));
        let timed = timed.clone();
        self.push(timed, times, 1);
    }

    fn host(&mut self, kind: StepKind, vars: &[VarId], times: u64) {
        let inward = kind == StepKind::HostIn;
        let timed = match self.linked[vars[0]] {
            Some(_) => links::time_links(self.program, self.machine, inward, vars, self.linked),
            None => host::time_host(self.program, self.machine, kind, vars),
        };
        self.push(timed, times, vars.len());
    }

    /// The variables of the transfers of one direction, with the host or with other chips, that the steps begin with.
    fn transfer(&self, steps: &[Step]) -> Vec<VarId> {
        let var = |step: &Step| match step {
            Step::HostIn(var) => Some((true, *var)),
            Step::HostOut(var) => Some((false, *var)),
            _ => None,
        };
        let Some((inward, first)) = var(&steps[0]) else { return Vec::new() };
        let with_host = |var: VarId| self.linked[var].is_none();
        let same =
            |&(its_inward, var): &(bool, VarId)| its_inward == inward && with_host(var) == with_host(first);
        steps.iter().map_while(|step| var(step).filter(same).map(|(_, var)| var)).collect()
    }

    fn push(&mut self, step: TimedStep, times: u64, points: usize) {
        let index = self.timeline.steps.len() as u32;
        self.timeline.step_of_point.extend(std::iter::repeat_n(index, points));
        self.timeline.steps.push(TimedStep { times, ..step });
    }
}
