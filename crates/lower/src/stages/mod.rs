//! A model in stages for a pipeline: consecutive parts of `main`, each for a chip of its own.
//!
//! In: an inlined module. Out: a module per stage, whose inputs and outputs are the model's own or come from and go
//! to other stages.

mod balance;

use crate::errors;
use balance::{cuts, loads};
use pando_base::Result;
use pando_graph::{ConstData, ConstId, Func, Module, Node, NodeId, Op, ValueDef, ValueId};
use pando_machine::Machine;
use std::collections::{BTreeMap, BTreeSet};

/// Where a stage's input comes from, or its output goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The model's own input or output of this number.
    Host(usize),
    /// A value that another stage computes or needs. For outputs the first of those that need it; the others get it
    /// at the same time.
    Stage { stage: usize, value: ValueId },
}

/// A part of a model.
pub struct Stage {
    /// The first node, and the number of nodes that are no constants.
    extent: (NodeId, usize),
    pub module: Module,
    /// One per parameter of its `main`.
    pub inputs: Vec<End>,
    /// One per result.
    pub outputs: Vec<End>,
}

/// The stages of an inlined module, in order, about equally long.
pub fn split(module: &Module, machine: &Machine, stages: usize) -> Result<Vec<Stage>> {
    let func = main_of(module);
    let cuts = cuts(&loads(module, func, machine), stages, machine);
    Ok(cut(module, &cuts.ok_or_else(|| errors::too_few_operations(stages))?))
}

/// Stages that end with the operations that compute these values, in the program's order; the rest is the last stage.
pub fn split_after(module: &Module, last: &[String]) -> Result<Vec<Stage>> {
    let func = main_of(module);
    let real = |&(_, node): &(NodeId, &Node)| !matches!(node.op, Op::Constant(_));
    let nodes: Vec<(NodeId, &Node)> = func.nodes.iter().filter(real).collect();
    let is_named =
        |node: &Node, name: &str| node.results.iter().any(|&value| func.values[value].name == name);
    let (mut cuts, mut begin) = (Vec::new(), 0);
    for name in last {
        let found = nodes[begin..].iter().position(|(_, node)| is_named(node, name));
        begin += found.ok_or_else(|| errors::no_stage_end(name))? + 1;
        let next = nodes.get(begin).ok_or_else(|| errors::no_stage_end(name))?;
        cuts.push(next.0);
    }
    Ok(cut(module, &cuts))
}

/// Balanced stages once they have been timed: cut anew where those were uneven.
pub fn rebalance(module: &Module, machine: &Machine, timed: &[(&Stage, f64)]) -> Result<Vec<Stage>> {
    let func = main_of(module);
    let mut loads = loads(module, func, machine);
    for &(stage, seconds) in timed {
        let begin = loads.partition_point(|load| load.node < stage.extent.0);
        let part = &mut loads[begin..][..stage.extent.1];
        let estimated: f64 = part.iter().map(|load| load.seconds).sum();
        part.iter_mut().for_each(|load| load.seconds *= seconds / estimated);
    }
    let cuts = cuts(&loads, timed.len(), machine);
    Ok(cut(module, &cuts.ok_or_else(|| errors::too_few_operations(timed.len()))?))
}

fn main_of(module: &Module) -> &Func {
    module.funcs.values().next().expect("an inlined module has a function")
}

fn cut(module: &Module, cuts: &[NodeId]) -> Vec<Stage> {
    let func = main_of(module);
    let stage_of = |node: NodeId| cuts.partition_point(|&cut| cut <= node);
    (0..=cuts.len()).map(|stage| Splitter { module, func, stage_of: &stage_of, stage }.run()).collect()
}

struct Splitter<'a> {
    module: &'a Module,
    func: &'a Func,
    stage_of: &'a dyn Fn(NodeId) -> usize,
    stage: usize,
}

