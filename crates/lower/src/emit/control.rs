//! Branches and loops. Their functions' steps are emitted once; parameters are the operands' own variables
//! where nothing writes them, carried values are variables that each iteration ends by writing.

use super::{Emitter, Scope};
use crate::plan::{Plan, everywhere};
use pando_base::{DType, Shape};
use pando_graph::{FuncId, Node, Op, ValueId};
use pando_tile::{Flags, Grid, Kernel, Layout, Region, Step, VarId};

/// A carried value of a loop.
struct Carried {
    var: VarId,
    /// Whether iterations change it.
    changes: bool,
}

impl<'a> Emitter<'a> {
    pub(super) fn branch(&mut self, node: &Node, plans: &'a [Plan]) {
        let flag = self.everywhere(node.operands[0]);
        let args: Vec<VarId> = node.operands[1..].iter().map(|&operand| self.home(operand)).collect();
        let label = self.label(node);
        self.flush(&label);
        let outs: Vec<VarId> = (0..node.results.len()).map(|index| self.result_of(node, index)).collect();
        let mut sides = node.op.funcs().into_iter().zip(plans).map(|(func, plan)| {
            self.steps_of(func, plan, &args, |emitter, results| {
                for (&result, &out) in results.iter().zip(&outs) {
                    let home = emitter.home(result);
                    emitter.copy_whole(home, out);
                }
                emitter.flush(&label);
            })
        });
        let (then_body, else_body) = (sides.next().unwrap_or_default(), sides.next().unwrap_or_default());
        drop(sides);
        self.program.body.push(Step::If { flags: Flags::from_elem(flag, 1), then_body, else_body });
    }

    pub(super) fn repeat(&mut self, count: u64, body: FuncId, node: &Node, plan: &'a Plan) {
        if count == 0 {
            for (&result, &operand) in node.results.iter().zip(&node.operands) {
                self.scope.homes[result] = Some(self.home(operand));
            }
            return;
        }
        let carried = self.carried(node, body, 1, plan);
        let label = self.label(node);
        let counter = self.counter(node);
        self.flush(&label);
        let args: Vec<VarId> = std::iter::once(counter).chain(carried.iter().map(|c| c.var)).collect();
        let body = self.loop_body(body, plan, &args, |emitter, results| {
            emitter.carry_over(&carried, results, &label);
            emitter.count_up(counter, &label);
        });
        self.program.body.push(Step::Repeat { count, body });
        self.after_loop(node, &carried);
    }

    /// How often it runs depends on data; one iteration is counted.
    pub(super) fn while_loop(&mut self, node: &Node, plans: &'a [Plan]) {
        let &Op::While { cond, body } = &node.op else { unreachable!("only called for these") };
        let carried = self.carried(node, body, 0, &plans[1]);
        let label = self.label(node);
        self.flush(&label);
        let args: Vec<VarId> = carried.iter().map(|c| c.var).collect();
        let mut flags = Flags::new();
        let cond = self.steps_of(cond, &plans[0], &args, |emitter, results| {
            flags.push(emitter.everywhere(results[0]));
            emitter.flush(&label);
        });
        let body = self.steps_of(body, &plans[1], &args, |emitter, results| {
            emitter.carry_over(&carried, results, &label);
        });
        self.program.body.push(Step::While { cond, flags, body, trips: 1 });
        self.after_loop(node, &carried);
    }

    /// Emits a function whose parameters are stored in `args`, ended by `finish`, as a list of steps.
    fn steps_of(
        &mut self,
        func: FuncId,
        plan: &'a Plan,
        args: &[VarId],
        finish: impl FnOnce(&mut Self, &[ValueId]),
    ) -> Vec<Step> {
        let scope = Scope::new(&self.module.funcs[func], plan, false);
        self.steps_in(scope, args, finish)
    }

    /// As [`Emitter::steps_of`], of a repeat's body: parameters after the counter become the results.
    fn loop_body(
        &mut self,
        func: FuncId,
        plan: &'a Plan,
        args: &[VarId],
        finish: impl FnOnce(&mut Self, &[ValueId]),
    ) -> Vec<Step> {
        let func = &self.module.funcs[func];
        let mut scope = Scope::new(func, plan, false);
        let pairs = func.params[1..].iter().zip(&func.results).filter(|(param, result)| param != result);
        pairs.for_each(|(&param, &result)| scope.becomes[param] = Some(result));
        self.steps_in(scope, args, finish)
    }

