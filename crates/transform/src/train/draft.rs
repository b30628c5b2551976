//! A program under construction: what it reads, writes and gives, by name.

use super::{Scope, type_of};
use crate::program::Program;
use crate::random;
use pando_base::{Result, Tensor};
use pando_graph::{Builder, TensorType, ValueId};
use std::collections::BTreeSet;

pub(super) struct Draft {
    pub b: Builder,
    pub scope: Scope,
    reads: Vec<String>,
    inputs: Vec<String>,
    writes: Vec<(String, ValueId)>,
    outputs: Vec<(String, ValueId)>,
}

impl Draft {
    pub fn new(state: &[&(String, Tensor)], inputs: &[(String, TensorType)], training: bool) -> Self {
        let mut b = Builder::new();
        b.begin("main");
        let mut taken = BTreeSet::new();
        let of_state = state.iter().map(|(name, tensor)| (name.clone(), type_of(tensor)));
        let params = of_state.chain(inputs.iter().cloned());
        let values =
            params.map(|(name, ty)| (name.clone(), b.param(&value_name(&mut taken, &name), ty))).collect();
        Draft {
            b,
            scope: Scope::new(values, training),
            reads: state.iter().map(|(name, _)| name.clone()).collect(),
            inputs: inputs.iter().map(|(name, _)| name.clone()).collect(),
            writes: Vec::new(),
            outputs: Vec::new(),
        }
    }

    /// State that the program reads.
    pub fn read(&self, name: &str) -> ValueId {
        self.scope.get(name).expect("a draft begins with all state that its program reads")
    }

    pub fn write(&mut self, name: &str, value: ValueId) {
        self.writes.push((name.into(), value));
    }

    pub fn output(&mut self, name: &str, value: ValueId) {
        self.outputs.push((name.into(), value));
    }

    /// The next run draws other numbers.
    pub fn advance_seed(&mut self) -> Result<()> {
        if self.scope.uses() > 0 {
            let seed = self.read("random.seed");
            let next = random::next_seed(&mut self.b, seed)?;
            self.write("random.seed", next);
        }
        Ok(())
    }

    pub fn finish(mut self) -> Program {
        let results: Vec<ValueId> =
            self.writes.iter().chain(&self.outputs).map(|&(_, value)| value).collect();
        self.b.end(&results);
        let names = |named: Vec<(String, ValueId)>| named.into_iter().map(|(name, _)| name).collect();
        Program {
            module: self.b.finish(),
            reads: self.reads,
            writes: names(self.writes),
            inputs: self.inputs,
            outputs: names(self.outputs),
        }
    }
}

/// State and inputs may have any names; those of values are words with dots between. Empty: no name.
fn value_name(taken: &mut BTreeSet<String>, name: &str) -> String {
    let legal = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '_' };
    let name: String = name.chars().map(legal).collect();
    let words: Vec<&str> = name.split('.').filter(|word| !word.is_empty()).collect();
    let name = words.join(".");
    let is_number = name.bytes().all(|b| b.is_ascii_digit());
    if is_number || !taken.insert(name.clone()) { String::new() } else { name }
}
