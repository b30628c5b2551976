//! Branches and loops: the functions that they run are planned as if they stood alone, with operands where
//! they lie. Constants and inputs that nothing used before lie as the function wants them.

use super::{Method, Plan, Planner, first_users};
use crate::layouts::without_copies;
use pando_graph::{FuncId, Node, ValueId};
use pando_tile::Layout;

impl Planner<'_> {
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

    /// Carried values lie where they came in. Before them the body takes the number of the iteration.
    pub(super) fn repeat(&mut self, body: FuncId, node: &Node) -> Method {
        let plan = self.inner(body, 1, &node.operands);
        let params = self.module.funcs[body].params[1..].to_vec();
        self.keep(node, &params, &plan);
        Method::Control(vec![plan])
    }

    pub(super) fn while_loop(&mut self, cond: FuncId, body: FuncId, node: &Node) -> Method {
        // The body has the work, so it is asked first.
        let body_plan = self.inner(body, 0, &node.operands);
        let params = self.module.funcs[body].params.clone();
        self.keep(node, &params, &body_plan);
        let cond_plan = self.inner(cond, 0, &node.operands);
        Method::Control(vec![cond_plan, body_plan])
    }

    /// The plan of a function whose parameters, after `skip` others, are the operands.
    fn inner(&mut self, func: FuncId, skip: usize, operands: &[ValueId]) -> Plan {
        let target = &self.module.funcs[func];
        let mut planner = Planner {
            module: self.module,
            func: target,
            machine: self.machine,
            options: self.options,
            plan: Plan::default(),
            users: first_users(target),
            balanced: std::mem::take(&mut self.balanced),
            matmuls: std::mem::take(&mut self.matmuls),
            convs: std::mem::take(&mut self.convs),
        };
        let params = || target.params[skip..].iter().zip(operands);
        for (&param, &operand) in params() {
            let layout = self.plan.layouts[operand].as_ref();
            planner.plan.layouts[param] = layout.map(|home| without_copies(home, &planner.shape(param)));
        }
        planner.nodes();
        let plan = planner.plan;
        (self.balanced, self.matmuls, self.convs) = (planner.balanced, planner.matmuls, planner.convs);
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
