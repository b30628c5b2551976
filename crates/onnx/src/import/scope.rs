//! Names in sight of a node, and what the whole import shares.

use super::sample::Decisions;
use super::value::Value;
use crate::errors;
use crate::proto::{FunctionProto, NodeProto, OperatorSetIdProto};
use pando_base::{Error, Result};
use rustc_hash::FxHashMap;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::path::PathBuf;

/// More nodes than this, inlined and unrolled, are refused: a few functions that call each other twice would
/// otherwise fill any memory.
const MAX_NODES: u64 = 1 << 20;

/// How deep functions and subgraphs nest; bounds the recursion of the import.
pub const MAX_DEPTH: usize = 64;

/// A node that cannot be imported, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported {
    /// The node's name, or its first output's.
    pub node: String,
    pub op: String,
    pub reason: String,
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node '{}' ({}): {}", self.node, self.op, self.reason)
    }
}

/// Operator set versions by domain.
pub type Opsets = FxHashMap<String, i64>;

pub fn opsets(imports: &[OperatorSetIdProto]) -> Opsets {
    imports.iter().map(|import| (domain(&import.domain).to_string(), import.version)).collect()
}

/// The default domain has two spellings.
pub fn domain(name: &str) -> &str {
    if name == "ai.onnx" { "" } else { name }
}

/// What all graphs of a model share.
pub struct Env<'m> {
    pub functions: FxHashMap<(String, String, String), &'m FunctionProto>,
    /// What a sample of the inputs decides.
    pub sample: Option<Decisions>,
    /// Whether a translation has asked what a sample decides.
    pub wants_sample: Cell<bool>,
    /// Where external data lies.
    pub folder: Option<PathBuf>,
    pub problems: RefCell<Vec<Unsupported>>,
    /// Nodes imported so far, each as often as it is inlined or unrolled.
    pub nodes: Cell<u64>,
}

impl Env<'_> {
    /// What a sample of the inputs decides, if there is one; that it is wanted is kept in mind.
    pub fn decisions(&self) -> Option<&Decisions> {
        self.wants_sample.set(true);
        self.sample.as_ref()
    }

    pub fn count_node(&self) -> Result<()> {
        self.nodes.set(self.nodes.get() + 1);
        match self.nodes.get() > MAX_NODES {
            true => Err(errors::too_much_work(format!("a model of more than {MAX_NODES} nodes"))),
            false => Ok(()),
        }
    }

    /// Notes a problem once, however often a body is unrolled.
    pub fn note(&self, node: &NodeProto, error: &Error) {
        let name = if node.name.is_empty() { node.output.first() } else { Some(&node.name) };
        let problem = Unsupported {
            node: name.cloned().unwrap_or_default(),
            op: node.op_type.clone(),
            reason: error.to_string(),
        };
        let mut problems = self.problems.borrow_mut();
        if !problems.contains(&problem) {
            problems.push(problem);
        }
    }
}

/// The values in sight. A name without a value belongs to a node that could not be imported.
pub struct Scope<'a> {
    pub env: &'a Env<'a>,
    pub opsets: &'a Opsets,
    pub names: FxHashMap<String, Option<Value>>,
    pub parent: Option<&'a Scope<'a>>,
    /// How deep functions and subgraphs nest.
    pub depth: usize,
}

impl<'a> Scope<'a> {
    pub fn new(env: &'a Env<'a>, opsets: &'a Opsets) -> Self {
        Scope { env, opsets, names: FxHashMap::default(), parent: None, depth: 0 }
    }

    /// A scope within this one, for a subgraph that is imported into the same function.
    pub fn inner(&'a self) -> Scope<'a> {
        Scope { parent: Some(self), depth: self.depth + 1, ..Scope::new(self.env, self.opsets) }
    }

    pub fn get(&self, name: &str) -> Option<&Option<Value>> {
        self.names.get(name).or_else(|| self.parent.and_then(|parent| parent.get(name)))
    }

    /// The value of a name; `Ok(None)` if its node failed.
    pub fn value(&self, name: &str) -> Result<Option<Value>> {
        self.get(name).cloned().ok_or_else(|| errors::undefined_name(name))
    }

    pub fn set(&mut self, name: &str, value: Value) {
        self.names.insert(name.into(), Some(value));
    }

    pub fn version(&self, domain_name: &str) -> Option<i64> {
        self.opsets.get(domain(domain_name)).copied()
    }
}