    fn steps_in(
        &mut self,
        scope: Scope<'a>,
        args: &[VarId],
        finish: impl FnOnce(&mut Self, &[ValueId]),
    ) -> Vec<Step> {
        let func = scope.func;
        let outer = std::mem::replace(&mut self.scope, scope);
        let before = std::mem::take(&mut self.program.body);
        for (&param, &arg) in func.params.iter().zip(args) {
            self.scope.homes[param] = Some(arg);
        }
        self.nodes();
        finish(self, &func.results);
        self.scope = outer;
        std::mem::replace(&mut self.program.body, before)
    }

    /// A copy of a bool on every tile of the program.
    fn everywhere(&mut self, value: ValueId) -> VarId {
        let layout = everywhere(&self.all_tiles(), &self.shape(value));
        self.fetch(value, &layout)
    }

    /// One element on every tile of the program.
    fn all_tiles(&self) -> Layout {
        Layout { grid: Grid::packed(0, &[self.working_tiles()]), region: Region::new() }
    }

    /// Variables of a loop's carried values, which begin as the operands. `skip` parameters come before them.
    fn carried(&mut self, node: &Node, body: FuncId, skip: usize, body_plan: &Plan) -> Vec<Carried> {
        let body = &self.module.funcs[body];
        let values = node.operands.iter().zip(&node.results).enumerate();
        let mut carried = Vec::new();
        for (index, (&operand, &result)) in values {
            if body.results[index] == body.params[skip + index] {
                // Once, where the body uses it.
                let layout =
                    body_plan.layouts[body.params[skip + index]].clone().expect("every value is planned");
                carried.push(Carried { var: self.fetch(operand, &layout), changes: false });
                continue;
            }
            let home = self.home(operand);
            let name = self.base_name(result);
            let (dtype, shape, layout) = (self.dtype(result), self.shape(result), self.layout(result));
            let var = self.temp(&name, dtype, shape, &layout);
            self.copy_whole(home, var);
            carried.push(Carried { var, changes: true });
        }
        carried
    }

    /// The end of an iteration: results become the carried values, all at once. A result that is another
    /// carried value is set aside first, since no exchange writes what it reads.
    fn carry_over(&mut self, carried: &[Carried], results: &[ValueId], label: &str) {
        let changing: Vec<(VarId, VarId)> = carried
            .iter()
            .zip(results)
            .filter(|(carried, _)| carried.changes)
            .map(|(carried, &result)| (self.home(result), carried.var))
            .filter(|(from, to)| from != to)
            .collect();
        let mut moves = Vec::new();
        for &(from, to) in &changing {
            let is_carried = changing.iter().any(|&(_, var)| var == from);
            moves.push((if is_carried { self.set_aside(from) } else { from }, to));
        }
        self.flush(label);
        moves.into_iter().for_each(|(from, to)| self.copy_whole(from, to));
        self.flush(label);
    }

    fn set_aside(&mut self, var: VarId) -> VarId {
        let copied = self.program.vars[var].clone();
        let name = format!("{}.before", copied.name);
        let aside = self.temp(&name, copied.dtype, copied.shape, &copied.home);
        self.copy_whole(var, aside);
        aside
    }

    fn after_loop(&mut self, node: &Node, carried: &[Carried]) {
        for (&result, carried) in node.results.iter().zip(carried) {
            self.scope.homes[result] = Some(carried.var);
        }
    }

    /// The number of the iteration, from 0; every tile counts for itself.
    pub(super) fn counter(&mut self, node: &Node) -> VarId {
        let name = format!("{}.iteration", self.base_name(node.results[0]));
        let layout = self.all_tiles();
        let var = self.temp(&name, DType::I32, Shape::scalar(), &layout);
        let label = self.label(node);
        self.compute(&label, Kernel::Fill { value: 0.0 }, &layout.grid, vec![(var, Region::new())]);
        var
    }

    pub(super) fn count_up(&mut self, counter: VarId, label: &str) {
        let operands = [counter, counter].map(|var| (var, Region::new())).to_vec();
        self.compute(label, Kernel::Count, &self.all_tiles().grid, operands);
    }
}
