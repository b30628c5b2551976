//! Port use of a grouped affine copy.
//!
//! Along a run of neighbouring tiles at most one dimension of a block changes, so a run is one loop over a
//! table of that dimension, with everything else multiplied out before.

use super::runs::{Run, runs};
use super::{PortUse, neighbour};
use crate::message::preimage_interval;
use crate::program::{Copy, Program, SrcIndex, Var};
use smallvec::SmallVec;

/// A grouped affine copy with its intervals per dimension, all in destination indices.
pub(super) struct AffineCopy {
    element_bytes: u64,
    /// Per destination dimension: what each coordinate of its axis wants.
    wanted: SmallVec<[Vec<(u64, u64)>; 4]>,
    src_dims: SmallVec<[SrcDim; 4]>,
    /// Per destination dimension and coordinate: the number of owning coordinates; and of those that own the fixed
    /// indices.
    senders: SmallVec<[Vec<u64>; 4]>,
    fixed_senders: u64,
    /// Tiles that own (copy 0 of the source) and tiles that want.
    owners: Vec<Run>,
    wanters: Vec<Run>,
    dst_copies: u64,
}

/// One source dimension: per coordinate of its axis, what it can give and to how many.
struct SrcDim {
    /// The destination dimension fed by this one; none for a fixed index.
    dst_dim: Option<usize>,
    /// Destination indices that each coordinate owns (for a fixed index: one if it is owned).
    owned: Vec<(u64, u64)>,
    /// Per source coordinate: elements wanted of it, counted per wanting coordinate.
    elements: Vec<u64>,
    /// Per source coordinate: number of wanting coordinates.
    receivers: Vec<u64>,
    /// Per destination coordinate: number of owning coordinates; for a fixed index one number.
    senders: Vec<u64>,
}

impl AffineCopy {
    pub fn new(program: &Program, copy: &Copy, dims: &[SrcIndex], region: &[(u64, u64)]) -> Self {
        let (src, dst) = (&program.vars[copy.src], &program.vars[copy.dsts[0]]);
        let wanted: SmallVec<[Vec<(u64, u64)>; 4]> = (0..dst.shape.len())
            .map(|dim| {
                let clip = |(begin, end): (u64, u64)| {
                    let begin = begin.max(region[dim].0);
                    (begin, end.min(region[dim].1).max(begin))
                };
                intervals(dst, dim).into_iter().map(clip).collect()
            })
            .collect();
        let mut senders: SmallVec<[Vec<u64>; 4]> = wanted.iter().map(|at| vec![1; at.len()]).collect();
        let mut fixed_senders = 1;
        let mut src_dims = SmallVec::new();
        for (dim, &index) in dims.iter().enumerate() {
            let src_dim = SrcDim::new(src, dim, index, &wanted);
            match src_dim.dst_dim {
                Some(dst_dim) => {
                    senders[dst_dim].iter_mut().zip(&src_dim.senders).for_each(|(all, own)| *all *= own);
                }
                None => fixed_senders *= src_dim.senders[0],
            }
            src_dims.push(src_dim);
        }
        AffineCopy {
            element_bytes: src.dtype.size_bytes(),
            wanted,
            src_dims,
            senders,
            fixed_senders,
            owners: runs(src, false),
            wanters: runs(dst, true),
            dst_copies: dst.home.copies(),
        }
    }

    pub fn add_to(&self, ports: &mut [PortUse], tiles_per_bus: u32) {
        let own = self.own_elements(ports.len());
        for run in &self.wanters {
            self.add_received(run, &own, ports, tiles_per_bus);
        }
        for run in &self.owners {
            self.add_sent(run, &own, ports);
        }
    }

    /// Per tile: elements that it wants and owns itself.
    fn own_elements(&self, tiles: usize) -> Vec<u64> {
        let mut own = vec![0; tiles];
        let (mut owners, mut wanters) = (self.owners.iter().peekable(), self.wanters.iter().peekable());
        while let (Some(owning), Some(wanting)) = (owners.peek(), wanters.peek()) {
            let (first, end) = (owning.first.max(wanting.first), owning.end().min(wanting.end()));
            if first < end {
                self.set_own(owning, wanting, first, &mut own[first as usize..end as usize]);
            }
            if owning.end() <= wanting.end() {
                owners.next()
            } else {
                wanters.next()
            };
        }
        own
    }

    /// The same for tiles from `first` on that are in both runs.
    fn set_own(&self, owning: &Run, wanting: &Run, first: u32, own: &mut [u64]) {
        own.fill(1);
        let (owner, wanter) = (owning.at(first), wanting.at(first));
        for (dim, src_dim) in self.src_dims.iter().enumerate() {
            let owned = |step: usize| {
                let moved = if owning.varying == Some(dim) { step } else { 0 };
                src_dim.owned[owner[dim] as usize + moved]
            };
            let Some(dst_dim) = src_dim.dst_dim else {
                own.iter_mut().enumerate().for_each(|(step, own)| *own *= owned(step).1 - owned(step).0);
                continue;
            };
            let wanted = |step: usize| {
                let moved = if wanting.varying == Some(dst_dim) { step } else { 0 };
                self.wanted[dst_dim][wanter[dst_dim] as usize + moved]
            };
            if owning.varying == Some(dim) || wanting.varying == Some(dst_dim) {
                own.iter_mut().enumerate().for_each(|(step, own)| *own *= overlap(owned(step), wanted(step)));
                continue;
            }
            let common = overlap(owned(0), wanted(0));
            if common == 0 {
                return own.fill(0);
            }
            own.iter_mut().for_each(|own| *own *= common);
        }
    }

