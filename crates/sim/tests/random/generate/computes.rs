//! Random compute sets: groups over the grid of what they read, with further vertices on each tile.

use super::Generator;
use pando_base::{BinaryFn, CompareFn, DType, ReduceFn, UnaryFn};
use pando_tile::{Axis, Grid, Group, Init, Kernel, Layout, Operand, Part, Region, Role, Span, Var, VarId};
use smallvec::{SmallVec, smallvec};

/// An operand before the group's grid is final. Dimensions of a group's operands with equal labels may only
/// be split together, those without a label not at all.
pub struct Use {
    pub var: VarId,
    pub region: Region,
    pub labels: Vec<Option<usize>>,
}

/// The label of a dimension that only the output has.
const NEW: usize = 100;

impl Generator {
    /// Groups that write new variables, or in place variables that no other group of the set touches.
    pub fn compute(&mut self) {
        let (mut groups, mut written, mut touched) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..=self.source.below(3) {
            let Some(var) = self.pick_readable(|_| true) else { continue };
            let in_place =
                !touched.contains(&var) && self.program.vars[var].role == Role::Temp && self.source.chance(2);
            let Some((kernel, uses)) = self.kernel(var, in_place) else { continue };
            let out = uses.last().expect("every kernel has an output").var;
            touched.extend(uses.iter().map(|operand| operand.var));
            if in_place {
                // Nobody after this group may use it, either.
                self.readable.retain(|&other| other != out);
            }
            written.push(out);
            let grid = self.program.vars[var].home.grid.clone();
            groups.extend(self.groups(kernel, grid, uses));
        }
        if !groups.is_empty() {
            self.push_compute(groups);
        }
        self.readable.extend(written);
    }

    fn kernel(&mut self, var: VarId, in_place: bool) -> Option<(Kernel, Vec<Use>)> {
        if in_place {
            return Some(self.elementwise(var, true));
        }
        match self.source.below(11) {
            0 => self.reduce(var),
            1 => Some(self.transpose(var)),
            2 => Some(self.broadcast(var)),
            3 => Some(self.cast(var)),
            4 => Some(self.select(var)),
            5 => Some(self.fill_or_iota(var)),
            6 => self.gather(var),
            7 => self.narrow(var),
            _ => Some(self.elementwise(var, false)),
        }
    }

    /// A use of a whole variable, dimension by dimension.
    pub fn whole(&self, var: VarId) -> Use {
        let region = self.program.vars[var].home.region.clone();
        Use { var, labels: (0..region.len()).map(Some).collect(), region }
    }

    /// A new variable in the layout of another one.
    fn like(&mut self, var: VarId, dtype: DType) -> VarId {
        let Var { shape, home, .. } = self.program.vars[var].clone();
        self.var(dtype, &shape, home, Role::Temp)
    }

    /// A readable variable of the same type and layout; often the same one.
    fn partner(&mut self, var: VarId) -> VarId {
        let first = self.program.vars[var].clone();
        let alike = move |other: &Var| {
            other.dtype == first.dtype && other.shape == first.shape && other.home == first.home
        };
        self.pick_readable(alike).unwrap_or(var)
    }

    fn elementwise(&mut self, var: VarId, in_place: bool) -> (Kernel, Vec<Use>) {
        let dtype = self.program.vars[var].dtype;
        let unary = self.source.chance(4);
        let out = if in_place { var } else { self.like(var, dtype) };
        if dtype == DType::Bool {
            return (Kernel::Unary(UnaryFn::Not), vec![self.whole(var), self.whole(out)]);
        }
        if unary {
            let func = *self.source.pick(&[UnaryFn::Neg, UnaryFn::Abs]);
            return (Kernel::Unary(func), vec![self.whole(var), self.whole(out)]);
        }
        let func =
            *self.source.pick(&[BinaryFn::Add, BinaryFn::Sub, BinaryFn::Max, BinaryFn::Min, BinaryFn::Mul]);
        let rhs = if in_place { var } else { self.partner(var) };
        (Kernel::Binary(func), vec![self.whole(var), self.whole(rhs), self.whole(out)])
    }

    /// A choice by a condition in the same layout; a comparison, which makes one, if there is none.
    fn select(&mut self, var: VarId) -> (Kernel, Vec<Use>) {
        let first = self.program.vars[var].clone();
        let (rhs, shape, home) = (self.partner(var), first.shape, first.home);
        let condition = self
            .pick_readable(|other| other.dtype == DType::Bool && other.shape == shape && other.home == home);
        if let Some(condition) = condition {
            let out = self.like(var, first.dtype);
            return (Kernel::Select, [condition, var, rhs, out].map(|var| self.whole(var)).into());
        }
        let out = self.like(var, DType::Bool);
        let func = *self.source.pick(&[CompareFn::Lt, CompareFn::Eq]);
        (Kernel::Compare(func), [var, rhs, out].map(|var| self.whole(var)).into())
    }

