//! What an exchange asks of every tile's port, and how many cycles it takes.
//!
//! A tile sends each element of its block once to all tiles that need it in the same role (multicast) and
//! receives what it does not own itself; what it owns is copied on the tile. For grouped copies the
//! counts factor over dimensions, so no pair of tiles is looked at: the cost is the number of blocks on
//! both sides, not their product. The explicit [`messages`] define the same numbers.

mod affine;
mod runs;

use crate::message::messages;
use crate::program::{Copy, CopyMap, Exchange, ExchangeId, Layout, Program, VarId};
use affine::AffineCopy;
use pando_base::{DType, Shape, SideTable};
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExchangeCost {
    /// From sync to the last word; 0 if nothing crosses tiles.
    pub cycles: u64,
    /// Copies within tiles, done by the tiles' workers.
    pub local_cycles: u64,
    /// The tile whose port and copies take longest together, and how long.
    pub busiest_tile: u32,
    pub busiest_cycles: u64,
    /// The same summed over tiles.
    pub sum_cycles: u64,
    pub tiles_used: u32,
    /// Sum over tiles, each receiver counted.
    pub received_bytes: u64,
    pub sent_bytes: u64,
    pub local_bytes: u64,
    pub messages: u64,
    /// Neighbouring tiles that take part in equally many messages, as `(first, count, messages)`.
    pub message_runs: Vec<(u32, u32, u64)>,
}

/// The exchanges of a program, those of one form looked at once.
pub struct Traffic {
    forms: Vec<(ExchangeCost, Vec<ExchangeId>)>,
    form_of: SideTable<ExchangeId, u32>,
}

impl Traffic {
    pub fn new(program: &Program, chip: &Chip) -> Self {
        let mut traffic = Traffic { forms: Vec::new(), form_of: SideTable::default() };
        for ids in forms(program) {
            let ports = port_use(program, &program.exchanges[ids[0]], chip.exchange.tiles_per_bus);
            ids.iter().for_each(|&id| traffic.form_of[id] = traffic.forms.len() as u32);
            traffic.forms.push((ports_cost(&ports, chip), ids));
        }
        traffic
    }

    pub fn cost(&self, id: ExchangeId) -> &ExchangeCost {
        &self.forms[self.form_of[id] as usize].0
    }

    /// Each form's cost and the exchanges that have it.
    pub fn forms(&self) -> &[(ExchangeCost, Vec<ExchangeId>)] {
        &self.forms
    }
}

/// Port use of all tiles of the program.
pub fn port_use(program: &Program, exchange: &Exchange, tiles_per_bus: u32) -> Vec<PortUse> {
    let mut ports = vec![PortUse::default(); program.tiles as usize];
    for copy in &exchange.copies {
        match &copy.map {
            CopyMap::Affine { region, dims } if copy.dsts.len() == 1 => {
                AffineCopy::new(program, copy, dims, &region.0).add_to(&mut ports, tiles_per_bus);
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
    let mut first = 0;
    // Neighbours mostly move the same number of bytes; their times are computed once.
    for run in ports.chunk_by(PortUse::moves_as_much_as) {
        let (port, count) = (&run[0], run.len() as u64);
        let messages: u64 = run.iter().map(|port| port.messages).sum();
        cost.add_run(port, count, first, chip);
        cost.messages += messages;
        first += run.len() as u32;
    }
    cost.message_runs = message_runs(ports);
    if cost.cycles > 0 {
        cost.cycles += chip.exchange.setup_cycles;
    }
    cost
}

fn message_runs(ports: &[PortUse]) -> Vec<(u32, u32, u64)> {
    let mut runs = Vec::new();
    let mut first = 0;
    for run in ports.chunk_by(|a, b| a.messages == b.messages) {
        if run[0].messages > 0 {
            runs.push((first, run.len() as u32, run[0].messages));
        }
        first += run.len() as u32;
    }
    runs
}

impl ExchangeCost {
    /// Adds `count` tiles from `first` on that all move as much as `port`.
    fn add_run(&mut self, port: &PortUse, count: u64, first: u32, chip: &Chip) {
        let (transfer, local) = (port.transfer_cycles(chip), port.local_cycles(chip));
        self.cycles = self.cycles.max(transfer);
        self.local_cycles = self.local_cycles.max(local);
        if transfer + local > self.busiest_cycles {
            (self.busiest_cycles, self.busiest_tile) = (transfer + local, first);
        }
        let times = |value: u64| value.saturating_mul(count);
        self.sum_cycles = self.sum_cycles.saturating_add(times(transfer + local));
        self.tiles_used += if port.is_used() { count as u32 } else { 0 };
        self.received_bytes += times(port.received_bytes + port.paired_bytes);
        self.sent_bytes += times(port.sent_bytes);
        self.local_bytes += times(port.local_bytes);
    }
}

impl PortUse {
    /// Whether another port moves the same bytes, in however many messages.
    fn moves_as_much_as(&self, other: &PortUse) -> bool {
        PortUse { messages: 0, ..*self } == PortUse { messages: 0, ..*other }
            && (self.messages > 0) == (other.messages > 0)
    }

    fn is_used(&self) -> bool {
        *self != PortUse::default()
    }

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
