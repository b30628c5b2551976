//! When each variable's contents matter: from its first write to its last read, in points of the program
//! (one per step, loop bodies once).

use crate::kernel::Access;
use crate::program::{Program, Role, Step, VarId};
use pando_base::SideTable;

/// First and last point (inclusive) at which a variable must keep its storage; `None` if never used.
#[derive(Clone, Debug, Default)]
pub struct Liveness {
    pub ranges: SideTable<VarId, Option<(u32, u32)>>,
    /// Number of points.
    pub points: u32,
}

/// A step that is not a loop, with its point.
pub struct Point<'a> {
    pub step: &'a Step,
    /// How often it runs: the product of the counts of the loops around it.
    pub times: u64,
}

/// The steps in order, loop bodies once.
pub fn points(program: &Program) -> Vec<Point<'_>> {
    fn walk<'a>(steps: &'a [Step], times: u64, out: &mut Vec<Point<'a>>) {
        for step in steps {
            match step {
                Step::Repeat { count, body } => walk(body, times.saturating_mul(*count), out),
                _ => out.push(Point { step, times }),
            }
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
        Step::Repeat { body, .. } => body.iter().flat_map(|step| accesses(program, step)).collect(),
    }
}

/// Live ranges. Constants live always. A variable that crosses a loop's boundary, or whose first access
/// in a loop is a read, lives through the whole loop.
pub fn liveness(program: &Program) -> Liveness {
    let mut live = Liveness::default();
    walk(program, &program.body, &mut live);
    let last = live.points.saturating_sub(1);
    for (id, var) in program.vars.iter() {
        if matches!(var.role, Role::Constant(_)) {
            live.ranges[id] = Some((0, last));
        }
    }
    live
}

fn walk(program: &Program, steps: &[Step], live: &mut Liveness) {
    for step in steps {
        let Step::Repeat { body, .. } = step else {
            for (var, _) in accesses(program, step) {
                extend(live, var, live.points);
            }
            live.points += 1;
            continue;
        };
        let begin = live.points;
        let before: Vec<VarId> = program.vars.ids().filter(|&var| live.ranges[var].is_some()).collect();
        walk(program, body, live);
        let end = live.points.saturating_sub(1).max(begin);
        let crosses = |var: VarId| before.contains(&var) || reads_first(program, body, var);
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

fn reads_first(program: &Program, body: &[Step], var: VarId) -> bool {
    let first = body.iter().flat_map(|step| accesses(program, step)).find(|&(v, _)| v == var);
    first.is_some_and(|(_, access)| access == Access::In)
}

/// Whether any step outside the loop touches the variable: then it must survive the loop's iterations.
fn used_after(program: &Program, var: VarId, the_loop: &Step) -> bool {
    fn outside<'a>(steps: &'a [Step], the_loop: &Step, out: &mut Vec<&'a Step>) {
        for step in steps.iter().filter(|step| !std::ptr::eq(*step, the_loop)) {
            match step {
                Step::Repeat { body, .. } if contains(body, the_loop) => outside(body, the_loop, out),
                _ => out.push(step),
            }
        }
    }
    fn contains(steps: &[Step], the_loop: &Step) -> bool {
        steps.iter().any(|step| {
            std::ptr::eq(step, the_loop)
                || matches!(step, Step::Repeat { body, .. } if contains(body, the_loop))
        })
    }
    let mut steps = Vec::new();
    outside(&program.body, the_loop, &mut steps);
    steps.iter().any(|step| accesses(program, step).iter().any(|&(v, _)| v == var))
}
