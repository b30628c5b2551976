//! Within one exchange no element is written twice or both read and written, and everything read exists
//! on some tile. Looks at explicit messages, so its cost follows their number.

use crate::block::Block;
use crate::message::{Message, messages};
use crate::program::{CopyMap, Exchange, Program, VarId};
use pando_base::Ranges;
use rustc_hash::{FxHashMap, FxHashSet};

pub fn check_exchanges(program: &Program) -> Vec<String> {
    let mut findings = Vec::new();
    for (id, exchange) in program.exchanges.iter() {
        let read: FxHashSet<VarId> = exchange.copies.iter().map(|copy| copy.src).collect();
        for dst in exchange.copies.iter().flat_map(|copy| &copy.dsts) {
            if read.contains(dst) {
                let name = &program.vars[*dst].name;
                findings.push(format!("exchange: {id} \"{}\" both reads and writes %{name}", exchange.name));
            }
        }
        findings.extend(
            check_one(program, exchange)
                .into_iter()
                .map(|finding| format!("exchange: {id} \"{}\" {finding}", exchange.name)),
        );
    }
    findings
}

fn check_one(program: &Program, exchange: &Exchange) -> Option<String> {
    let mut written: FxHashMap<(VarId, u32), Received> = FxHashMap::default();
    for copy in &exchange.copies {
        let mut delivered: FxHashMap<(VarId, u32), u64> = FxHashMap::default();
        for message in messages(program, copy) {
            for &(var, tile) in &message.dsts {
                *delivered.entry((var, tile)).or_default() += message.elements;
                if !written.entry((var, tile)).or_default().add(&message) {
                    return Some(format!("writes part of %{} on tile {tile} twice", program.vars[var].name));
                }
            }
        }
        if let Some(missing) = first_missing(program, copy, &delivered) {
            return Some(missing);
        }
    }
    None
}

/// A destination tile that did not get all that the copy promises: no tile holds the source.
fn first_missing(
    program: &Program,
    copy: &crate::program::Copy,
    delivered: &FxHashMap<(VarId, u32), u64>,
) -> Option<String> {
    for &dst in &copy.dsts {
        let var = &program.vars[dst];
        for coordinates in var.home.grid.coordinates() {
            let block = var.home.block(&var.shape, &coordinates);
            let wanted = match &copy.map {
                CopyMap::Affine { region, .. } => region.intersect(&block).volume(),
                CopyMap::Flat { dst_begin, len, .. } => {
                    let (begin, end) = crate::message::flat_interval(&var.shape, &block);
                    end.min(dst_begin + len).saturating_sub(begin.max(*dst_begin))
                }
            };
            let tile = var.home.grid.tile(&coordinates);
            let got = delivered.get(&(dst, tile)).copied().unwrap_or(0);
            if got != wanted {
                let src = &program.vars[copy.src].name;
                return Some(format!(
                    "gives %{} on tile {tile} {got} of {wanted} elements: %{src} lacks the rest",
                    var.name
                ));
            }
        }
    }
    None
}

/// What a tile has received of one variable.
#[derive(Default)]
struct Received {
    blocks: Vec<Block>,
    flat: Ranges,
}

impl Received {
    /// Whether the message's elements are new.
    fn add(&mut self, message: &Message) -> bool {
        match &message.map {
            CopyMap::Affine { region, .. } => {
                let new = self.blocks.iter().all(|block| !block.overlaps(region));
                self.blocks.push(region.clone());
                new
            }
            CopyMap::Flat { dst_begin, len, .. } => {
                let range = Ranges::of(*dst_begin, dst_begin + len);
                let new = !self.flat.overlaps(&range);
                self.flat = self.flat.union(&range);
                new
            }
        }
    }
}
