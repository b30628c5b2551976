//! What an exchange asks of every tile's port, and how many cycles it takes.
//!
//! A tile sends each element of its block once to all tiles that need it in the same role (multicast) and
//! receives what it does not own itself; what it owns is copied on the tile. For grouped copies the
//! counts factor over dimensions, so no pair of tiles is looked at: the cost is the number of blocks on
//! both sides, not their product. The explicit [`messages`] define the same numbers.

use crate::message::{messages, preimage_interval};
use crate::program::{Copy, CopyMap, Exchange, ExchangeId, Layout, Program, SrcIndex, Var, VarId};
use crate::span::Span;
use pando_base::{DType, Shape};
use pando_machine::Chip;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// Use of one tile's exchange port during one exchange.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortUse {
    pub sent_bytes: u64,
    /// Received by this tile but not, at the same time, by its neighbour on the shared bus.
    pub received_bytes: u64,
    /// Received by this tile and its neighbour from one message.
    pub paired_bytes: u64,
    /// Moved within the tile.
    pub local_bytes: u64,
    pub messages: u64,
}

/// Time and volume of one exchange.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExchangeCost {
    /// From sync to the last word; 0 if nothing crosses tiles.
    pub cycles: u64,
    /// Copies within tiles, done by the tiles' workers.
    pub local_cycles: u64,
    /// The tile that takes longest.
    pub busiest_tile: u32,
    /// Sum over tiles, each receiver counted.
    pub received_bytes: u64,
    pub sent_bytes: u64,
    pub local_bytes: u64,
    pub messages: u64,
}

/// Port use of all tiles of the program.
pub fn port_use(program: &Program, exchange: &Exchange, tiles_per_bus: u32) -> Vec<PortUse> {
    let mut ports = vec![PortUse::default(); program.tiles as usize];
    for copy in &exchange.copies {
        match &copy.map {
            CopyMap::Affine { region, dims } if copy.dsts.len() == 1 => {
                let affine = AffineCopy::new(program, copy, dims, &region.0);
                affine.add_received(&mut ports, tiles_per_bus);
                affine.add_sent(&mut ports);
            }
            _ => add_messages(program, copy, &mut ports, tiles_per_bus),
        }
    }
    ports
}

/// Exchanges that move the same elements between the same tiles, whatever the variables, in order of their
/// first. Programs repeat exchanges (a layer after another), so analyses look at one of each.
pub fn forms(program: &Program) -> Vec<Vec<ExchangeId>> {
    let mut positions: FxHashMap<Form, usize> = FxHashMap::default();
    let mut forms: Vec<Vec<ExchangeId>> = Vec::new();
    for (id, exchange) in program.exchanges.iter() {
        let position = *positions.entry(form(program, exchange)).or_insert(forms.len());
        if position == forms.len() {
            forms.push(Vec::new());
        }
        forms[position].push(id);
    }
    forms
}

/// Per copy what decides its traffic: the map, and where source and destinations lie.
type Form<'a> = Vec<(&'a CopyMap, SmallVec<[(&'a Layout, &'a Shape, DType); 2]>)>;

fn form<'a>(program: &'a Program, exchange: &'a Exchange) -> Form<'a> {
    let place = |id: &VarId| {
        let var = &program.vars[*id];
        (&var.home, &var.shape, var.dtype)
    };
    let copies = exchange.copies.iter();
    copies
        .map(|copy| (&copy.map, std::iter::once(&copy.src).chain(&copy.dsts).map(place).collect()))
        .collect()
}

/// The cost of an exchange whose port use is known, one entry per tile: the busiest port decides.
pub fn ports_cost(ports: &[PortUse], chip: &Chip) -> ExchangeCost {
    let mut cost = ExchangeCost::default();
    for (tile, port) in ports.iter().enumerate() {
        let cycles = port.transfer_cycles(chip);
        if cycles > cost.cycles {
            (cost.cycles, cost.busiest_tile) = (cycles, tile as u32);
        }
        cost.local_cycles = cost.local_cycles.max(port.local_cycles(chip));
        cost.received_bytes += port.received_bytes + port.paired_bytes;
        cost.sent_bytes += port.sent_bytes;
        cost.local_bytes += port.local_bytes;
        cost.messages += port.messages;
    }
    if cost.cycles > 0 {
        cost.cycles += chip.exchange.setup_cycles;
    }
    cost
}

