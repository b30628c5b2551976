//! What comes from the host and goes there, and the loop over a call's iterations.
//!
//! Without I/O tiles the host writes where the model's first operation reads, and reads where the last one wrote;
//! iterations are a plain loop. With I/O tiles both ends are on these, an exchange away, and the loop is a stream. What
//! comes from other chips or goes there never passes I/O tiles.

use super::Emitter;
use crate::layouts::{balanced, without_copies};
use pando_base::{DType, Shape};
use pando_graph::ValueId;
use pando_tile::{Copy, CopyMap, Layout, Role, Step, VarId};
use smallvec::SmallVec;

/// Name of the exchanges with I/O tiles.
const MOVES: &str = "io tiles";

impl Emitter<'_> {
    pub(super) fn inputs(&mut self) -> Vec<VarId> {
        let func = self.scope.func;
        let inputs = func.params.iter().enumerate().map(|(index, &param)| self.input(index, param)).collect();
        self.flush(MOVES);
        inputs
    }

    fn input(&mut self, index: usize, param: ValueId) -> VarId {
        let (name, dtype, shape) = (self.base_name(param), self.dtype(param), self.shape(param));
        let is_state = self.options.state.iter().any(|&(state, _)| state == index);
        let through_io =
            !is_state && self.options.io_tiles > 0 && !self.options.linked.params.contains(&index);
        let role = match (is_state, through_io) {
            (true, _) => Role::State,
            (_, true) => Role::Temp,
            _ => Role::Input,
        };
        let home = self.push_var(&name, dtype, shape.clone(), &self.layout(param), role);
        self.scope.homes[param] = Some(home);
        if through_io {
            let layout = self.on_io_tiles(dtype, &shape);
            let from = self.push_var(&format!("{name}.io"), dtype, shape.clone(), &layout, Role::Input);
            self.load.push(Step::HostIn(from));
            self.copy_whole(from, home);
            return from;
        }
        if !is_state {
            self.program.body.push(Step::HostIn(home));
        }
        home
    }

    /// Results that are inputs, constants or named twice get a variable of their own.
    pub(super) fn outputs(&mut self) -> Vec<VarId> {
        let mut outputs: Vec<VarId> = Vec::new();
        let func = self.scope.func;
        for (index, &value) in func.results.iter().enumerate() {
            if let Some(param) = self.state_of(index) {
                outputs.push(self.home(func.params[param]));
                continue;
            }
            let home = self.home(value);
            let own = matches!(self.program.vars[home].role, Role::Output) && !outputs.contains(&home);
            let through_io = self.passes_io_tiles(index);
            let var = if own && !through_io { home } else { self.copied_output(value, home, through_io) };
            if through_io {
                self.store.push(Step::HostOut(var));
            }
            outputs.push(var);
        }
        self.flush(if self.store.is_empty() { "outputs" } else { MOVES });
        let direct = outputs.iter().filter(|&&var| {
            self.program.vars[var].role == Role::Output && !self.store.contains(&Step::HostOut(var))
        });
        let steps: Vec<Step> = direct.map(|&var| Step::HostOut(var)).collect();
        self.program.body.extend(steps);
        outputs
    }

    fn copied_output(&mut self, value: ValueId, home: VarId, through_io: bool) -> VarId {
        let (dtype, shape) = (self.dtype(value), self.shape(value));
        let (suffix, layout) = match through_io {
            true => ("io", self.on_io_tiles(dtype, &shape)),
            false => ("out", without_copies(&self.program.vars[home].home, &shape)),
        };
        let name = format!("{}.{suffix}", self.base_name(value));
        let var = self.push_var(&name, dtype, shape, &layout, Role::Output);
        self.copy_whole(home, var);
        var
    }

    /// The body becomes the body of a loop, if it is run more than once or beside transfers.
    pub(super) fn iterate(&mut self) {
        let count = self.options.iterations;
        let (load, store) = (std::mem::take(&mut self.load), std::mem::take(&mut self.store));
        let body = std::mem::take(&mut self.program.body);
        self.program.body = if !load.is_empty() || !store.is_empty() {
            vec![Step::Stream { count, load, body, store }]
        } else if count > 1 {
            vec![Step::Repeat { count, body }]
        } else {
            body
        };
    }

    /// Whether a value is a result that leaves from where it was made.
    pub(super) fn leaves_directly(&self, value: ValueId) -> bool {
        let results = self.scope.func.results.iter().enumerate();
        results.into_iter().any(|(index, &result)| {
            result == value && self.state_of(index).is_none() && !self.passes_io_tiles(index)
        })
    }

    fn passes_io_tiles(&self, result: usize) -> bool {
        self.options.io_tiles > 0 && !self.options.linked.results.contains(&result)
    }

    /// Tiles that hold and compute the model's values.
    pub(super) fn working_tiles(&self) -> u32 {
        self.program.tiles - self.options.io_tiles
    }

    /// Balanced over the chip's last tiles.
    fn on_io_tiles(&self, dtype: DType, shape: &Shape) -> Layout {
        let mut layout = balanced(shape, dtype, self.options.io_tiles, self.options.min_tile_bytes);
        layout.grid.base += self.working_tiles();
        layout
    }

    /// Queues a copy of a whole variable.
    pub(super) fn copy_whole(&mut self, src: VarId, dst: VarId) {
        let map = CopyMap::identity(&self.program.vars[dst].shape);
        self.pending.push(Copy { src, dsts: SmallVec::from_slice(&[dst]), map });
    }
}
