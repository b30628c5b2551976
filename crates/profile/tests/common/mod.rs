//! A small profile whose sums were made by hand.

use pando_profile::{
    Cycles, Fit, Memory, MemoryByCategory, Profile, Region, Step, StepKind, SystemInfo, TileRun, Totals,
    Trust, VarLife, VarRole, VarUse,
};

/// 2 × 1000 cycles of compute, 500 + 64 of exchange, 436 of waiting for the host: 3000 at 1 GHz.
pub fn profile() -> Profile {
    let steps = vec![
        Step {
            cycles: 436,
            parts: Cycles { host: 436, ..Cycles::default() },
            host_bytes: 4096,
            live_bytes_peak: 700,
            ..Step::new("host in %x", StepKind::HostIn, 1)
        },
        Step {
            cycles: 564,
            parts: Cycles { exchange: 500, sync: 64, ..Cycles::default() },
            tiles_used: 4,
            mean_tile_cycles: 300.0,
            max_tile_cycles: 400,
            sent_bytes: 4096,
            received_bytes: 8192,
            live_bytes_peak: 900,
            live_peak_tile: 2,
            ..Step::new("layer:spread", StepKind::Exchange, 1)
        },
        Step {
            cycles: 1000,
            parts: Cycles { compute: 1000, ..Cycles::default() },
            tiles_used: 4,
            mean_tile_cycles: 900.0,
            max_tile_cycles: 1000,
            vertices: 24,
            flops: 4000,
            live_bytes_peak: 1000,
            live_peak_tile: 2,
            ..Step::new("layer:multiply", StepKind::Compute, 2)
        },
    ];
    Profile {
        format_version: pando_profile::FORMAT_VERSION,
        program: "example".into(),
        system: SystemInfo {
            name: "tiny4".into(),
            title: "four tiles".into(),
            chips: 2,
            tiles_per_chip: 4,
            workers: 6,
            clock_hz: 1e9,
            tile_bytes: 2048,
        },
        replicas: 2,
        items_per_run: 3,
        stages: Vec::new(),
        host_io: Default::default(),
        operations: pando_profile::reduce::operations(&steps),
        totals: Totals {
            cycles: 3000,
            seconds: 3e-6,
            parts: pando_profile::reduce::cycles_by_kind(&steps),
            flops: 8000,
            peak_type: "f16".into(),
            utilisation: 0.125,
            sent_bytes: 4096,
            received_bytes: 8192,
            host_in_bytes: 4096,
            energy_j_per_item: Some(0.000_25),
            price_usd_per_million: Some(0.0317),
            ..Totals::default()
        },
        steps,
        memory: Memory {
            tile_bytes: 2048,
            max_used: 1000,
            max_tile: 2,
            max_step: 2,
            mean_used: 850.0,
            always_live: 600,
            code: 100,
            fullest: categories(600, 300),
            total: categories(2400, 600),
            tiles: vec![run(0, 2, 700), run(2, 1, 1000), run(3, 1, 1000)],
            gap_bytes: Some(24),
            max_used_with_gaps: Some(1024),
            regions: vec![region("executable", 1024, 100), region("interleaved", 1024, 924)],
        },
        variables: vec![
            var("x", 300, 0, 1, VarRole::Input),
            var("a weight with a name that is much too long for its column", 600, 0, 2, VarRole::Constant),
        ],
        fit: Fit {
            fits: true,
            tile: 2,
            used_bytes: 1000,
            available_bytes: 2048,
            operation: "layer".into(),
            largest: vec![VarUse {
                name: "a weight with a name that is much too long for its column".into(),
                bytes: 600,
            }],
            ..Fit::default()
        },
        trust: Trust { range: "elementwise programs on one chip".into(), error: Some(0.05) },
    }
}

fn categories(always_live: u64, temporary: u64) -> MemoryByCategory {
    MemoryByCategory { always_live, temporary, code: 100, ..MemoryByCategory::default() }
}

fn run(first_tile: u32, count: u32, bytes: u64) -> TileRun {
    TileRun { first_tile, count, bytes, bytes_with_gaps: bytes + 24 }
}

fn region(name: &str, bytes: u64, used: u64) -> Region {
    Region { name: name.into(), bytes, used }
}

fn var(name: &str, bytes: u64, first_step: u32, last_step: u32, role: VarRole) -> VarLife {
    VarLife {
        name: name.into(),
        dtype: "f32".into(),
        shape: vec![bytes / 4],
        tile_bytes_max: bytes,
        total_bytes: bytes,
        tiles: 1,
        first_step,
        last_step,
        role,
        address: Some(64),
    }
}
