//! What the tests of lowered programs share: values of a compiled model tile by tile, and the checks that
//! every lowered program passes.

use pando_base::{Error, Result, Tensor};
use pando_lower::Compiled;
use pando_machine::Machine;
use pando_tile::{Program, VarId, check, expand};

/// A machine with as many tiles on which fixed costs are nothing, so that the planner spreads even tiny
/// operations over all tiles.
pub fn spreading_machine(tiles: u32) -> Machine {
    let mut machine = pando_machine::load("tiny4").expect("built in");
    machine.chip.tiles = tiles;
    machine.chip.exchange.setup_cycles = 0;
    machine.chip.sync.internal_cycles = 0;
    machine.chip.issue.vertex_dispatch_cycles = 0;
    for rate in &mut machine.chip.matrix {
        // A matrix unit that takes one channel at a time, so that small channels can be split.
        (rate.conv_units, rate.weights_per_unit) = (1, 1);
    }
    machine
}

/// Outputs computed tile by tile; reading what was never written is an error.
pub fn simulate(compiled: &Compiled, args: &[Tensor]) -> Result<Vec<Tensor>> {
    let emitted = &compiled.emitted;
    run(&emitted.program, |var| value_of(compiled, var, args), &emitted.outputs)
}

fn value_of(compiled: &Compiled, var: VarId, args: &[Tensor]) -> Option<Tensor> {
    match compiled.emitted.inputs.iter().position(|&input| input == var) {
        Some(index) => Some(args[index].clone()),
        None => compiled.emitted.constants[var].map(|id| compiled.module.consts[id].materialize()),
    }
}

fn run(program: &Program, value: impl Fn(VarId) -> Option<Tensor>, outputs: &[VarId]) -> Result<Vec<Tensor>> {
    let options = pando_sim::RunOptions { strict: true, ..pando_sim::RunOptions::default() };
    let results = pando_sim::run(program, value, &options)?;
    outputs
        .iter()
        .map(|&var| {
            results.tensor(var).ok_or_else(|| Error::new(format!("no output {}", program.vars[var].name)))
        })
        .collect()
}

/// Panics unless the program is valid, sound under every checker, and equal to its text.
pub fn assert_sound(compiled: &Compiled, machine: &Machine, what: &str) {
    let program = &compiled.emitted.program;
    let text = pando_tile::print(program);
    if let Err(problem) = pando_tile::validate(program) {
        panic!("{what}: {}\n{text}", problem.message);
    }
    assert_eq!(check::check(program), Vec::<String>::new(), "{what}\n{text}");
    let (placement, chip) = (&compiled.placed.placement, &machine.chip);
    assert_eq!(check::check_placement(program, placement, chip), Vec::<String>::new(), "{what}\n{text}");
    let room = check::check_room(program, placement, chip);
    assert_eq!(room.is_empty(), compiled.fit.fits, "{what}: {room:?}\n{text}");
    let parsed =
        pando_tile::parse(&text, "printed").unwrap_or_else(|error| panic!("{what}: {error}\n{text}"));
    assert_eq!(pando_tile::print(&parsed), text, "{what}: text changes when read back");
}

/// Panics unless the explicit form takes the same cycles at every step and moves as many bytes.
pub fn assert_expansion_agrees(
    compiled: &Compiled,
    machine: &Machine,
    args: &[Tensor],
    values: &[Tensor],
    what: &str,
) {
    let program = &compiled.emitted.program;
    let (explicit, origins) = expand(program);
    if let Err(problem) = pando_tile::validate(&explicit) {
        panic!("{what}: expanded: {}", problem.message);
    }
    for (grouped, expanded) in program.exchanges.values().zip(explicit.exchanges.values()) {
        let bus = machine.chip.exchange.tiles_per_bus;
        let grouped_ports = pando_tile::traffic::port_use(program, grouped, bus);
        assert_eq!(
            grouped_ports,
            pando_tile::traffic::port_use(&explicit, expanded, bus),
            "{what}: {}",
            grouped.name
        );
    }
    let timeline = |program: &Program| -> Vec<u64> {
        let times = pando_sim::time(program, machine);
        times.steps.iter().filter(|step| step.host_bytes == 0).map(|step| step.cycles).collect()
    };
    assert_eq!(timeline(program), timeline(&explicit), "{what}: cycles");
    let pieces: Vec<Vec<VarId>> = compiled
        .emitted
        .outputs
        .iter()
        .map(|&output| explicit.vars.ids().filter(|&id| origins[id] == Some(output)).collect())
        .collect();
    let flat: Vec<VarId> = pieces.concat();
    let value = |var: VarId| value_of(compiled, origins[var].expect("every piece has an origin"), args);
    let results = run(&explicit, value, &flat).unwrap_or_else(|error| panic!("{what}: expanded: {error}"));
    let mut results = results.into_iter();
    for (output, whole) in pieces.iter().zip(values) {
        for (&piece, tensor) in output.iter().zip(results.by_ref()) {
            assert_block_equal(&explicit, piece, &tensor, whole, what);
        }
    }
}

fn assert_block_equal(program: &Program, piece: VarId, part: &Tensor, whole: &Tensor, what: &str) {
    let var = &program.vars[piece];
    let block = var.home.block(&var.shape, &[]);
    let strides = var.shape.strides();
    for index in pando_base::Shape::from(block.lens().to_vec()).indices() {
        let position: u64 = index
            .iter()
            .zip(&block.0)
            .zip(&strides)
            .map(|((i, (begin, _)), stride)| (i + begin) * stride)
            .sum();
        let (a, b) = (part.get_f64(position as usize), whole.get_f64(position as usize));
        assert!(
            a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan()),
            "{what}: %{} {index:?}: {a} {b}",
            var.name
        );
    }
}
