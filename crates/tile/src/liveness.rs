//! When each variable's contents matter: from its first write to its last read, in points of the program
//! (one per step, loop bodies and both sides of branches once).

use crate::kernel::Access;
use crate::program::{Program, Step, VarId};
use pando_base::SideTable;

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
/// in a loop is a read, lives through the whole loop.
pub fn liveness(program: &Program) -> Liveness {
    let mut live = Liveness::default();
    walk(program, &program.body, &mut live);
    let last = live.points.saturating_sub(1);
    for (id, var) in program.vars.iter() {
        if var.role.always_lives() {
            live.ranges[id] = Some((0, last));
        }
    }
    live
}

fn walk(program: &Program, steps: &[Step], live: &mut Liveness) {
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
        let before: Vec<VarId> = program.vars.ids().filter(|&var| live.ranges[var].is_some()).collect();
        bodies.iter().for_each(|&(body, _)| walk(program, body, live));
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
        let crosses = |var: VarId| before.contains(&var) || reads_first(program, step, var);
        let inside: Vec<VarId> = accesses(program, step).into_iter().map(|(var, _)| var).collect();
        for var in inside.into_iter().filter(|&var| crosses(var) || used_after(program, var, step)) {
            extend(live, var, begin);
            extend(live, var, end);
        }
    }
}

fn extend(live: &mut Liveness, var: VarId, point: u32) {
    let range = &mut live.ranges[var];
    *range = Some(range.map_or((point, point), |(first, last)| (first.min(point), last.max(point))));
}

/// What steps do with a variable first.
#[derive(Clone, Copy, PartialEq)]
enum Use {
    Reads,
    /// Whatever branches are taken.
    Writes,
    /// Or writes it on some ways only.
    Nothing,
}

/// Whether an iteration of a loop may read what the one before wrote.
fn reads_first(program: &Program, the_loop: &Step, var: VarId) -> bool {
    let bodies = the_loop.bodies();
    let looked_at = the_loop.flags().contains(&var) && first_use(program, &bodies[..1], var) != Use::Writes;
    looked_at || first_use(program, &bodies, var) == Use::Reads
}

fn first_use(program: &Program, bodies: &[(&[Step], u64)], var: VarId) -> Use {
    let steps = bodies.iter().flat_map(|(body, _)| *body);
    let uses = steps.map(|step| use_of(program, step, var));
    uses.into_iter().find(|&first| first != Use::Nothing).unwrap_or(Use::Nothing)
}

fn use_of(program: &Program, step: &Step, var: VarId) -> Use {
    let bodies = step.bodies();
    let each: Vec<Use> = bodies.iter().map(|&body| first_use(program, &[body], var)).collect();
    match (step, each.as_slice()) {
        // The condition of a loop runs in any case, before the flag is looked at; the body perhaps not.
        (Step::While { .. }, [Use::Writes, _]) => Use::Writes,
        (_, [_, ..]) if step.flags().contains(&var) => Use::Reads,
        (_, []) => match accesses(program, step).into_iter().find(|&(v, _)| v == var) {
            Some((_, Access::In)) => Use::Reads,
            Some((_, Access::Out)) => Use::Writes,
            None => Use::Nothing,
        },
        (_, each) if each.contains(&Use::Reads) => Use::Reads,
        (_, each) if each.iter().all(|&first| first == Use::Writes) => Use::Writes,
        _ => Use::Nothing,
    }
}

/// Whether any step outside the loop touches the variable: then it must survive the loop's iterations.
fn used_after(program: &Program, var: VarId, the_loop: &Step) -> bool {
    fn contains(step: &Step, the_loop: &Step) -> bool {
        std::ptr::eq(step, the_loop)
            || step.bodies().iter().flat_map(|(body, _)| *body).any(|step| contains(step, the_loop))
    }
    fn touched(program: &Program, steps: &[Step], var: VarId, the_loop: &Step) -> bool {
        steps.iter().filter(|step| !std::ptr::eq(*step, the_loop)).any(|step| {
            if contains(step, the_loop) {
                let bodies = step.bodies();
                step.flags().contains(&var)
                    || bodies.iter().any(|(body, _)| touched(program, body, var, the_loop))
            } else {
                accesses(program, step).iter().any(|&(v, _)| v == var)
            }
        })
    }
    touched(program, &program.body, var, the_loop)
}
