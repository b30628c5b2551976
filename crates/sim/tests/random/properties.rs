//! What must hold for every sound program. Each property is one function; an error says what differs.

use crate::oracle;
use pando_base::{SideTable, Tensor};
use pando_machine::Machine;
use pando_profile::{Fit, Profile, Step as TimedStep};
use pando_sim::{Output, Outputs, RunOptions};
use pando_tile::check::check;
use pando_tile::liveness::liveness;
use pando_tile::memory::{fixed_memory, var_bytes};
use pando_tile::traffic::{Traffic, port_use};
use pando_tile::{Program, TileSums, VarId, expand, parse, print, validate};
use std::collections::BTreeMap;

type Check = Result<(), String>;

/// The variable that each variable of an expanded program is a piece of.
type Origins = SideTable<VarId, Option<VarId>>;

pub fn require(holds: bool, message: impl FnOnce() -> String) -> Check {
    if holds { Ok(()) } else { Err(message()) }
}

/// All properties.
pub fn sound(program: &Program, machine: &Machine) -> Check {
    is_accepted(program)?;
    let outputs = has_the_right_values(program)?;
    lives_long_enough(program, &outputs)?;
    let (explicit, origins) = expand(program);
    is_accepted(&explicit).map_err(|message| format!("expanded: {message}"))?;
    expanded_values_agree(&explicit, &origins, &outputs)?;
    expanded_times_agree(program, &explicit, machine)?;
    expanded_memory_agrees(program, &explicit, machine)?;
    expanded_traffic_agrees(program, &explicit, machine.chip.exchange.tiles_per_bus)
}

/// Valid, no findings, and printing and parsing give it back.
fn is_accepted(program: &Program) -> Check {
    validate(program).map_err(|problem| format!("not valid: {}", problem.message))?;
    let findings = check(program);
    require(findings.is_empty(), || format!("findings: {findings:?}"))?;
    let back = parse(&print(program), "random").map_err(|error| format!("not parsed: {error}"))?;
    require(back == *program, || format!("text differs:\n{}", print(&back)))
}

pub fn run(program: &Program, strict: bool) -> Result<Outputs, String> {
    let options = RunOptions { strict, ..RunOptions::default() };
    pando_sim::run(program, |var| Some(oracle::given(program, var)), &options)
        .map_err(|error| error.to_string())
}

/// As the definition says, and strictly so.
fn has_the_right_values(program: &Program) -> Result<BTreeMap<VarId, Tensor>, String> {
    let expected = oracle::outputs(program)?;
    let outputs = run(program, true)?;
    for (&var, tensor) in &expected {
        let actual = outputs.tensor(var);
        require(actual.as_ref() == Some(tensor), || format!("{var} is {actual:?}, not {tensor:?}"))?;
    }
    require(outputs.vars.len() == expected.len(), || "outputs that nobody reads".into())?;
    Ok(expected)
}

/// Nothing is missed if variables lose their contents where they do not live.
fn lives_long_enough(program: &Program, expected: &BTreeMap<VarId, Tensor>) -> Check {
    let outputs = oracle::outputs_while(program, Some(liveness(program)));
    let outputs = outputs.map_err(|message| format!("a variable dies too early: {message}"))?;
    require(outputs == *expected, || "a variable dies too early: outputs change".into())
}

fn expanded_values_agree(explicit: &Program, origins: &Origins, expected: &BTreeMap<VarId, Tensor>) -> Check {
    let origin = |piece: VarId| origins[piece].expect("a piece has an origin");
    let given = |piece: VarId| {
        // The whole variable's value, which goes by the whole variable's name.
        let whole = explicit.vars[piece].name.split(".t").next().unwrap_or_default();
        let salt = whole.bytes().map(u64::from).sum();
        Some(oracle::example(explicit.vars[piece].dtype, &explicit.vars[piece].shape, salt))
    };
    let options = RunOptions { strict: true, ..RunOptions::default() };
    let outputs = pando_sim::run(explicit, given, &options).map_err(|error| format!("expanded: {error}"))?;
    let mut joined: BTreeMap<VarId, Output> = BTreeMap::new();
    for (piece, output) in outputs.vars {
        match joined.get_mut(&origin(piece)) {
            Some(whole) => whole.blocks.extend(output.blocks),
            None => drop(joined.insert(origin(piece), output)),
        }
    }
    for (var, tensor) in expected {
        let actual = joined.get(var).map(Output::tensor);
        require(actual.as_ref() == Some(tensor), || format!("expanded {var} is {actual:?}, not {tensor:?}"))?;
    }
    Ok(())
}

