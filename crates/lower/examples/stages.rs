use std::time::Instant;
fn main() {
    let module = pando_graph::parse(include_str!("../../../models/mlp.graph"), "m").unwrap();
    for tiles in [1472u32, 16384] {
        let mut machine = pando_machine::load("mk2").unwrap();
        machine.chip.tiles = tiles;
        let o = pando_lower::Options::default();
        let t = Instant::now();
        let m = pando_lower::inline_calls(&module).unwrap();
        let p = pando_lower::plan(&m, &machine, &o).unwrap();
        println!("plan {:?}", t.elapsed());
        let t = Instant::now();
        let e = pando_lower::emit(&m, &p, &machine, &o);
        println!("emit {:?}", t.elapsed());
        let t = Instant::now();
        pando_tile::validate(&e.program).unwrap();
        println!("validate {:?}", t.elapsed());
        let t = Instant::now();
        let pl = pando_lower::place(&e.program, &machine);
        println!("place {:?}", t.elapsed());
        let t = Instant::now();
        let f = pando_lower::fit(&e.program, &machine, &pl);
        println!("fit {:?}", t.elapsed());
        let t = Instant::now();
        for ex in e.program.exchanges.values() { let _ = pando_tile::traffic::port_use(&e.program, ex, 2); }
        println!("ports {:?} for {} exchanges", t.elapsed(), e.program.exchanges.len());
        let t = Instant::now();
        pando_sim::time(&e.program, &machine);
        println!("time {:?}", t.elapsed());
        let t = Instant::now();
        pando_sim::profile(&e.program, &machine, Some(&pl.placement), f, 1);
        println!("profile {:?}", t.elapsed());
    }
}