    fn add_received(&self, run: &Run, own: &[u64], ports: &mut [PortUse], tiles_per_bus: u32) {
        let volume = run.product(|dim, at| self.wanted[dim][at].1 - self.wanted[dim][at].0);
        let senders = run.product(|dim, at| self.senders[dim][at]);
        for (step, tile) in (run.first..run.end()).enumerate() {
            let volume = volume(step);
            if volume == 0 {
                continue;
            }
            let (port, own_elements) = (&mut ports[tile as usize], own[tile as usize]);
            let remote = volume - own_elements;
            port.local_bytes += own_elements * self.element_bytes;
            // What the neighbour owns itself does not come to both at once.
            match neighbour(tile, tiles_per_bus).filter(|&other| self.wants_the_same(run, tile, other)) {
                Some(other) => {
                    let from_pair = own[other as usize];
                    port.paired_bytes += (remote - from_pair) * self.element_bytes;
                    port.received_bytes += from_pair * self.element_bytes;
                }
                None => port.received_bytes += remote * self.element_bytes,
            }
            port.messages += senders(step) * self.fixed_senders - u64::from(own_elements > 0);
        }
    }

    /// Whether a tile of the run wants the same block as another.
    fn wants_the_same(&self, run: &Run, tile: u32, other: u32) -> bool {
        if self.dst_copies == 1 {
            return false;
        }
        if run.contains(other) {
            return run.varying.is_none();
        }
        let next = self.wanters.partition_point(|run| run.end() <= other);
        self.wanters.get(next).is_some_and(|next| next.contains(other) && next.at(other) == run.at(tile))
    }

    fn add_sent(&self, run: &Run, own: &[u64], ports: &mut [PortUse]) {
        let elements = run.product(|dim, at| self.src_dims[dim].elements[at]);
        let receivers = run.product(|dim, at| self.src_dims[dim].receivers[at]);
        for (step, tile) in (run.first as usize..run.end() as usize).enumerate() {
            let elements = elements(step);
            if elements == 0 {
                continue;
            }
            // With several copies of each wanted block, one of them is on another tile, so everything
            // is sent; with one copy, what the tile wants of itself is not.
            let kept = if self.dst_copies == 1 { own[tile] } else { 0 };
            ports[tile].sent_bytes += (elements - kept) * self.element_bytes;
            ports[tile].messages += receivers(step) - u64::from(kept > 0);
        }
    }
}

impl SrcDim {
    fn new(src: &Var, dim: usize, index: SrcIndex, wanted: &[Vec<(u64, u64)>]) -> Self {
        let blocks = intervals(src, dim);
        match index {
            SrcIndex::At(at) => {
                let hit = |&(begin, end): &(u64, u64)| u64::from((begin..end).contains(&at));
                let hits: Vec<u64> = blocks.iter().map(hit).collect();
                SrcDim {
                    dst_dim: None,
                    owned: hits.iter().map(|&hit| (0, hit)).collect(),
                    elements: hits.clone(),
                    senders: vec![hits.iter().sum()],
                    receivers: hits,
                }
            }
            SrcIndex::Dst { dim: dst_dim, step, offset } => {
                let preimage = |&(begin, end): &(u64, u64)| preimage_interval(begin, end, step, offset);
                let owned: Vec<(u64, u64)> = blocks.iter().map(preimage).collect();
                SrcDim::overlaps(dst_dim.into(), owned, &wanted[dst_dim as usize])
            }
        }
    }

    /// Wanted intervals begin and end in increasing order, so those that meet an owned one are
    /// consecutive: found by bisection, visited once per meeting pair.
    fn overlaps(dst_dim: usize, owned: Vec<(u64, u64)>, wanted: &[(u64, u64)]) -> Self {
        let mut senders = vec![0; wanted.len()];
        let (mut elements, mut receivers) =
            (Vec::with_capacity(owned.len()), Vec::with_capacity(owned.len()));
        for &own in &owned {
            let first = wanted.partition_point(|&(_, end)| end <= own.0);
            let (mut sum, mut count) = (0, 0);
            for (at, &want) in wanted.iter().enumerate().skip(first) {
                if want.0 >= own.1 {
                    break;
                }
                let common = overlap(own, want);
                if common > 0 {
                    sum += common;
                    count += 1;
                    senders[at] += 1;
                }
            }
            elements.push(sum);
            receivers.push(count);
        }
        SrcDim { dst_dim: Some(dst_dim), owned, elements, receivers, senders }
    }
}

fn overlap(a: (u64, u64), b: (u64, u64)) -> u64 {
    a.1.min(b.1).saturating_sub(a.0.max(b.0))
}

/// What each coordinate of the dimension's axis holds; a single interval if no axis splits it.
fn intervals(var: &Var, dim: usize) -> Vec<(u64, u64)> {
    let span = var.home.region[dim];
    let mut at = crate::grid::Coordinates::from_elem(0, var.home.grid.axes.len());
    let Some(axis) = span.axis() else { return vec![span.bounds(&var.home.grid, &at, var.shape[dim])] };
    (0..var.home.grid.axes[axis].extent)
        .map(|coordinate| {
            at[axis] = coordinate;
            span.bounds(&var.home.grid, &at, var.shape[dim])
        })
        .collect()
}
