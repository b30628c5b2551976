//! Compute sets: every tile runs its vertices in order, all tiles at once.

use super::store::Tile;
use super::window::holds_windows;
use crate::errors;
use pando_base::Result;
use pando_tile::grid::Coordinates;
use pando_tile::validate::operand_block;
use pando_tile::{Access, Arg, Block, ComputeSet, Group, Operand, Program};
use rayon::prelude::*;
use smallvec::SmallVec;

/// The vertices of each tile in order: index of the group, and coordinates.
pub type Work = Vec<Vec<(u32, Coordinates)>>;

/// Groups in order, coordinates in order: the order in which the machine deals them to workers.
pub fn deal(program: &Program, set: &ComputeSet) -> Work {
    let mut work: Work = vec![Vec::new(); program.tiles as usize];
    for (index, group) in set.groups.iter().enumerate() {
        for coordinates in group.grid.coordinates() {
            work[group.grid.tile(&coordinates) as usize].push((index as u32, coordinates));
        }
    }
    work
}

pub fn run_set(program: &Program, set: &ComputeSet, work: &Work, tiles: &mut [Tile]) -> Result<()> {
    let run_tile = |tile: &mut Tile, number: usize| {
        work[number].iter().try_for_each(|(index, coordinates)| {
            let group = &set.groups[*index as usize];
            Vertex { program, set, group, tile: number as u32 }.run(coordinates, tile)
        })
    };
    let results: Vec<Result<()>> =
        tiles.par_iter_mut().enumerate().map(|(number, tile)| run_tile(tile, number)).collect();
    // The first error in the order of tiles, whatever thread met it first.
    results.into_iter().collect()
}

/// A vertex about to run.
struct Vertex<'a> {
    program: &'a Program,
    set: &'a ComputeSet,
    group: &'a Group,
    tile: u32,
}

impl Vertex<'_> {
    fn run(&self, coordinates: &[u32], tile: &mut Tile) -> Result<()> {
        let operand_block = |operand| operand_block(self.program, self.group, operand, coordinates);
        let blocks: SmallVec<[Block; 4]> = self.group.operands.iter().map(operand_block).collect();
        let mut args: SmallVec<[Arg; 4]> = SmallVec::new();
        for ((operand, block), access) in
            self.group.operands.iter().zip(&blocks).zip(self.group.kernel.signature())
        {
            args.push(self.arg(operand, block, *access, tile)?);
        }
        if !holds_windows(&self.group.kernel, &args) {
            return Err(errors::narrow_window(&self.name(), self.tile));
        }
        self.group.kernel.run(&mut args);
        for ((operand, access), arg) in
            self.group.operands.iter().zip(self.group.kernel.signature()).zip(args)
        {
            if *access == Access::Out {
                let piece = tile.get_mut(&operand.var).expect("the operand was found above");
                piece.scatter(&arg.block, arg.data);
            }
        }
        Ok(())
    }

    fn arg(&self, operand: &Operand, block: &Block, access: Access, tile: &mut Tile) -> Result<Arg> {
        let var = &self.program.vars[operand.var];
        let piece = tile.get_mut(&operand.var).filter(|piece| piece.block.contains(block));
        let piece = piece.ok_or_else(|| errors::foreign(&self.name(), var, self.tile))?;
        if access == Access::In && !piece.is_block_written(block) {
            return Err(errors::unwritten(&self.name(), var, self.tile));
        }
        let data = if access == Access::In { piece.gather(block) } else { piece.lend(block) };
        Ok(Arg::new(block.clone(), &var.shape, data))
    }

    fn name(&self) -> String {
        format!("{} in \"{}\"", self.group.kernel.name(), self.set.name)
    }
}