    fn cast(&mut self, var: VarId) -> (Kernel, Vec<Use>) {
        let dtype = self.dtype();
        let out = self.like(var, dtype);
        (Kernel::Cast, vec![self.whole(var), self.whole(out)])
    }

    fn fill_or_iota(&mut self, var: VarId) -> (Kernel, Vec<Use>) {
        let rank = self.program.vars[var].shape.rank();
        let out = self.like(var, DType::I32);
        let kernel = if rank > 0 && self.source.chance(4) {
            Kernel::Iota { axis: self.source.below(rank) as u8 }
        } else {
            Kernel::Fill { value: self.source.below(5) as f64 }
        };
        (kernel, vec![self.whole(out)])
    }

    /// Combines over dimensions that are whole on every tile.
    fn reduce(&mut self, var: VarId) -> Option<(Kernel, Vec<Use>)> {
        let first = self.program.vars[var].clone();
        let is_whole = |dim: &usize| first.home.region[*dim] == Span::full(first.shape[*dim]);
        let axes: Vec<usize> =
            (0..first.shape.rank()).filter(is_whole).filter(|_| self.source.chance(5)).collect();
        if axes.is_empty() || first.dtype == DType::Bool {
            return None;
        }
        let kept: Vec<usize> = (0..first.shape.rank()).filter(|dim| !axes.contains(dim)).collect();
        let out = self.projected(&first, first.dtype, &kept);
        let func = *self.source.pick(&[ReduceFn::Sum, ReduceFn::Max, ReduceFn::Min]);
        let kernel = Kernel::Reduce { func, axes: axes.iter().map(|&axis| axis as u8).collect() };
        let labels = kept.into_iter().map(Some).collect();
        let mut input = self.whole(var);
        axes.iter().for_each(|&axis| input.labels[axis] = None);
        Some((kernel, vec![input, Use { labels, ..self.whole(out) }]))
    }

    /// A variable with some of another one's dimensions, in the given order.
    fn projected(&mut self, var: &Var, dtype: DType, dims: &[usize]) -> VarId {
        let shape: Vec<u64> = dims.iter().map(|&dim| var.shape[dim]).collect();
        let region: Region = dims.iter().map(|&dim| var.home.region[dim]).collect();
        self.var(dtype, &shape, Layout { grid: var.home.grid.clone(), region }, Role::Temp)
    }

    /// Windows back to the parts they were made of.
    fn narrow(&mut self, var: VarId) -> Option<(Kernel, Vec<Use>)> {
        let Var { dtype, shape, mut home, .. } = self.program.vars[var].clone();
        for (span, &size) in home.region.iter_mut().zip(shape.iter()) {
            if let Span::Part(part) = span {
                if part.mul != 1 || part.total != size || part.lo > 0 || part.hi < 1 {
                    return None;
                }
                (part.lo, part.hi) = (0, 1);
            }
        }
        let out = self.var(dtype, &shape, home.clone(), Role::Temp);
        let uses = vec![Use { region: home.region, ..self.whole(var) }, self.whole(out)];
        Some((Kernel::Copy, uses))
    }

    fn transpose(&mut self, var: VarId) -> (Kernel, Vec<Use>) {
        let first = self.program.vars[var].clone();
        let order = self.source.order(first.shape.rank());
        let out = self.projected(&first, first.dtype, &order);
        let perm = order.iter().map(|&dim| dim as u8).collect();
        let labels = order.into_iter().map(Some).collect();
        (Kernel::Transpose { perm }, vec![self.whole(var), Use { labels, ..self.whole(out) }])
    }

    /// Repeats along a new dimension.
    fn broadcast(&mut self, var: VarId) -> (Kernel, Vec<Use>) {
        let first = self.program.vars[var].clone();
        let (new, size) = (self.source.below(first.shape.rank() + 1), self.source.within(1, 5));
        let (mut shape, mut region) = (first.shape.to_vec(), first.home.region.clone());
        shape.insert(new, size);
        region.insert(new, Span::full(size));
        let out = self.var(first.dtype, &shape, Layout { grid: first.home.grid, region }, Role::Temp);
        let dims = (0..first.shape.rank()).map(|dim| (dim + usize::from(dim >= new)) as u8).collect();
        let mut labels: Vec<Option<usize>> = (0..first.shape.rank()).map(Some).collect();
        labels.insert(new, Some(NEW));
        (Kernel::Broadcast { dims }, vec![self.whole(var), Use { labels, ..self.whole(out) }])
    }

