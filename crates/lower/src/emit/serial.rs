//! Products in slices: a loop that takes a slice of what is cut, computes its product as any other, and puts or adds the
//! result where it belongs.

use super::{Emitter, Scope};
use crate::plan::SerialPlan;
use pando_base::BinaryFn;
use pando_graph::Node;
use pando_tile::{Kernel, Layout, Region, Step, VarId};

impl<'a> Emitter<'a> {
    pub(super) fn serial(&mut self, node: &Node, serial: &'a SerialPlan) {
        let label = self.label(node);
        // What serves every slice is brought once; what is cut, if it does not lie in whole rounds of slices.
        let operands: Vec<VarId> =
            (0..2).map(|at| self.fetch(node.operands[at], &serial.operands[at])).collect();
        let whole = self.whole_result(node, serial);
        let counter = self.counter(node);
        self.flush(&label);
        let outer = std::mem::replace(&mut self.scope, Scope::new(&serial.func, &serial.plan, false));
        let before = std::mem::take(&mut self.program.body);
        for (at, &var) in operands.iter().enumerate() {
            let param = serial.func.params[at];
            let var =
                if serial.cut.dims[at].is_some() { self.take_slice(serial, at, var, counter) } else { var };
            self.scope.homes[param] = Some(var);
        }
        self.nodes();
        self.put_slice(serial, whole, counter, &label);
        self.count_up(counter, &label);
        self.scope = outer;
        let body = std::mem::replace(&mut self.program.body, before);
        self.program.body.push(Step::Repeat { count: serial.cut.slices, body });
        if self.program.vars[whole].dtype != self.dtype(node.results[0]) {
            let layout = self.layout(node.results[0]);
            let out = self.result(node);
            let operands = vec![(whole, layout.region.clone()), (out, layout.region.clone())];
            self.compute(&label, Kernel::Cast, &layout.grid, operands);
        }
    }

    /// What the slices' results end up in: the result, or sums of another type, which begin as zero.
    fn whole_result(&mut self, node: &Node, serial: &SerialPlan) -> VarId {
        let (value, label) = (node.results[0], self.label(node));
        let sums = serial.func.ty(serial.func.results[0]).dtype;
        let (shape, layout) = (self.shape(value), self.layout(value));
        let var = if sums == self.dtype(value) {
            self.result(node)
        } else {
            let name = format!("{}.sums", self.base_name(value));
            self.temp(&name, sums, shape, &layout)
        };
        if serial.cut.dims[2].is_none() {
            let operands = vec![(var, layout.region.clone())];
            self.compute(&label, Kernel::Fill { value: 0.0 }, &layout.grid, operands);
        }
        var
    }

    /// A slice of an operand, where that lies.
    fn take_slice(&mut self, serial: &SerialPlan, at: usize, whole: VarId, counter: VarId) -> VarId {
        let param = serial.func.params[at];
        let (from, to) = (serial.operands[at].clone(), self.layout(param));
        let name = format!("{}.slice", self.base_name(param));
        let slice = self.temp(&name, self.dtype(param), self.shape(param), &to);
        let attrs = serial.cut.attrs(at).expect("only asked of what is cut");
        let number = (counter, Region::new());
        let operands = vec![(whole, from.region), number, (slice, to.region)];
        let label = self.label(serial.func.nodes.values().next().expect("a slice is one product"));
        self.compute(&label, Kernel::TakeSlice(attrs), &from.grid, operands);
        slice
    }

    fn put_slice(&mut self, serial: &SerialPlan, whole: VarId, counter: VarId, label: &str) {
        let slice = self.home(serial.func.results[0]);
        let layout: Layout = self.program.vars[whole].home.clone();
        let (kernel, operands) = match serial.cut.attrs(2) {
            Some(attrs) => {
                let from = self.program.vars[slice].home.region.clone();
                (
                    Kernel::PutSlice(attrs),
                    vec![(counter, Region::new()), (slice, from), (whole, layout.region.clone())],
                )
            }
            None => {
                let operands = [whole, slice, whole].map(|var| (var, layout.region.clone()));
                (Kernel::Binary(BinaryFn::Add), operands.to_vec())
            }
        };
        self.compute(label, kernel, &layout.grid, operands);
    }
}
