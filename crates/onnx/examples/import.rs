//! Imports the ONNX files named and prints what became of them, or the error: `cargo run -p pando-onnx
//! --example import -- model.onnx [NAME=SIZE…]`.

use pando_graph::call_order;
use pando_onnx::{Options, load_with};
use std::path::Path;
use std::time::Instant;

fn main() {
    let (dims, files): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|arg| arg.contains('='));
    let number =
        |text: &String| text.split_once('=').and_then(|(name, n)| Some((name.into(), n.parse().ok()?)));
    let options = Options { dims: dims.iter().filter_map(number).collect(), ..Options::default() };
    for file in files {
        let start = Instant::now();
        match load_with(Path::new(&file), &options) {
            Ok(imported) => {
                let module = &imported.module;
                let nodes: usize = module.funcs.values().map(|func| func.nodes.len()).sum();
                println!("{file}: {nodes} nodes in {} functions, {:?}", module.funcs.len(), start.elapsed());
                for input in &imported.inputs {
                    println!("  input {}: {}", input.name, input.ty);
                }
                let valid = pando_graph::validate(module).and_then(|()| call_order(module).map(|_| ()));
                println!("  {}", valid.map_or_else(|error| error.to_string(), |()| "valid".into()));
            }
            Err(error) => println!("{error}"),
        }
    }
}
