//! What the tests of this crate share.

use pando_base::Tensor;
use pando_cpu::{CompileOptions, Isa, compile};
use pando_graph::Module;

pub fn options(isa: Isa, threads: usize, fuse: bool) -> CompileOptions {
    CompileOptions { threads, isa, fuse, ..CompileOptions::default() }
}

pub fn run(module: &Module, inputs: &[Tensor], options: &CompileOptions) -> Vec<Tensor> {
    compile(module, options).unwrap().run(inputs).unwrap()
}
