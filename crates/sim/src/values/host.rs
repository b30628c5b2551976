//! What comes from outside and goes there: constants, inputs, outputs.

use super::Runner;
use super::store::Tile;
use super::strided::{Walk, copy};
use crate::errors;
use pando_base::{DType, Result, Shape, Tensor};
use pando_tile::{Block, Init, Program, Role, VarId};
use std::collections::BTreeMap;

/// What the host has read, by variable.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outputs {
    /// The last time.
    pub vars: BTreeMap<VarId, Output>,
    /// The times before, in order; empty unless asked for.
    pub earlier: BTreeMap<VarId, Vec<Output>>,
}

/// An output's blocks, tile by tile.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    pub dtype: DType,
    /// Of the whole variable.
    pub shape: Shape,
    pub blocks: Vec<(Block, Tensor)>,
}

impl Outputs {
    /// The whole tensor of an output that the host has read.
    pub fn tensor(&self, var: VarId) -> Option<Tensor> {
        self.vars.get(&var).map(Output::tensor)
    }

    /// The whole tensors of an output that the host has read, in order; the last alone unless all were kept.
    pub fn tensors(&self, var: VarId) -> Vec<Tensor> {
        let earlier = self.earlier.get(&var).into_iter().flatten();
        earlier.chain(self.vars.get(&var)).map(Output::tensor).collect()
    }
}

impl Output {
    /// The whole tensor; zero where no tile holds an element (a piece of an expanded program).
    pub fn tensor(&self) -> Tensor {
        let whole = Block::full(&self.shape);
        let mut tensor = Tensor::zeros(self.dtype, self.shape.clone());
        for (block, data) in &self.blocks {
            let (lens, size) = (block.lens(), self.dtype.size_bytes() as usize);
            let to = Walk::within(&whole, block);
            copy(tensor.bytes_mut(), &to, data.bytes(), &Walk::dense(&lens), &lens, size);
        }
        tensor
    }
}

impl Runner<'_> {
    /// Constants, and what state is before the first run.
    pub(super) fn load_constants(&mut self) -> Result<()> {
        for (id, var) in self.program.vars.iter() {
            match &var.role {
                Role::Constant(Init::Extern) | Role::State => {
                    spread(self.program, id, &self.given(id)?, &mut self.tiles);
                }
                Role::Constant(Init::Dense(tensor)) => spread(self.program, id, tensor, &mut self.tiles),
                Role::Constant(Init::Splat(value)) => fill(self.program, id, *value, &mut self.tiles),
                Role::Temp | Role::Input | Role::Output => {}
            }
        }
        Ok(())
    }

    pub(super) fn host_in(&mut self, var: VarId) -> Result<()> {
        let tensor = self.given(var)?;
        self.asked[var] += 1;
        spread(self.program, var, &tensor, &mut self.tiles);
        Ok(())
    }

    /// State is as it would be before the next run.
    pub(super) fn keep_state(&mut self) -> Result<()> {
        let state = self.program.vars.iter().filter(|(_, var)| var.role == Role::State);
        let ids: Vec<VarId> = state.map(|(id, _)| id).collect();
        ids.into_iter().try_for_each(|id| self.host_out(id))
    }

    pub(super) fn host_out(&mut self, id: VarId) -> Result<()> {
        let var = &self.program.vars[id];
        let mut blocks = Vec::new();
        for coordinates in var.home.grid.coordinates() {
            let tile = var.home.grid.tile(&coordinates);
            let piece = &self.tiles[tile as usize][&id];
            if !piece.is_block_written(&piece.block) {
                return Err(errors::unwritten("the host", var, tile));
            }
            blocks.push((piece.block.clone(), piece.data.clone()));
        }
        let output = Output { dtype: var.dtype, shape: var.shape.clone(), blocks };
        let before = self.outputs.vars.insert(id, output);
        if self.keep_all {
            self.outputs.earlier.entry(id).or_default().extend(before);
        }
        Ok(())
    }

    /// The tensor from outside, checked.
    fn given(&self, id: VarId) -> Result<Tensor> {
        let var = &self.program.vars[id];
        let tensor = (self.inputs)(id, self.asked[id]).ok_or_else(|| errors::missing_input(var))?;
        if tensor.dtype() != var.dtype || *tensor.shape() != var.shape {
            return Err(errors::wrong_input(var, &tensor));
        }
        Ok(tensor)
    }
}

/// Gives every tile its block of a whole tensor.
fn spread(program: &Program, id: VarId, tensor: &Tensor, tiles: &mut [Tile]) {
    let var = &program.vars[id];
    let whole = Block::full(&var.shape);
    for coordinates in var.home.grid.coordinates() {
        let tile = &mut tiles[var.home.grid.tile(&coordinates) as usize];
        let piece = tile.get_mut(&id).expect("allocated where the layout says");
        let lens = piece.block.lens();
        let from = Walk::within(&whole, &piece.block);
        piece.store(&Walk::dense(&lens), tensor.bytes(), &from, &lens);
    }
}

fn fill(program: &Program, id: VarId, value: f64, tiles: &mut [Tile]) {
    let var = &program.vars[id];
    let element = Tensor::scalar(var.dtype, value);
    for coordinates in var.home.grid.coordinates() {
        let tile = &mut tiles[var.home.grid.tile(&coordinates) as usize];
        let piece = tile.get_mut(&id).expect("allocated where the layout says");
        let lens = piece.block.lens();
        let same = Walk { first: 0, steps: lens.iter().map(|_| 0).collect() };
        piece.store(&Walk::dense(&lens), element.bytes(), &same, &lens);
    }
}
