//! Parameters of a module turned into constants.

use pando_base::{Error, Result, SideTable};
use pando_graph::{Const, ConstData, Func, Module, Op, ValueId};

/// The module with constants by a rule (small normal numbers, zeros for integers) at these positions of the
/// parameters of `main`. Names stay.
pub fn fixed(mut module: Module, positions: &[usize]) -> Result<Module> {
    let main = module.main().ok_or_else(|| Error::new("the module has no function @main"))?;
    let old = module.funcs[main].clone();
    let mut new = Func { name: old.name.clone(), composite: old.composite.clone(), ..Func::default() };
    let mut map: SideTable<ValueId, Option<ValueId>> = SideTable::with_default(None);
    for (position, &param) in old.params.iter().enumerate() {
        let value = &old.values[param];
        if !positions.contains(&position) {
            map[param] = Some(new.push_param(&value.name, value.ty.clone()));
            continue;
        }
        let data = match value.ty.dtype.is_float() {
            true => ConstData::Normal { seed: position as u64 + 1, mean: 0.0, std: 0.02 },
            false => ConstData::Splat(0.0),
        };
        let taken = |name: &str| module.consts.values().any(|other| other.name == name);
        let mut name = format!("weight.{}", if value.name.is_empty() { "_" } else { &value.name });
        while taken(&name) {
            name.push('_');
        }
        let shape = value.ty.require_shape()?;
        let id = module.consts.push(Const { name, dtype: value.ty.dtype, shape, data });
        let node = new.push_node(Op::Constant(id), [], [value.ty.clone()]);
        let result = new.nodes[node].results[0];
        new.values[result].name = value.name.clone();
        map[param] = Some(result);
    }
    let renamed =
        |map: &SideTable<ValueId, Option<ValueId>>, value: ValueId| map[value].expect("defined before");
    for node in old.nodes.values() {
        let operands: Vec<ValueId> = node.operands.iter().map(|&value| renamed(&map, value)).collect();
        let types = node.results.iter().map(|&value| old.ty(value).clone());
        let kept = new.push_node(node.op.clone(), operands, types);
        for (&before, &after) in node.results.iter().zip(&new.nodes[kept].results) {
            new.values[after].name = old.values[before].name.clone();
            map[before] = Some(after);
        }
    }
    new.results = old.results.iter().map(|&value| renamed(&map, value)).collect();
    module.funcs[main] = new;
    pando_graph::validate(&module)?;
    Ok(module)
}