impl PortUse {
    /// Cycles in which this port moves data. Each direction moves `bytes_per_cycle`; what both tiles of a
    /// bus receive from one message arrives at the bus's full width (hardware.md section 3).
    pub fn transfer_cycles(&self, chip: &Chip) -> u64 {
        let rate = chip.exchange.bytes_per_cycle;
        let paired_rate = rate * u64::from(chip.exchange.tiles_per_bus.max(1));
        let receive = self.received_bytes.div_ceil(rate) + self.paired_bytes.div_ceil(paired_rate);
        receive.max(self.sent_bytes.div_ceil(rate))
    }

    /// Cycles of the copies within the tile.
    pub fn local_cycles(&self, chip: &Chip) -> u64 {
        self.local_bytes.div_ceil(chip.issue.memcpy_bytes_per_cycle)
    }
}

fn add_messages(program: &Program, copy: &Copy, ports: &mut [PortUse], tiles_per_bus: u32) {
    let element_bytes = program.vars[copy.src].dtype.size_bytes();
    for message in messages(program, copy) {
        let bytes = message.elements * element_bytes;
        let remote = |tile: u32| tile != message.src_tile && message.dsts.iter().any(|&(_, t)| t == tile);
        let mut sent = false;
        for &(_, tile) in &message.dsts {
            let port = &mut ports[tile as usize];
            if tile == message.src_tile {
                port.local_bytes += bytes;
                continue;
            }
            sent = true;
            port.messages += 1;
            if neighbour(tile, tiles_per_bus).is_some_and(remote) {
                port.paired_bytes += bytes;
            } else {
                port.received_bytes += bytes;
            }
        }
        if sent {
            ports[message.src_tile as usize].sent_bytes += bytes;
            ports[message.src_tile as usize].messages += 1;
        }
    }
}

/// The other tile on a bus of two.
fn neighbour(tile: u32, tiles_per_bus: u32) -> Option<u32> {
    (tiles_per_bus == 2).then_some(tile ^ 1)
}

/// A grouped affine copy with its intervals per dimension, all in destination indices.
struct AffineCopy {
    element_bytes: u64,
    /// Per destination dimension: what each coordinate of its axis wants.
    wanted: SmallVec<[Vec<(u64, u64)>; 4]>,
    src_dims: SmallVec<[SrcDim; 4]>,
    /// Tiles that own (copy 0 of the source) and tiles that want.
    owners: Holdings,
    wanters: Holdings,
    dst_copies: u64,
}

/// For every tile, the position of its block among the intervals of each dimension. A table, because
/// every tile is asked about several times and inverting a grid takes divisions.
struct Holdings {
    dims: usize,
    holds: Vec<bool>,
    positions: Vec<u32>,
}

impl Holdings {
    fn new(tiles: u32, var: &Var, copies_too: bool) -> Self {
        let dims = var.shape.len();
        let axes: SmallVec<[Option<usize>; 4]> = var.home.region.iter().map(Span::axis).collect();
        let mut grid = var.home.grid.clone();
        if !copies_too {
            var.home.copy_axes().into_iter().for_each(|axis| grid.axes[axis].extent = 1);
        }
        let mut holds = vec![false; tiles as usize];
        let mut positions = vec![0; tiles as usize * dims];
        grid.for_each_tile(|tile, coordinates| {
            let tile = tile as usize;
            holds[tile] = true;
            for (position, axis) in positions[tile * dims..][..dims].iter_mut().zip(&axes) {
                *position = axis.map_or(0, |axis| coordinates[axis]);
            }
        });
        Holdings { dims, holds, positions }
    }

