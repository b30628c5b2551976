//! Branches and loops: the functions that they run are planned as if they stood alone, with operands where
//! they lie. Constants and inputs that nothing used before lie as the function wants them.

use super::family::Families;
use super::fuse::all_users;
use super::{Method, Plan, Planner};
use crate::layouts::without_copies;
use pando_base::IdSet;
use pando_graph::{Func, FuncId, Node, ValueDef, ValueId};
use pando_tile::{Grid, Layout, Region};

impl<'a> Planner<'a> {
    /// Results lie as the first side leaves them.
    pub(super) fn branch(&mut self, then_func: FuncId, else_func: FuncId, node: &Node) -> Method {
        self.settled(node.operands[0]);
        let operands = &node.operands[1..];
        let then_plan = self.inner(then_func, 0, operands);
        let else_plan = self.inner(else_func, 0, operands);
        let results = self.module.funcs[then_func].results.clone();
        self.keep(node, &results, &then_plan);
        Method::Control(vec![then_plan, else_plan])
    }

    /// At first every value of the body lies as the body likes it best. Then carried values lie as an iteration
    /// leaves them, so that they stay where they are from one to the next; what no iteration changes is kept where
    /// the body uses it. Before the carried values the body takes the number of the iteration.
    pub(super) fn repeat(&mut self, body: FuncId, node: &Node) -> Method {
        let target = &self.module.funcs[body];
        let (params, results) = (target.params[1..].to_vec(), target.results.clone());
        let stays = |at: usize| params[at] == results[at];
        let steady: Vec<ValueId> = (0..params.len()).filter(|&at| stays(at)).map(|at| params[at]).collect();
        let first = self.body_plan(body, &steady, &[]);
        let changing = (0..params.len()).filter(|&at| !stays(at));
        let left = |at: usize| first.layouts[results[at]].clone().expect("every value is planned");
        let lie: Vec<(ValueId, Layout)> = changing.map(|at| (params[at], left(at))).collect();
        let plan = self.body_plan(body, &steady, &lie);
        for (at, &operand) in node.operands.iter().enumerate() {
            let wanted = plan.layouts[params[at]].clone().expect("every value is planned");
            self.want_for_loop(operand, &wanted, stays(at));
        }
        self.keep(node, &params, &plan);
        Method::Control(vec![plan])
    }

    /// The plan of a loop's body with these layouts of some of its parameters.
    fn body_plan(&mut self, body: FuncId, steady: &[ValueId], lie: &[(ValueId, Layout)]) -> Plan {
        let target = &self.module.funcs[body];
        let mut planner = self.planner_of(target);
        planner.steady = steady.iter().copied().collect();
        planner.plan.layouts[target.params[0]] = Some(planner.on_all_tiles());
        for (param, layout) in lie {
            planner.plan.layouts[*param] = Some(without_copies(layout, &planner.shape(*param)));
        }
        planner.nodes();
        self.take_back(planner)
    }

    /// A copy of one element on every tile.
    fn on_all_tiles(&self) -> Layout {
        Layout { grid: Grid::packed(0, &[self.tiles()]), region: Region::new() }
    }

    /// A constant that a loop keeps is stored where the loop uses it, copies and all.
    fn want_for_loop(&mut self, operand: ValueId, wanted: &Layout, stays: bool) {
        let is_constant = matches!(self.func.values[operand].def, ValueDef::Node(..));
        if stays && is_constant && self.is_open(operand) {
            self.plan.layouts[operand] = Some(wanted.clone());
        }
        self.want(operand, wanted);
    }

    pub(super) fn while_loop(&mut self, cond: FuncId, body: FuncId, node: &Node) -> Method {
        // The body has the work, so it is asked first.
        let body_plan = self.inner(body, 0, &node.operands);
        let params = self.module.funcs[body].params.clone();
        self.keep(node, &params, &body_plan);
        let cond_plan = self.inner(cond, 0, &node.operands);
        Method::Control(vec![cond_plan, body_plan])
    }

    /// A planner of another function, which knows what this one does.
    pub(super) fn planner_of<'b>(&mut self, func: &'b Func) -> Planner<'b>
    where
        'a: 'b,
    {
        Planner {
            module: self.module,
            func,
            machine: self.machine,
            options: self.options,
            rooms: self.rooms,
            plan: Plan::default(),
            users: all_users(func),
            steady: IdSet::default(),
            found: std::mem::take(&mut self.found),
            families: Families::default(),
            preplanned: Default::default(),
            slice_of: None,
        }
    }

    /// The plan that such a planner made.
    pub(super) fn take_back(&mut self, planner: Planner) -> Plan {
        self.found = planner.found;
        planner.plan
    }

    /// The plan of a function whose parameters, after `skip` others, are the operands.
    fn inner(&mut self, func: FuncId, skip: usize, operands: &[ValueId]) -> Plan {
        let target = &self.module.funcs[func];
        let mut planner = self.planner_of(target);
        let params = || target.params[skip..].iter().zip(operands);
        for (&param, &operand) in params() {
            let layout = self.plan.layouts[operand].as_ref();
            planner.plan.layouts[param] = layout.map(|home| without_copies(home, &planner.shape(param)));
        }
        planner.nodes();
        let plan = self.take_back(planner);
        for (&param, &operand) in params() {
            let wanted: Layout = plan.layouts[param].clone().expect("every value is planned");
            self.want(operand, &wanted);
        }
        plan
    }

    /// The node's results lie as these values of an inner function do.
    fn keep(&mut self, node: &Node, values: &[ValueId], plan: &Plan) {
        for (&result, &value) in node.results.iter().zip(values) {
            let layout = plan.layouts[value].clone().expect("every value is planned");
            let shape = self.shape(result);
            self.set_value(result, without_copies(&layout, &shape));
        }
    }
}
