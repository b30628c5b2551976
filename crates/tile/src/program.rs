//! The tile IR as plain public data.

use crate::block::Block;
use crate::grid::{Class, Grid};
use crate::kernel::Kernel;
use crate::span::Span;
use pando_base::{Arena, DType, Shape, SideTable, Tensor, define_id};
use smallvec::{SmallVec, smallvec};

define_id!(pub VarId, "%");
define_id!(pub ComputeSetId, "@cs");
define_id!(pub ExchangeId, "@ex");

/// A region of a variable: one span per dimension.
pub type Region = SmallVec<[Span; 4]>;

/// Depth of prefetching unless a program says otherwise, as in ByteMLPerf's runs (systems.md section 1.5).
pub const PREFETCH: u32 = 2;

/// What one chip does. Every replica runs the same program; replicas are counted, never copied.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    pub name: String,
    /// Tiles of the chip that the program may use.
    pub tiles: u32,
    /// Chips that run the program side by side, each on its own data.
    pub replicas: u64,
    /// Items that the host has ready before they are asked for; 0 if it is asked for each and waited for.
    pub prefetch: u32,
    pub vars: Arena<VarId, Var>,
    pub compute_sets: Arena<ComputeSetId, ComputeSet>,
    pub exchanges: Arena<ExchangeId, Exchange>,
    pub body: Vec<Step>,
}

/// Storage spread over tiles.
#[derive(Clone, Debug, PartialEq)]
pub struct Var {
    pub name: String,
    pub dtype: DType,
    /// The whole index space; a tile holds the block its layout says.
    pub shape: Shape,
    pub home: Layout,
    pub role: Role,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Role {
    /// Lives from its first write to its last read.
    Temp,
    /// Written by the host before the body reads it.
    Input,
    /// Read by the host after the body wrote it.
    Output,
    /// Loaded once before the first run and always live.
    Constant(Init),
    /// Supplied from outside before the first run, under the variable's name, written by the body and kept from run to
    /// run: always live.
    State,
}

impl Role {
    /// Whether the variable keeps its memory from the first step to the last, used or not.
    pub fn always_lives(&self) -> bool {
        matches!(self, Role::Constant(_) | Role::State)
    }

    /// Whether the body may write it.
    pub fn is_writable(&self) -> bool {
        matches!(self, Role::Temp | Role::Output | Role::State)
    }
}

/// The contents of a constant.
#[derive(Clone, Debug, PartialEq)]
pub enum Init {
    /// Supplied from outside, under the variable's name.
    Extern,
    Splat(f64),
    Dense(Tensor),
}

/// Which tile holds which block: the grid's coordinates are the tiles that have storage, each with the
/// block the region says. Axes that no span uses hold copies; the copy at coordinate 0 is the one that
/// exchanges read from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    pub grid: Grid,
    pub region: Region,
}

/// Vertices that run between two exchanges. No vertex may read or write what another one writes.
#[derive(Clone, Debug, PartialEq)]
pub struct ComputeSet {
    /// The operation in the source that this came from.
    pub name: String,
    pub groups: Vec<Group>,
}

/// One vertex of a kernel at every coordinate of a grid, on that coordinate's tile.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    pub kernel: Kernel,
    pub grid: Grid,
    /// In the order of the kernel's signature.
    pub operands: SmallVec<[Operand; 4]>,
}

/// What a vertex touches: a region of a variable, which must lie within the block its tile holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operand {
    pub var: VarId,
    pub region: Region,
}

/// Copies that happen at once, after a sync.
#[derive(Clone, Debug, PartialEq)]
pub struct Exchange {
    pub name: String,
    pub copies: Vec<Copy>,
}

/// Moves elements of one variable to another one of the same type, from the tiles that own them to all
/// tiles that hold them in the destination. Several destinations receive the same message (multicast);
/// that is allowed for variables on a single tile, the form [`crate::expand()`] produces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copy {
    pub src: VarId,
    pub dsts: SmallVec<[VarId; 1]>,
    pub map: CopyMap,
}

/// Which source element goes to which destination element.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CopyMap {
    /// The destination elements in `region` come from the source element whose index is, per source
    /// dimension, an affine function of one destination index, or fixed. Every destination dimension is
    /// used exactly once.
    Affine { region: Block, dims: SmallVec<[SrcIndex; 4]> },
    /// Elements `[dst_begin, dst_begin + len)` in row-major order come from `[src_begin, …)`. Each tile's
    /// block must be contiguous in row-major order, on both sides.
    Flat { src_begin: u64, dst_begin: u64, len: u64 },
}

/// The index into one source dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SrcIndex {
    /// `step · (destination index along dim) + offset`.
    Dst {
        dim: u8,
        step: i64,
        offset: i64,
    },
    At(u64),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Compute(ComputeSetId),
    Exchange(ExchangeId),
    /// The host writes an input.
    HostIn(VarId),
    /// The host reads an output.
    HostOut(VarId),
    Repeat {
        count: u64,
        body: Vec<Step>,
    },
    /// `count` items, one after another: the host writes each to I/O tiles, the body works on it, the host reads what
    /// came of it. The transfers of the next item and of the last one run beside the body's [`crate::stream::window`].
    Stream {
        count: u64,
        /// Of `HostIn` alone.
        load: Vec<Step>,
        body: Vec<Step>,
        /// Of `HostOut` alone.
        store: Vec<Step>,
    },
    /// Every tile branches on its own copy of a flag: one bool on each tile. An expanded program names the
    /// pieces.
    If {
        flags: Flags,
        then_body: Vec<Step>,
        else_body: Vec<Step>,
    },
    /// Runs `cond`, then as long as the flag is set `body` and `cond` again.
    While {
        cond: Vec<Step>,
        flags: Flags,
        body: Vec<Step>,
        /// How often the body is counted to run when the program is timed.
        trips: u64,
    },
}