    /// The positions of the tile's block, if it has one.
    fn at(&self, tile: u32) -> Option<&[u32]> {
        let tile = tile as usize;
        self.holds.get(tile)?.then(|| &self.positions[tile * self.dims..][..self.dims])
    }
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
    /// Per destination coordinate: number of owning coordinates.
    senders: Vec<u64>,
}

impl AffineCopy {
    fn new(program: &Program, copy: &Copy, dims: &[SrcIndex], region: &[(u64, u64)]) -> Self {
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
        let src_dims =
            dims.iter().enumerate().map(|(dim, index)| SrcDim::new(src, dim, *index, &wanted)).collect();
        AffineCopy {
            element_bytes: src.dtype.size_bytes(),
            wanted,
            src_dims,
            owners: Holdings::new(program.tiles, src, false),
            wanters: Holdings::new(program.tiles, dst, true),
            dst_copies: dst.home.copies(),
        }
    }

    fn add_received(&self, ports: &mut [PortUse], tiles_per_bus: u32) {
        for (tile, port) in (0..).zip(ports) {
            let Some(wanting) = self.wanters.at(tile) else { continue };
            let volume = self.wanted_elements(wanting);
            if volume == 0 {
                continue;
            }
            let own = self.owned_by(tile, wanting);
            let remote = volume - own;
            port.local_bytes += own * self.element_bytes;
            // What the neighbour owns itself does not come to both at once.
            match neighbour(tile, tiles_per_bus).filter(|&other| self.wanters.at(other) == Some(wanting)) {
                Some(other) if self.dst_copies > 1 => {
                    let from_pair = self.owned_by(other, wanting);
                    port.paired_bytes += (remote - from_pair) * self.element_bytes;
                    port.received_bytes += from_pair * self.element_bytes;
                }
                _ => port.received_bytes += remote * self.element_bytes,
            }
            port.messages += self.senders(wanting) - u64::from(own > 0);
        }
    }

    fn add_sent(&self, ports: &mut [PortUse]) {
        for (tile, port) in (0..).zip(ports) {
            let Some(owning) = self.owners.at(tile) else { continue };
            let at = |field: fn(&SrcDim) -> &Vec<u64>| -> u64 {
                self.src_dims.iter().zip(owning).map(|(dim, &at)| field(dim)[at as usize]).product()
            };
            let elements = at(|dim| &dim.elements);
            if elements == 0 {
                continue;
            }
            // With several copies of each wanted block, one of them is on another tile, so everything
            // is sent; with one copy, what the tile wants of itself is not.
            let own = match self.wanters.at(tile) {
                Some(wanting) if self.dst_copies == 1 => self.owned_by(tile, wanting),
                _ => 0,
            };
            port.sent_bytes += (elements - own) * self.element_bytes;
            port.messages += at(|dim| &dim.receivers) - u64::from(own > 0);
        }
    }

    /// Elements wanted by the tile whose block is at the positions.
    fn wanted_elements(&self, wanting: &[u32]) -> u64 {
        let lengths = self.wanted.iter().zip(wanting).map(|(intervals, &at)| {
            let (begin, end) = intervals[at as usize];
            end - begin
        });
        lengths.product()
    }

    /// Of the elements wanted at the positions, those that `tile` owns.
    fn owned_by(&self, tile: u32, wanting: &[u32]) -> u64 {
        let Some(owning) = self.owners.at(tile) else { return 0 };
        let overlaps = self.src_dims.iter().zip(owning).map(|(src_dim, &at)| {
            let owned = src_dim.owned[at as usize];
            match src_dim.dst_dim {
                None => owned.1 - owned.0,
                Some(dim) => overlap(owned, self.wanted[dim][wanting[dim] as usize]),
            }
        });
        overlaps.product()
    }

    /// Number of tiles that own something wanted at the positions.
    fn senders(&self, wanting: &[u32]) -> u64 {
        let counts = self.src_dims.iter().map(|src_dim| match src_dim.dst_dim {
            None => src_dim.owned.iter().map(|&(begin, end)| end - begin).sum(),
            Some(dim) => src_dim.senders[wanting[dim] as usize],
        });
        counts.product()
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
                    receivers: hits,
                    senders: Vec::new(),
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
