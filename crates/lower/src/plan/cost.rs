//! What steps cost, as planners estimate it: of the busiest tile, in closed form.

use pando_base::DType;
use pando_machine::{Chip, Machine, MatrixRate};
use pando_tile::{Kernel, OperandType, VertexCost};
use smallvec::SmallVec;

/// What a split of a product or convolution costs on the busiest tile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    pub lhs_exchange_cycles: u64,
    pub rhs_exchange_cycles: u64,
    pub compute_cycles: u64,
    pub reduce_exchange_cycles: u64,
    pub reduce_cycles: u64,
    /// Syncs and exchange set-up.
    pub overhead_cycles: u64,
    pub temporary_bytes: u64,
}

impl Cost {
    pub fn cycles(&self) -> u64 {
        self.lhs_exchange_cycles
            + self.rhs_exchange_cycles
            + self.compute_cycles
            + self.reduce_exchange_cycles
            + self.reduce_cycles
            + self.overhead_cycles
    }
}

/// Cycles of a tile that runs one vertex of this cost.
pub(crate) fn vertex_cycles(cost: VertexCost, workers: u32) -> u64 {
    match cost {
        VertexCost::Worker(slots) => slots.saturating_mul(workers.into()),
        VertexCost::Supervisor(cycles) => cycles,
    }
}

/// The rate at which the matrix unit multiplies a type: its own, or that of the next wider format that the chip has.
pub(crate) fn matrix_rate(chip: &Chip, dtype: DType) -> Option<&MatrixRate> {
    let formats: &[&str] = match dtype {
        DType::F32 => &["f32"],
        DType::F8(..) => &["f8", "f16", "f32"],
        _ => &["f16"],
    };
    formats.iter().find_map(|format| chip.fastest_rate(format))
}

/// Cycles to receive bytes on one tile, at the bus's full width if a neighbour gets the same.
pub(crate) fn receive_cycles(machine: &Machine, bytes: u64, paired: bool) -> u64 {
    let exchange = &machine.chip.exchange;
    let width = if paired { u64::from(exchange.tiles_per_bus.max(1)) } else { 1 };
    bytes.div_ceil(exchange.bytes_per_cycle * width)
}

/// Fixed cycles of one superstep with an exchange.
pub(crate) fn superstep_cycles(machine: &Machine) -> u64 {
    machine.chip.sync.internal_cycles + machine.chip.exchange.setup_cycles
}

/// Cycles to add `depth` partial results of `share` elements.
pub(crate) fn reduce_cycles(chip: &Chip, depth: u64, share: u64, dtype: DType) -> u64 {
    let kernel = Kernel::Reduce { func: pando_base::ReduceFn::Sum, axes: SmallVec::from_slice(&[0]) };
    let (input, output) = ([depth, share], [share]);
    let operands = [OperandType { dtype, lens: &input }, OperandType { dtype, lens: &output }];
    vertex_cycles(kernel.cycles(&operands, chip), chip.workers)
}