impl Splitter<'_> {
    fn run(&self) -> Stage {
        let mut main = Func::new(&self.func.name);
        let mut map = BTreeMap::new();
        let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
        let needed = self.needed();
        for (end, value) in self.ends_in(&needed) {
            let from = &self.func.values[value];
            let name = if from.name.is_empty() {
                format!("stage.{value}").replace('%', "")
            } else {
                from.name.clone()
            };
            map.insert(value, main.push_param(&name, from.ty.clone()));
            inputs.push(end);
        }
        for (id, node) in self.func.nodes.iter() {
            let constant = matches!(node.op, Op::Constant(_));
            let own =
                if constant { needed.contains(&node.results[0]) } else { (self.stage_of)(id) == self.stage };
            if !own {
                continue;
            }
            let operands: Vec<ValueId> = node.operands.iter().map(|value| map[value]).collect();
            let types: Vec<_> = node.results.iter().map(|&value| self.func.ty(value).clone()).collect();
            let new = main.push_node(node.op.clone(), operands, types);
            for (&old, &new) in node.results.iter().zip(&main.nodes[new].results.clone()) {
                main.values[new].name.clone_from(&self.func.values[old].name);
                map.insert(old, new);
            }
        }
        for (end, value) in self.ends_out() {
            main.results.push(map[&value]);
            outputs.push(end);
        }
        let mut own = self.own_nodes().map(|(id, _)| id);
        let first = own.next().expect("every stage has a node");
        Stage { extent: (first, 1 + own.count()), module: self.with_main(main), inputs, outputs }
    }

    fn own_nodes(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        let own = |id: NodeId, node: &Node| {
            !matches!(node.op, Op::Constant(_)) && (self.stage_of)(id) == self.stage
        };
        self.func.nodes.iter().filter(move |&(id, node)| own(id, node))
    }

    /// What the stage's nodes and, in the last stage, constant or passed-on results use.
    fn needed(&self) -> BTreeSet<ValueId> {
        let nodes =
            self.func.nodes.iter().filter(|(id, node)| {
                !matches!(node.op, Op::Constant(_)) && (self.stage_of)(*id) == self.stage
            });
        let mut needed: BTreeSet<ValueId> =
            nodes.flat_map(|(_, node)| node.operands.iter().copied()).collect();
        needed.extend(self.own_results().map(|(_, value)| value));
        needed
    }

    /// The model's results that this stage gives: what it computes; the first one also those that nobody does.
    fn own_results(&self) -> impl Iterator<Item = (usize, ValueId)> {
        self.func
            .results
            .iter()
            .copied()
            .enumerate()
            .filter(|&(_, value)| self.home(value).unwrap_or(0) == self.stage)
    }

    /// The stage that computes a value; none for inputs and constants, which are wherever they are needed.
    fn home(&self, value: ValueId) -> Option<usize> {
        match self.func.values[value].def {
            ValueDef::Node(node, _) if !matches!(self.func.nodes[node].op, Op::Constant(_)) => {
                Some((self.stage_of)(node))
            }
            _ => None,
        }
    }

    /// The model's inputs first, so that the host's transfers are one.
    fn ends_in(&self, needed: &BTreeSet<ValueId>) -> Vec<(End, ValueId)> {
        let mut host = Vec::new();
        let mut links = Vec::new();
        for &value in needed {
            match (self.func.values[value].def, self.home(value)) {
                (ValueDef::Param(index), _) => host.push((End::Host(index as usize), value)),
                (_, Some(stage)) if stage != self.stage => links.push((End::Stage { stage, value }, value)),
                _ => {}
            }
        }
        host.extend(links);
        host
    }

    fn ends_out(&self) -> Vec<(End, ValueId)> {
        let mut first_user: BTreeMap<ValueId, usize> = BTreeMap::new();
        for (id, node) in self.func.nodes.iter().filter(|(_, node)| !matches!(node.op, Op::Constant(_))) {
            let user = (self.stage_of)(id);
            for &value in
                node.operands.iter().filter(|&&v| self.home(v) == Some(self.stage) && user > self.stage)
            {
                first_user.entry(value).or_insert(user);
            }
        }
        let links = first_user.into_iter().map(|(value, stage)| (End::Stage { stage, value }, value));
        links.chain(self.own_results().map(|(index, value)| (End::Host(index), value))).collect()
    }

    /// The functions that loops and branches run keep their places; constants of other stages lose their elements.
    fn with_main(&self, main: Func) -> Module {
        let mut module = Module { consts: self.module.consts.clone(), ..Module::default() };
        let others = self.module.funcs.values().skip(1);
        std::iter::once(main).chain(others.cloned()).for_each(|func| {
            module.funcs.push(func);
        });
        let nodes = module.funcs.values().flat_map(|func| func.nodes.values());
        let used: BTreeSet<ConstId> =
            nodes.filter_map(|node| if let Op::Constant(id) = node.op { Some(id) } else { None }).collect();
        for (_, constant) in module.consts.iter_mut().filter(|(id, _)| !used.contains(id)) {
            constant.data = ConstData::Splat(0.0);
        }
        module
    }
}
