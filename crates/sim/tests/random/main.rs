//! Goal: the grouped form of a program means what its definition says, and everything computed from groups
//! equals what the explicit form gives.
//! Method: random programs from seeds. Sound ones are held against an element-by-element oracle and their
//! own expansion; broken ones against the checkers' rules written out element by element. `PANDO_SEEDS`
//! sets the number of seeds; a failure is shrunk by shortening its bytes and printed as text.

mod generate;
mod judges;
mod mutate;
mod oracle;
mod properties;
mod source;

use mutate::Mutation;
use pando_machine::Machine;
use pando_tile::check::{check_exchanges, check_locality, check_races};
use pando_tile::{Program, print, validate};
use properties::require;
use rayon::prelude::*;
use source::Source;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

fn seeds() -> u64 {
    std::env::var("PANDO_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(1000)
}

fn machine() -> Machine {
    pando_machine::load("tiny4").unwrap()
}

fn bytes(seed: u64) -> Vec<u8> {
    Source::seeded(seed, 20 + (seed % 230) as usize)
}

/// Runs a property, with panics as failures.
fn fails(bytes: &[u8], property: &(dyn Fn(&[u8]) -> Result<(), String> + Sync)) -> Option<String> {
    match catch_unwind(AssertUnwindSafe(|| property(bytes))) {
        Ok(result) => result.err(),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            Some(format!(
                "panic: {}",
                text.unwrap_or_else(|| panic.downcast_ref::<&str>().unwrap_or(&"").to_string())
            ))
        }
    }
}

/// Checks all seeds; the first that fails is shortened as far as it still fails.
fn for_all_seeds(property: &(dyn Fn(&[u8]) -> Result<(), String> + Sync)) {
    let failing = (0..seeds()).into_par_iter().find_first(|&seed| fails(&bytes(seed), property).is_some());
    let Some(seed) = failing else { return };
    let bytes = bytes(seed);
    let shortest = (0..=bytes.len()).find(|&length| fails(&bytes[..length], property).is_some());
    let bytes = &bytes[..shortest.unwrap_or(bytes.len())];
    let message = fails(bytes, property).unwrap_or_default();
    panic!("seed {seed}, {} bytes: {message}\n{}", bytes.len(), print(&generate::generate(bytes)));
}

#[test]
fn sound_programs_mean_what_they_say() {
    let machine = machine();
    for_all_seeds(&|bytes| properties::sound(&generate::generate(bytes), &machine));
}

#[test]
fn values_do_not_depend_on_threads() {
    let pool = |threads| rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    let pools = [pool(1), pool(2), pool(5)];
    for seed in 0..seeds().min(100) {
        let program = generate::generate(&bytes(seed));
        properties::threads_agree(&program, &pools)
            .unwrap_or_else(|message| panic!("seed {seed}: {message}"));
    }
}

/// What became of the mutants of one kind.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    made: u32,
    invalid: u32,
    found: u32,
    unwritten: u32,
}

#[test]
fn broken_programs_are_caught() {
    let tallies: Mutex<BTreeMap<Mutation, Tally>> = Mutex::default();
    for_all_seeds(&|bytes| {
        let mut source = Source::new(&Source::seeded(
            bytes.len() as u64 * 7 + bytes.first().map_or(0, |&byte| u64::from(byte)),
            40,
        ));
        for mutation in Mutation::ALL {
            let mut program = generate::generate(bytes);
            if mutate::mutate(&mut program, mutation, &mut source).is_some() {
                let tally = judge(&program, mutation)
                    .map_err(|message| format!("{mutation:?}: {message}\nmutant:\n{}", print(&program)))?;
                add(tallies.lock().unwrap().entry(mutation).or_default(), tally);
            }
        }
        Ok(())
    });
    let tallies = tallies.into_inner().unwrap();
    println!("{tallies:#?}");
    // Shares mean something only for many mutants.
    for mutation in Mutation::ALL.into_iter().filter(|_| seeds() >= 1000) {
        let tally = tallies.get(&mutation).copied().unwrap_or_default();
        let caught = tally.invalid + tally.found + tally.unwritten;
        // Doing something twice is a fault unless it touches nothing; the others often change no more than
        // the meaning.
        let least = if matches!(mutation, Mutation::RepeatGroup | Mutation::RepeatCopy) { 95 } else { 15 };
        assert!(caught * 100 >= tally.made * least, "{mutation:?} breaks too little to be a test: {tally:?}");
    }
}

fn add(sum: &mut Tally, one: Tally) {
    sum.made += one.made;
    sum.invalid += one.invalid;
    sum.found += one.found;
    sum.unwritten += one.unwritten;
}

/// Every checker must say what the definition says, and running must fail or not as it should, without
/// panics.
fn judge(program: &Program, mutation: Mutation) -> Result<Tally, String> {
    let mut tally = Tally { made: 1, ..Tally::default() };
    if validate(program).is_err() {
        tally.invalid = 1;
        return Ok(tally);
    }
    let is_local = judges::is_local(program);
    let locality = check_locality(program);
    require(locality.is_empty() == is_local, || format!("locality is {is_local}, findings {locality:?}"))?;
    let is_free_of_races = !is_local || judges::is_free_of_races(program);
    let races = if is_local { check_races(program) } else { Vec::new() };
    require(races.is_empty() == is_free_of_races, || {
        format!("race-free is {is_free_of_races}, findings {races:?}")
    })?;
    let sound = judges::are_exchanges_sound(program);
    let exchanges = check_exchanges(program);
    require(exchanges.is_empty() == sound, || format!("sound exchanges is {sound}, findings {exchanges:?}"))?;
    if !(is_local && is_free_of_races && sound) {
        tally.found = 1;
    }
    runs_as_it_should(program, mutation, is_local, &mut tally)?;
    Ok(tally)
}

fn runs_as_it_should(
    program: &Program,
    mutation: Mutation,
    is_local: bool,
    tally: &mut Tally,
) -> Result<(), String> {
    let result = properties::run(program, true);
    require(is_local || result.is_err(), || "ran what is not local".into())?;
    if mutation == Mutation::DropCopy && tally.found == 0 {
        let expected = oracle::outputs(program);
        require(expected.is_err() == result.is_err(), || {
            format!("should give {expected:?}, gave {result:?}")
        })?;
        tally.unwritten = u32::from(result.is_err());
    }
    Ok(())
}
