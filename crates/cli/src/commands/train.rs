//! `pando profile --train`: a training step made of an inference model. Its float constants with dimensions become
//! weights, which stay on the chip with what the optimizer keeps of them. The gradient starts from the sum of the
//! outputs' squares, since a model file holds no loss: a loss of its own would add one operation or two. Batch norms
//! are those of the file, with the statistics that it holds.

use pando_base::{DType, Error, Result};
use pando_graph::{Builder, Const, ConstData, Func, Module, Op, TensorType, ValueId};
use pando_transform::optimizer::{Optimizer, Update};
use std::collections::{BTreeMap, BTreeSet};

/// A module whose `main` takes the model's inputs, then state, and gives state, then the model's outputs.
pub struct TrainingStep {
    pub module: Module,
    /// Pairs of parameters and the results that replace them.
    pub state: Vec<(usize, usize)>,
    /// What is kept, in the order of the results: `WEIGHT`, `WEIGHT.SLOT`.
    pub names: Vec<String>,
}

pub fn training_step(module: &Module, optimizer: &str) -> Result<TrainingStep> {
    let optimizer = Optimizer::named(optimizer, &[])?;
    let (open, weights) = with_weights_as_params(module)?;
    let (mut b, params, outputs) = Builder::reopen(&open)?;
    let weight_params = params[params.len() - weights.len()..].to_vec();
    // d(½ y²) = y.
    let losses: Vec<(ValueId, ValueId)> =
        outputs.iter().filter(|&&value| b.ty(value).dtype.is_float()).map(|&value| (value, value)).collect();
    let gradients = b.gradients(&losses, &weight_params)?;
    if gradients.iter().all(Option::is_none) {
        return Err(Error::new(
            "--train: no output depends on a weight through floats, so there is nothing to train",
        ));
    }
    let hyper: Vec<ValueId> =
        optimizer.hyperparameters().iter().map(|hyper| b.scalar(DType::F32, hyper.value)).collect();
    let (mut results, mut state, mut names, mut next) = (Vec::new(), Vec::new(), Vec::new(), params.len());
    let mut shared: BTreeMap<&str, ValueId> = BTreeMap::new();
    let first_weight = params.len() - weights.len();
    for (index, (&weight, gradient)) in weight_params.iter().zip(gradients).enumerate() {
        let ty = b.ty(weight).clone();
        names.push(weights[index].name.clone());
        let Some(gradient) = gradient else {
            state.push((first_weight + index, results.len()));
            results.push(weight);
            continue;
        };
        let name = &weights[index].name;
        // What all weights share (the number of steps) is a parameter, and a result, with the first of them.
        let slots = optimizer.slots(&ty);
        let fresh: Vec<bool> = slots.iter().map(|slot| !shared.contains_key(slot.name)).collect();
        let mut values = Vec::new();
        for slot in &slots {
            let known = shared.get(slot.name).copied();
            let value = known.unwrap_or_else(|| b.param(&format!("{name}.{}", slot.name), slot.ty.clone()));
            if slot.shared {
                shared.insert(slot.name, value);
            }
            values.push(value);
        }
        let update = Update { weight, gradient: Some(gradient), state: &values, hyper: &hyper, seed: None };
        let updated = optimizer.update(&mut b, &update)?;
        state.push((first_weight + index, results.len()));
        results.push(updated.weight);
        let written = updated.state.into_iter().zip(&slots).zip(fresh).filter(|(_, fresh)| *fresh);
        for ((value, slot), _) in written {
            names.push(format!("{name}.{}", slot.name));
            state.push((next, results.len()));
            results.push(value);
            next += 1;
        }
    }
    results.extend(outputs);
    b.end(&results);
    Ok(TrainingStep { module: b.finish(), state, names })
}

/// The module with parameters, after its own, in place of the constants that are weights.
fn with_weights_as_params(module: &Module) -> Result<(Module, Vec<Const>)> {
    let id = module.main().ok_or_else(|| Error::new("there is no function @main"))?;
    let source = &module.funcs[id];
    let mut main = Func { composite: source.composite.clone(), ..Func::new(&source.name) };
    let mut map = vec![None; source.values.len()];
    let mut weights: Vec<Const> = Vec::new();
    let mut names: BTreeSet<String> = source.values.values().map(|value| value.name.clone()).collect();
    for &param in &source.params {
        map[index(param)] = Some(main.push_param(&source.values[param].name, source.ty(param).clone()));
    }
    for node in source.nodes.values() {
        if let Op::Constant(constant) = node.op
            && is_weight(&module.consts[constant])
        {
            let name = unique(&module.consts[constant].name, &mut names);
            weights.push(Const { name: name.clone(), ..module.consts[constant].clone() });
            let ty: TensorType = source.ty(node.results[0]).clone();
            map[index(node.results[0])] = Some(main.push_param(&name, ty));
            continue;
        }
        let operands: Vec<ValueId> =
            node.operands.iter().map(|&value| map[index(value)].expect("operands come first")).collect();
        let types: Vec<TensorType> = node.results.iter().map(|&value| source.ty(value).clone()).collect();
        let new = main.push_node(node.op.clone(), operands, types);
        for (&old, &new) in node.results.iter().zip(&main.nodes[new].results.clone()) {
            main.values[new].name.clone_from(&source.values[old].name);
            map[index(old)] = Some(new);
        }
    }
    main.results =
        source.results.iter().map(|&value| map[index(value)].expect("results are values")).collect();
    let mut out = module.clone();
    out.funcs[id] = main;
    Ok((out, weights))
}

fn index(value: ValueId) -> usize {
    pando_base::Id::index(value)
}

/// The name of a constant, or that with a number where a value of the function has it.
fn unique(name: &str, taken: &mut BTreeSet<String>) -> String {
    let base = if name.is_empty() { "weight" } else { name };
    let numbered = (1..).map(|number| format!("{base}.{number}"));
    let free = std::iter::once(base.to_string()).chain(numbered).find(|name| !taken.contains(name));
    let free = free.expect("numbers do not end");
    taken.insert(free.clone());
    free
}

fn is_weight(constant: &Const) -> bool {
    constant.dtype.is_float() && constant.shape.rank() > 0 && !matches!(constant.data, ConstData::Splat(_))
}
