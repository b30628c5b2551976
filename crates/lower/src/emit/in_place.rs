//! What is done where its operand lies: one row of a table by its index, one row's replacement, and elementwise
//! functions of what nobody reads afterwards.

use super::Emitter;
use crate::plan::{Method, everywhere, row_of};
use pando_graph::{Node, ValueDef, ValueId};
use pando_tile::{Copy, CopyMap, Kernel, Layout, Region, Role, VarId};
use smallvec::SmallVec;

impl Emitter<'_> {
    /// Storage for the result of an elementwise function: that of an operand which lies so, element by element, and
    /// which this node reads last; otherwise its own.
    pub(super) fn result_over(&mut self, node: &Node, operands: &[(VarId, Region)]) -> VarId {
        let value = node.results[0];
        let (dtype, shape, layout) = (self.dtype(value), self.shape(value), self.layout(value));
        let suits = |emitter: &Self, var: VarId| {
            let held = &emitter.program.vars[var];
            let alike = held.role == Role::Temp && (held.dtype, &held.shape) == (dtype, &shape);
            let whole = operands.iter().filter(|(other, _)| *other == var).all(|(_, r)| *r == layout.region);
            alike && whole && held.home == layout && emitter.scope.is_last_read(var)
        };
        let over = operands.iter().map(|&(var, _)| var).find(|&var| suits(self, var));
        match over.filter(|_| !(self.scope.is_main && self.leaves_directly(value))) {
            Some(var) => {
                self.scope.store(value, var);
                var
            }
            None => self.result(node),
        }
    }

    pub(super) fn row(&mut self, axis: usize, node: &Node) {
        let (data, shape) = (node.operands[0], self.shape(node.operands[0]));
        let layout = self.layout(node.results[0]);
        // The index's dimensions, of size 1, stand in the row in the axis' place.
        let rank = self.shape(node.operands[1]).rank();
        let mut region: Region = layout.region[..axis].into();
        region.push(pando_tile::Span::full(shape[axis]));
        region.extend(layout.region[axis + rank..].iter().copied());
        let table = Layout { grid: layout.grid.clone(), region };
        let data_var = self.fetch(data, &table);
        let index = self.index(node.operands[1], &layout);
        let out = self.result(node);
        let kernel = Kernel::Gather { axis: axis as u8, size: shape[axis] };
        let operands = vec![(data_var, table.region), index, (out, layout.region)];
        self.compute(&self.label(node), kernel, &layout.grid, operands);
    }

    /// In a loop whose table nobody reads again the row is written where the table is; otherwise into a copy.
    pub(super) fn replaced_row(&mut self, axis: usize, node: &Node) {
        let (data, row, value) = (node.operands[0], node.operands[2], node.results[0]);
        let layout = self.layout(value);
        let row_layout = row_of(&layout, axis, &self.shape(row));
        let row_var = self.fetch(row, &row_layout);
        let index = self.index(node.operands[1], &layout);
        let label = self.label(node);
        let out = match self.takes_over(data, value) {
            Some(var) => {
                self.scope.homes[value] = Some(var);
                var
            }
            None => self.copy_of_table(data, node),
        };
        let kernel = Kernel::Update { axis: axis as u8, size: self.shape(value)[axis] };
        let table = (out, layout.region.clone());
        let operands = vec![table.clone(), index, (row_var, row_layout.region), table];
        self.compute(&label, kernel, &layout.grid, operands);
    }

    /// The variable of a loop's parameter that becomes this value and is read for nothing else.
    fn takes_over(&mut self, param: ValueId, value: ValueId) -> Option<VarId> {
        let func = self.scope.func;
        let reads = func.nodes.values().flat_map(|node| &node.operands).filter(|&&operand| operand == param);
        let only = reads.count() == 1 && !func.results.contains(&param);
        let once = func.results.iter().filter(|&&result| result == value).count() == 1;
        let var = self.scope.homes[param]?;
        let lies = self.program.vars[var].home == self.layout(value);
        (self.scope.becomes[param] == Some(value) && only && once && lies).then_some(var)
    }

    fn copy_of_table(&mut self, data: ValueId, node: &Node) -> VarId {
        let src = self.home(data);
        let out = self.result(node);
        let map = CopyMap::identity(&self.shape(data));
        self.pending.push(Copy { src, dsts: SmallVec::from_slice(&[out]), map });
        out
    }

    /// An index on the tiles of a layout; of one element, whatever its dimensions.
    fn index(&mut self, index: ValueId, layout: &Layout) -> (VarId, Region) {
        let mut index = index;
        while let ValueDef::Node(id, _) = self.scope.func.values[index].def
            && self.scope.plan.methods[id] == Some(Method::View)
        {
            index = self.scope.func.nodes[id].operands[0];
        }
        let all = everywhere(layout, &self.shape(index));
        (self.fetch(index, &all), all.region)
    }
}
