//! Which instructions this computer has. Every kernel exists for each level and gives, at one level, the
//! same bits on every computer.

use crate::errors;
use crate::kernel::gemm::{Found, has_tile_unit, tile_unit_found, time_share};
use pando_base::Result;

/// Levels, least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Isa {
    /// What the target guarantees (SSE2 on x86-64, NEON on aarch64), by the compiler's own vectoriser.
    Portable,
    /// AVX2 and FMA.
    Avx2,
    /// AVX-512 F, BW, DQ and VL.
    Avx512,
}

impl Isa {
    pub const ALL: [Isa; 3] = [Isa::Portable, Isa::Avx2, Isa::Avx512];

    /// The best level of this computer.
    #[cfg(target_arch = "x86_64")]
    pub fn detect() -> Isa {
        let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
        let avx512 = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl");
        match (avx2, avx512) {
            (true, true) => Isa::Avx512,
            (true, false) => Isa::Avx2,
            _ => Isa::Portable,
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    pub fn detect() -> Isa {
        Isa::Portable
    }

    pub fn name(self) -> &'static str {
        match self {
            Isa::Portable => "portable",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
        }
    }

    /// The level of a name, if it runs here.
    pub fn named(name: &str) -> Result<Isa> {
        let names = || Isa::available().map(Isa::name).collect::<Vec<_>>().join(", ");
        Isa::available().find(|isa| isa.name() == name).ok_or_else(|| errors::no_such_isa(name, &names()))
    }

    /// The levels that run here.
    pub fn available() -> impl Iterator<Item = Isa> {
        let best = Isa::detect();
        Isa::ALL.into_iter().filter(move |&isa| isa <= best)
    }
}

/// The unit for products of tiles of bf16 and bytes (AMX), which a computer has beside a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TileUnit {
    None,
    /// What the processor's would do, in software: for tests.
    Emulated,
    /// Only where [`TileUnit::detect`] finds it.
    Processor,
}

impl TileUnit {
    /// This computer's, if the system lets the process use it and its products have been found right.
    pub fn detect() -> TileUnit {
        if has_tile_unit() { TileUnit::Processor } else { TileUnit::None }
    }

    /// What a report calls it.
    pub fn name(self) -> &'static str {
        match self {
            TileUnit::None => "none",
            TileUnit::Emulated => "emulated",
            TileUnit::Processor => "amx",
        }
    }

    /// Why this computer's is not used though there is one.
    pub fn problem() -> Option<&'static str> {
        match tile_unit_found() {
            Found::Nothing | Found::Good => None,
            Found::Refused => Some("the system does not let this process use the processor's AMX unit"),
            Found::Wrong => Some("the processor's AMX unit is not used: it computed a product wrongly"),
        }
    }

    /// The time that products of one, two and three numbers of bf16 take on this computer's, as shares of that of
    /// vectors of bf16, and of f32, twice; `None` if there is none.
    pub fn time_shares() -> Option<[f64; 3]> {
        has_tile_unit().then(|| [1, 2, 3].map(|parts| time_share(TileUnit::Processor, parts)))
    }

    /// What can be used of it here.
    pub fn usable(self) -> TileUnit {
        if self == TileUnit::Processor { TileUnit::detect() } else { self }
    }
}