fn profile(program: &Program, machine: &Machine) -> Profile {
    pando_sim::profile(program, machine, None, Fit::default(), 1)
}

/// Every step costs the same, number by number. Only memory may differ: pieces of a variable that nobody
/// reads again die earlier than the whole.
fn expanded_times_agree(program: &Program, explicit: &Program, machine: &Machine) -> Check {
    let (grouped, expanded) = (profile(program, machine), profile(explicit, machine));
    let sizes = (grouped.steps.len(), expanded.steps.len());
    require(sizes.0 == sizes.1, || format!("{} steps became {}", sizes.0, sizes.1))?;
    for (a, b) in grouped.steps.iter().zip(&expanded.steps) {
        let b = TimedStep {
            name: a.name.clone(),
            live_bytes_peak: a.live_bytes_peak,
            live_peak_tile: a.live_peak_tile,
            temporary_bytes: a.temporary_bytes,
            ..b.clone()
        };
        require(*a == b, || format!("expanded step differs:\n{a:?}\n{b:?}"))?;
    }
    for (a, b) in grouped.steps.iter().zip(&expanded.steps) {
        require(b.live_bytes_peak <= a.live_bytes_peak, || format!("expanded memory grew:\n{a:?}\n{b:?}"))?;
    }
    require(grouped.totals == expanded.totals, || "expanded totals differ".into())
}

/// Every tile holds the same bytes of variables, code, vertices and exchange code.
fn expanded_memory_agrees(program: &Program, explicit: &Program, machine: &Machine) -> Check {
    let vars = |program: &Program| {
        let mut sums = TileSums::new();
        program.vars.values().for_each(|var| sums.add_all(&var_bytes(var)));
        sums.pieces()
    };
    require(vars(program) == vars(explicit), || "expanded variables take other bytes".into())?;
    let fixed =
        |program: &Program| fixed_memory(program, &machine.chip, &Traffic::new(program, &machine.chip), None);
    let (a, b) = (fixed(program), fixed(explicit));
    let same = |a: &TileSums, b: &TileSums| a.pieces() == b.pieces();
    require(same(&a.code, &b.code), || "expanded code takes other bytes".into())?;
    require(same(&a.vertex_state, &b.vertex_state), || "expanded vertices take other bytes".into())?;
    require(same(&a.exchange_code, &b.exchange_code), || "expanded exchange code takes other bytes".into())?;
    require(same(&a.stacks, &b.stacks), || "expanded stacks take other bytes".into())
}

/// Every port is used alike: the closed forms against the explicit messages.
fn expanded_traffic_agrees(program: &Program, explicit: &Program, tiles_per_bus: u32) -> Check {
    for ((id, exchange), other) in program.exchanges.iter().zip(explicit.exchanges.values()) {
        let (a, b) = (port_use(program, exchange, tiles_per_bus), port_use(explicit, other, tiles_per_bus));
        for (tile, (a, b)) in a.iter().zip(&b).enumerate() {
            require(a == b, || format!("{id} uses the port of tile {tile} as {a:?}, expanded {b:?}"))?;
        }
    }
    Ok(())
}

/// The same bits whatever the number of threads.
pub fn threads_agree(program: &Program, pools: &[rayon::ThreadPool]) -> Check {
    let results: Vec<_> = pools.iter().map(|pool| pool.install(|| run(program, true))).collect();
    require(results.windows(2).all(|pair| pair[0] == pair[1]), || {
        "values depend on the number of threads".into()
    })
}