/// The variables that hold a flag, which together lie on every tile once.
pub type Flags = SmallVec<[VarId; 1]>;

impl Step {
    /// The steps inside, in order, with how often each list is counted to run.
    pub fn bodies(&self) -> SmallVec<[(&[Step], u64); 3]> {
        match self {
            Step::Repeat { count, body } => smallvec![(body.as_slice(), *count)],
            Step::Stream { count, load, body, store } => {
                smallvec![(load.as_slice(), *count), (body.as_slice(), *count), (store.as_slice(), *count)]
            }
            Step::If { then_body, else_body, .. } => {
                smallvec![(then_body.as_slice(), 1), (else_body.as_slice(), 1)]
            }
            Step::While { cond, body, trips, .. } => {
                smallvec![(cond.as_slice(), trips.saturating_add(1)), (body.as_slice(), *trips)]
            }
            Step::Compute(_) | Step::Exchange(_) | Step::HostIn(_) | Step::HostOut(_) => smallvec![],
        }
    }

    /// What a step branches on.
    pub fn flags(&self) -> &[VarId] {
        match self {
            Step::If { flags, .. } | Step::While { flags, .. } => flags,
            _ => &[],
        }
    }

    pub fn is_loop(&self) -> bool {
        matches!(self, Step::Repeat { .. } | Step::Stream { .. } | Step::While { .. })
    }
}

/// One byte address for every variable, the same on all tiles that hold it.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Placement {
    pub offset_bytes: SideTable<VarId, u64>,
}

impl Layout {
    /// All of a tensor on one tile.
    pub fn on_tile(tile: u32, shape: &[u64]) -> Self {
        Layout { grid: Grid::single(tile), region: shape.iter().map(|&dim| Span::full(dim)).collect() }
    }

    /// The block at the coordinates.
    pub fn block(&self, shape: &[u64], coordinates: &[u32]) -> Block {
        self.grid.block(&self.region, shape, coordinates)
    }

    /// Axes over which the tensor is repeated.
    pub fn copy_axes(&self) -> SmallVec<[usize; 4]> {
        self.grid.free_axes(&self.region)
    }

    /// Number of tiles that hold the same block.
    pub fn copies(&self) -> u64 {
        self.copy_axes().iter().map(|&axis| u64::from(self.grid.axes[axis].extent)).product()
    }

    /// Whether the blocks at copy coordinate 0 are disjoint and cover the shape.
    pub fn is_partition(&self, shape: &[u64]) -> bool {
        self.region.iter().zip(shape).all(|(span, &dim)| match span {
            Span::Fixed { begin, end } => (*begin, *end) == (0, dim),
            Span::Part(part) => part.is_partition() && part.total == dim,
        })
    }
}

impl Var {
    /// Bytes on the fullest tile.
    pub fn max_tile_bytes(&self) -> u64 {
        self.fullest_tile().0
    }

    /// Bytes on the fullest tile, and the first such tile.
    pub fn fullest_tile(&self) -> (u64, u32) {
        let at = |class: &Class| {
            let first = class.representative();
            (self.tile_bytes(&first), self.home.grid.tile(&first))
        };
        let first = (0, self.home.grid.base);
        self.classes().iter().map(at).fold(first, |a, b| if (b.0, a.1) > (a.0, b.1) { b } else { a })
    }

    /// Bytes on all tiles together, copies counted; wide, since a hostile variable may exceed 64 bits.
    pub fn total_bytes(&self) -> u128 {
        let bytes =
            |class: &Class| u128::from(self.tile_bytes(&class.representative())) * u128::from(class.len());
        self.classes().iter().map(bytes).sum()
    }

    fn classes(&self) -> Vec<Class> {
        self.home.grid.classes([(self.home.region.as_slice(), &*self.shape)].into_iter())
    }

    /// Bytes on the tile at the coordinates of the layout's grid.
    pub fn tile_bytes(&self, coordinates: &[u32]) -> u64 {
        self.home.block(&self.shape, coordinates).volume() * self.dtype.size_bytes()
    }
}

impl CopyMap {
    /// Every element to the same index.
    pub fn identity(shape: &[u64]) -> Self {
        let dims = (0..shape.len()).map(|dim| SrcIndex::Dst { dim: dim as u8, step: 1, offset: 0 }).collect();
        CopyMap::Affine { region: Block::full(shape), dims }
    }
}

impl Program {
    pub fn new(name: impl Into<String>, tiles: u32) -> Self {
        Program {
            name: name.into(),
            tiles,
            replicas: 1,
            prefetch: PREFETCH,
            vars: Arena::new(),
            compute_sets: Arena::new(),
            exchanges: Arena::new(),
            body: Vec::new(),
        }
    }
}