    /// Rows of a table that every tile of the indices holds.
    fn gather(&mut self, var: VarId) -> Option<(Kernel, Vec<Use>)> {
        let first = self.program.vars[var].clone();
        if first.dtype != DType::I32 || first.shape.rank() == 0 {
            return None;
        }
        let (rows, columns) = (self.source.within(1, 6), self.source.within(1, 4));
        let full = smallvec![Span::full(rows), Span::full(columns)];
        let grid = first.home.grid.clone();
        let home = Layout { grid: grid.clone(), region: full };
        let table = self.var(DType::F32, &[rows, columns], home, Role::Constant(Init::Extern));
        let (mut shape, mut region) = (first.shape.to_vec(), first.home.region.clone());
        shape.push(columns);
        region.push(Span::full(columns));
        let out = self.var(DType::F32, &shape, Layout { grid, region }, Role::Temp);
        let data = Use { labels: vec![None, Some(NEW)], ..self.whole(table) };
        let mut labels: Vec<Option<usize>> = (0..first.shape.rank()).map(Some).collect();
        labels.push(Some(NEW));
        let kernel = Kernel::Gather { axis: 0, size: rows };
        Some((kernel, vec![data, self.whole(var), Use { labels, ..self.whole(out) }]))
    }

    /// Adds axes that stay on the tile, splitting dimensions that are whole there; sometimes writes the
    /// group out vertex by vertex.
    pub fn groups(&mut self, kernel: Kernel, mut grid: Grid, mut uses: Vec<Use>) -> Vec<Group> {
        for label in (0..8).chain([NEW]) {
            if grid.axes.len() < 5 && self.source.chance(3) {
                self.split(label, &mut grid, &mut uses);
            }
        }
        self.reorder(&mut grid, &mut uses);
        let operands = |uses: &[Use]| -> SmallVec<[Operand; 4]> {
            uses.iter().map(|operand| Operand { var: operand.var, region: operand.region.clone() }).collect()
        };
        let group = Group { kernel, operands: operands(&uses), grid };
        if group.grid.len() <= 8 && self.source.chance(1) { self.written_out(&group) } else { vec![group] }
    }

    /// Splits the dimensions of a label along a new axis, if they are whole on every tile.
    fn split(&mut self, label: usize, grid: &mut Grid, uses: &mut [Use]) {
        let labelled = |operand: &Use| -> Vec<(usize, u64)> {
            let dims = (0..operand.region.len()).filter(|&dim| operand.labels[dim] == Some(label));
            dims.map(|dim| (dim, self.program.vars[operand.var].shape[dim])).collect()
        };
        let dims: Vec<Vec<(usize, u64)>> = uses.iter().map(labelled).collect();
        let is_whole = |(operand, dims): (&Use, &Vec<(usize, u64)>)| {
            dims.iter().all(|&(dim, size)| operand.region[dim] == Span::full(size))
        };
        let Some(&(_, size)) = dims.iter().flatten().next() else { return };
        if !uses.iter().zip(&dims).all(is_whole) {
            return;
        }
        let grain = self.source.within(1, 2);
        let extent = self.source.within(1, size.div_ceil(grain)) as u32;
        let span = Span::Part(Part::even(grid.axes.len(), size, grain));
        grid.axes.push(Axis { extent, stride: 0 });
        for (operand, dims) in uses.iter_mut().zip(dims) {
            dims.into_iter().for_each(|(dim, _)| operand.region[dim] = span);
        }
    }

    /// The axes of the grid in another order.
    fn reorder(&mut self, grid: &mut Grid, uses: &mut [Use]) {
        if !self.source.chance(2) {
            return;
        }
        let order = self.source.order(grid.axes.len());
        grid.axes = order.iter().map(|&axis| grid.axes[axis]).collect();
        for span in uses.iter_mut().flat_map(|operand| &mut operand.region) {
            if let Span::Part(part) = span {
                let new = order.iter().position(|&axis| axis == part.axis as usize);
                part.axis = new.expect("an order has every axis") as u8;
            }
        }
    }

    /// One group for each vertex.
    pub fn written_out(&self, group: &Group) -> Vec<Group> {
        let single = |coordinates: pando_tile::grid::Coordinates| {
            let operands = group.operands.iter().map(|operand| {
                let shape = &self.program.vars[operand.var].shape;
                let block = group.grid.block(&operand.region, shape, &coordinates);
                let region = block.0.iter().map(|&(begin, end)| Span::Fixed { begin, end }).collect();
                Operand { var: operand.var, region }
            });
            Group {
                kernel: group.kernel.clone(),
                grid: Grid::single(group.grid.tile(&coordinates)),
                operands: operands.collect(),
            }
        };
        group.grid.coordinates().map(single).collect()
    }
}
