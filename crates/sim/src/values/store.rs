//! What each tile holds: a dense block per variable, and which of its elements have been written.

use super::RunOptions;
use super::strided::{Walk, copy};
use crate::errors;
use crate::report::total_bytes;
use pando_base::{Result, Shape, Tensor};
use pando_tile::{Block, Program, VarId};
use rustc_hash::FxHashMap;

/// The blocks of one tile.
pub type Tile = FxHashMap<VarId, Piece>;

/// A tile's block of a variable.
pub struct Piece {
    pub block: Block,
    /// Dense elements of the block.
    pub data: Tensor,
    /// One byte an element, 1 once it has been written; only kept if someone asks for it.
    pub written: Option<Vec<u8>>,
}

/// Refuses programs whose blocks would not fit the limit. An estimate: the blocks, once more the largest
/// step's operands or messages, and what lists of vertices take.
pub fn check_size(program: &Program, options: &RunOptions) -> Result<()> {
    let mut blocks: u128 = 0;
    for var in program.vars.values() {
        let bytes = u128::from(total_bytes(var));
        let flags = if options.strict { bytes / u128::from(var.dtype.size_bytes()) } else { 0 };
        blocks += bytes + flags + 256 * u128::from(var.home.grid.len());
    }
    let groups = program.compute_sets.values().flat_map(|set| &set.groups);
    let vertices: u128 = groups.map(|group| u128::from(group.grid.len())).sum();
    let needed = 2 * blocks + 64 * vertices + 64 * u128::from(program.tiles);
    if needed > options.max_bytes.into() {
        return Err(errors::too_much_memory(needed, options.max_bytes));
    }
    Ok(())
}

/// All tiles of the program with their blocks, zero and unwritten.
pub fn allocate(program: &Program, strict: bool) -> Vec<Tile> {
    let mut tiles: Vec<Tile> = Vec::new();
    tiles.resize_with(program.tiles as usize, Tile::default);
    for (id, var) in program.vars.iter() {
        for coordinates in var.home.grid.coordinates() {
            let block = var.home.block(&var.shape, &coordinates);
            let data = Tensor::zeros(var.dtype, Shape::new(&block.lens()));
            let written = strict.then(|| vec![0; block.volume() as usize]);
            tiles[var.home.grid.tile(&coordinates) as usize].insert(id, Piece { block, data, written });
        }
    }
    tiles
}

impl Piece {
    /// A copy of the elements of a block that the piece contains. The whole piece is shared, not copied.
    pub fn gather(&self, block: &Block) -> Tensor {
        if *block == self.block {
            return self.data.clone();
        }
        let lens = block.lens();
        // Windows may be clipped to nothing; then there is nothing to walk over.
        let mut out = Tensor::zeros(self.data.dtype(), Shape::new(&lens));
        let size = self.data.dtype().size_bytes() as usize;
        let from = Walk::within(&self.block, block);
        copy(out.bytes_mut(), &Walk::dense(&lens), self.data.bytes(), &from, &lens, size);
        out
    }

    /// The elements of a block that will be scattered back: the whole piece is moved out, not copied.
    pub fn lend(&mut self, block: &Block) -> Tensor {
        if *block == self.block {
            let nothing = Tensor::zeros(self.data.dtype(), [0]);
            return std::mem::replace(&mut self.data, nothing);
        }
        self.gather(block)
    }

    /// Stores the elements of a block, dense in `data`, and marks them as written.
    pub fn scatter(&mut self, block: &Block, data: Tensor) {
        if *block == self.block {
            self.data = data;
            if let Some(written) = &mut self.written {
                written.fill(1);
            }
            return;
        }
        let lens = block.lens();
        let walk = Walk::within(&self.block, block);
        self.store(&walk, data.bytes(), &Walk::dense(&lens), &lens);
    }

    /// Stores a box of elements from `bytes` and marks them as written.
    pub fn store(&mut self, to: &Walk, bytes: &[u8], from: &Walk, lens: &[u64]) {
        let size = self.data.dtype().size_bytes() as usize;
        copy(self.data.bytes_mut(), to, bytes, from, lens, size);
        if let Some(written) = &mut self.written {
            let ones = Walk { first: 0, steps: lens.iter().map(|_| 0).collect() };
            copy(written, to, &[1], &ones, lens, 1);
        }
    }

    /// Whether all elements of a box have been written, as far as anyone keeps track.
    pub fn is_written(&self, walk: &Walk, lens: &[u64]) -> bool {
        let Some(written) = &self.written else { return true };
        let mut flags = vec![1; lens.iter().product::<u64>() as usize];
        copy(&mut flags, &Walk::dense(lens), written, walk, lens, 1);
        flags.iter().all(|&flag| flag == 1)
    }

    /// The same for a block that the piece contains.
    pub fn is_block_written(&self, block: &Block) -> bool {
        block.is_empty() || self.is_written(&Walk::within(&self.block, block), &block.lens())
    }
}
