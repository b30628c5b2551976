//! Exchanges: all messages are read before any is delivered, since copies happen at once.

use super::store::Tile;
use super::strided::{Walk, copy, row_major};
use crate::errors;
use pando_base::Result;
use pando_tile::message::{Message, flat_interval, messages};
use pando_tile::{Block, CopyMap, Exchange, Program, SrcIndex, VarId};
use rayon::prelude::*;
use smallvec::SmallVec;

/// The messages of an exchange, and which of them each tile receives.
pub struct Planned {
    messages: Vec<(VarId, Message)>,
    /// Per tile: position in `messages`, and the variable it goes to.
    inbox: Vec<Vec<(usize, VarId)>>,
}

pub fn plan(program: &Program, exchange: &Exchange) -> Planned {
    let explicit = |copy: &pando_tile::Copy| -> Vec<(VarId, Message)> {
        messages(program, copy).into_iter().map(|message| (copy.src, message)).collect()
    };
    let messages: Vec<(VarId, Message)> = exchange.copies.iter().flat_map(explicit).collect();
    let mut inbox = vec![Vec::new(); program.tiles as usize];
    for (index, (_, message)) in messages.iter().enumerate() {
        for &(var, tile) in &message.dsts {
            inbox[tile as usize].push((index, var));
        }
    }
    Planned { messages, inbox }
}

pub fn run_exchange(
    program: &Program,
    exchange: &Exchange,
    plan: &Planned,
    tiles: &mut [Tile],
) -> Result<()> {
    let read = |(var, message): &(VarId, Message)| {
        let tile = &tiles[message.src_tile as usize];
        read_message(program, tile, *var, message).ok_or_else(|| {
            let what = format!("the exchange \"{}\"", exchange.name);
            errors::unwritten(&what, &program.vars[*var], message.src_tile)
        })
    };
    let payloads: Vec<Result<Vec<u8>>> = plan.messages.par_iter().map(read).collect();
    let payloads: Vec<Vec<u8>> = payloads.into_iter().collect::<Result<_>>()?;
    let deliver = |(tile, inbox): (&mut Tile, &Vec<(usize, VarId)>)| {
        for &(index, var) in inbox {
            deliver_message(program, tile, var, &plan.messages[index].1, &payloads[index]);
        }
    };
    tiles.par_iter_mut().zip(&plan.inbox).for_each(deliver);
    Ok(())
}

/// The message's elements in the order of the destination; nothing if one of them was never written.
fn read_message(program: &Program, tile: &Tile, var: VarId, message: &Message) -> Option<Vec<u8>> {
    let piece = &tile[&var];
    let (lens, from) = match &message.map {
        CopyMap::Affine { region, dims } => (region.lens(), source_walk(&piece.block, dims, region)),
        CopyMap::Flat { src_begin, len, .. } => {
            (SmallVec::from_slice(&[*len]), flat_walk(&program.vars[var].shape, &piece.block, *src_begin))
        }
    };
    if !piece.is_written(&from, &lens) {
        return None;
    }
    let size = piece.data.dtype().size_bytes() as usize;
    let mut payload = vec![0; message.elements as usize * size];
    copy(&mut payload, &Walk::dense(&lens), piece.data.bytes(), &from, &lens, size);
    Some(payload)
}

fn deliver_message(program: &Program, tile: &mut Tile, var: VarId, message: &Message, payload: &[u8]) {
    let piece = tile.get_mut(&var).expect("a destination holds its block");
    let (lens, to) = match &message.map {
        CopyMap::Affine { region, .. } => (region.lens(), Walk::within(&piece.block, region)),
        CopyMap::Flat { dst_begin, len, .. } => {
            (SmallVec::from_slice(&[*len]), flat_walk(&program.vars[var].shape, &piece.block, *dst_begin))
        }
    };
    piece.store(&to, payload, &Walk::dense(&lens), &lens);
}

/// The source elements of a destination region, in the order of the destination.
fn source_walk(block: &Block, dims: &[SrcIndex], region: &Block) -> Walk {
    let mut walk = Walk { first: 0, steps: SmallVec::from_elem(0, region.rank()) };
    for ((index, &(begin, _)), stride) in dims.iter().zip(&block.0).zip(row_major(&block.lens())) {
        let first = match *index {
            SrcIndex::At(at) => at as i64,
            SrcIndex::Dst { dim, step, offset } => {
                walk.steps[dim as usize] = step * stride;
                step * region.0[dim as usize].0 as i64 + offset
            }
        };
        walk.first += (first - begin as i64) * stride;
    }
    walk
}

/// Consecutive elements from a row-major position of the variable on; the block is contiguous.
fn flat_walk(shape: &[u64], block: &Block, position: u64) -> Walk {
    let (begin, _) = flat_interval(shape, block);
    Walk { first: (position - begin) as i64, steps: SmallVec::from_slice(&[1]) }
}
