//! Built-in architectures. A model is a name, sizes, and a function that writes it with the graph's builder;
//! its weights are drawn from a seed (rules that take no memory) or given by the names of the PyTorch
//! definition it equals. Nothing here reads files or runs a model.

mod attention;
mod catalog;
mod errors;
mod layers;
mod models;
mod net;
mod options;
mod recurrent;

pub use net::Weight;
pub use options::{Options, Weights, parse};

use catalog::{CATALOG, Entry};
use net::Net;
use pando_base::Result;
use pando_graph::Module;

/// What a name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    pub name: &'static str,
    pub about: &'static str,
    /// The definition whose state_dict names the weights.
    pub definition: &'static str,
    /// What a user may choose, with the defaults.
    pub sizes: &'static [(&'static str, u64)],
}

/// All models, families together.
pub fn names() -> Vec<&'static str> {
    CATALOG.iter().map(|entry| entry.name).collect()
}

/// An error if there is no such model.
pub fn describe(name: &str) -> Result<Description> {
    let &Entry { name, about, definition, sizes, .. } = find(name)?;
    Ok(Description { name, about, definition, sizes })
}

/// The model as a module whose constants are the weights, under their names, and whose values carry the
/// paths of the layers. Linear in the number of layers: no weight is drawn.
pub fn build(name: &str, options: &Options) -> Result<Module> {
    assemble(name, options).map(|(module, _)| module)
}

/// The weights that a map would have to hold, in the order of first use.
pub fn weights(name: &str, options: &Options) -> Result<Vec<Weight>> {
    let seeded = Options { weights: Weights::default(), ..options.clone() };
    assemble(name, &seeded).map(|(_, weights)| weights)
}

fn assemble(name: &str, options: &Options) -> Result<(Module, Vec<Weight>)> {
    let entry = find(name)?;
    let built = options.sizes_for(entry).and_then(|sizes| {
        let mut net = Net::new(options, sizes);
        let outputs = (entry.build)(&mut net)?;
        net.finish(&outputs)
    });
    built.map_err(|error| error.context(format!("zoo:{name}")))
}

fn find(name: &str) -> Result<&'static Entry> {
    CATALOG.iter().find(|entry| entry.name == name).ok_or_else(|| errors::unknown_model(name, &names()))
}
