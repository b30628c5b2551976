//! When each variable's contents matter: from its first write to its last read, in points of the program
//! (one per step, loop bodies and both sides of branches once).

use crate::kernel::Access;
use crate::program::{Program, Step, VarId};
use pando_base::SideTable;
use rustc_hash::{FxHashMap, FxHashSet};

/// First and last point (inclusive) at which a variable must keep its storage; `None` if never used.
#[derive(Clone, Debug, Default)]
pub struct Liveness {
    pub ranges: SideTable<VarId, Option<(u32, u32)>>,
    /// Number of points.
    pub points: u32,
}

/// A step without steps inside, with its point.
pub struct Point<'a> {
    pub step: &'a Step,
    /// How often it is counted to run: the product of the counts of the loops around it.
    pub times: u64,
}

/// The steps in order, loop bodies and both sides of branches once.
pub fn points(program: &Program) -> Vec<Point<'_>> {
    fn walk<'a>(steps: &'a [Step], times: u64, out: &mut Vec<Point<'a>>) {
        for step in steps {
            let bodies = step.bodies();
            if bodies.is_empty() {
                out.push(Point { step, times });
            }
            bodies.iter().for_each(|&(body, count)| walk(body, times.saturating_mul(count), out));
        }
    }
    let mut out = Vec::new();
    walk(&program.body, 1, &mut out);
    out
}

/// Variables that a step reads and writes.
pub fn accesses(program: &Program, step: &Step) -> Vec<(VarId, Access)> {
    match step {
        Step::Compute(id) => program.compute_sets[*id]
            .groups
            .iter()
            .flat_map(|group| {
                group.operands.iter().map(|o| o.var).zip(group.kernel.signature().iter().copied())
            })
            .collect(),
        Step::Exchange(id) => program.exchanges[*id]
            .copies
            .iter()
            .flat_map(|copy| {
                let written = copy.dsts.iter().map(|&dst| (dst, Access::Out));
                std::iter::once((copy.src, Access::In)).chain(written)
            })
            .collect(),
        Step::HostIn(var) => vec![(*var, Access::Out)],
        Step::HostOut(var) => vec![(*var, Access::In)],
        Step::Repeat { .. } | Step::Stream { .. } | Step::If { .. } | Step::While { .. } => {
            let inside = step.bodies();
            let inside = inside.iter().flat_map(|(body, _)| *body).flat_map(|step| accesses(program, step));
            step.flags().iter().map(|&flag| (flag, Access::In)).chain(inside).collect()
        }
    }
}

/// Live ranges. Constants and state live always. A variable that crosses a loop's boundary, or whose first access
/// in a loop is a read, lives through the whole loop. Takes time by the size of the program and the depth of its loops.
pub fn liveness(program: &Program) -> Liveness {
    let mut live = Liveness::default();
    let counts = count(program, &program.body);
    walk(program, &program.body, &counts, &mut live);
    let last = live.points.saturating_sub(1);
    for (id, var) in program.vars.iter() {
        if var.role.always_lives() {
            live.ranges[id] = Some((0, last));
        }
    }
    live
}

/// How often steps access each variable.
fn count(program: &Program, steps: &[Step]) -> FxHashMap<VarId, u32> {
    let mut counts = FxHashMap::default();
    for (var, _) in steps.iter().flat_map(|step| accesses(program, step)) {
        *counts.entry(var).or_default() += 1;
    }
    counts
}

fn walk(program: &Program, steps: &[Step], counts: &FxHashMap<VarId, u32>, live: &mut Liveness) {
    for step in steps {
        let bodies = step.bodies();
        if bodies.is_empty() {
            for (var, _) in accesses(program, step) {
                extend(live, var, live.points);
            }
            live.points += 1;
            continue;
        }
        let begin = live.points;
        bodies.iter().for_each(|&(body, _)| walk(program, body, counts, live));
        // A flag is looked at between two points: it must last until the second.
        step.flags().iter().for_each(|&flag| extend(live, flag, begin));
        if !step.is_loop() {
            continue;
        }
        let end = live.points.saturating_sub(1).max(begin);
        // The next item comes, and the last one goes, while the body runs.
        for var in crate::stream::transferred(step) {
            extend(live, var, begin);
            extend(live, var, end);
        }
        let read = read_first(program, step);
        // Whoever has more accesses is touched outside the loop, too: it must survive the iterations.
        let inside = count(program, std::slice::from_ref(step));
        let lasts = |&(var, inside): &(VarId, u32)| inside < counts[&var] || read.contains(&var);
        for (var, _) in inside.into_iter().filter(lasts) {
            extend(live, var, begin);
            extend(live, var, end);
        }
    }
}

fn extend(live: &mut Liveness, var: VarId, point: u32) {
    let range = &mut live.ranges[var];
    *range = Some(range.map_or((point, point), |(first, last)| (first.min(point), last.max(point))));
}

/// What steps do with a variable first. Who writes it on some ways only does nothing with it.
#[derive(Clone, Copy, PartialEq)]
enum Use {
    Reads,
    /// Whatever branches are taken.
    Writes,
}

type Uses = FxHashMap<VarId, Use>;

/// Variables of which an iteration of a loop may read what the one before wrote.
fn read_first(program: &Program, the_loop: &Step) -> FxHashSet<VarId> {
    let bodies = the_loop.bodies();
    let all = first_uses(program, bodies.iter().flat_map(|(body, _)| *body));
    let mut read: FxHashSet<VarId> =
        all.into_iter().filter(|(_, first)| *first == Use::Reads).map(|(var, _)| var).collect();
    if !the_loop.flags().is_empty() {
        let before = first_uses(program, bodies[0].0);
        read.extend(the_loop.flags().iter().filter(|flag| before.get(*flag) != Some(&Use::Writes)));
    }
    read
}

fn first_uses<'a>(program: &Program, steps: impl IntoIterator<Item = &'a Step>) -> Uses {
    let mut uses = Uses::default();
    for (var, first) in steps.into_iter().flat_map(|step| uses_of(program, step)) {
        uses.entry(var).or_insert(first);
    }
    uses
}

fn uses_of(program: &Program, step: &Step) -> Uses {
    let bodies = step.bodies();
    if bodies.is_empty() {
        let mut uses = Uses::default();
        for (var, access) in accesses(program, step) {
            let first = if access == Access::In { Use::Reads } else { Use::Writes };
            uses.entry(var).or_insert(first);
        }
        return uses;
    }
    let each: Vec<Uses> = bodies.iter().map(|(body, _)| first_uses(program, *body)).collect();
    let vars: FxHashSet<VarId> = each.iter().flat_map(Uses::keys).chain(step.flags()).copied().collect();
    vars.into_iter().filter_map(|var| Some((var, use_in(step, &each, var)?))).collect()
}

/// What a step with others inside does first, by what each of its bodies does.
fn use_in(step: &Step, bodies: &[Uses], var: VarId) -> Option<Use> {
    let mut each = bodies.iter().map(|uses| uses.get(&var));
    // The condition of a loop runs in any case, before the flag is looked at; the body perhaps not.
    if matches!(step, Step::While { .. }) && bodies[0].get(&var) == Some(&Use::Writes) {
        return Some(Use::Writes);
    }
    if step.flags().contains(&var) || each.clone().any(|first| first == Some(&Use::Reads)) {
        return Some(Use::Reads);
    }
    each.all(|first| first == Some(&Use::Writes)).then_some(Use::Writes)
}
