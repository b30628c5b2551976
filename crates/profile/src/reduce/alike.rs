//! Operations that equal layers have in common, taken together: fifty layers are a row of a table, not fifty.

use super::names::{common_name, pattern};
use crate::schema::Operation;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Operations that do equal work and whose names differ in numbers only.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Alike {
    /// How many they are.
    pub operations: u32,
    /// Their sum; in its name, `*` stands for numbers that differ.
    #[serde(flatten)]
    pub together: Operation,
}

/// The operations by what they have in common, those with most cycles first; ties in order of appearance.
pub fn alike(operations: &[Operation]) -> Vec<Alike> {
    let mut index = BTreeMap::new();
    let mut groups: Vec<Vec<&Operation>> = Vec::new();
    for operation in operations {
        // Where nothing is computed, work is what moves.
        let work = if operation.flops > 0 { (operation.flops, 0) } else { (0, operation.sent_bytes) };
        let at = *index.entry((pattern(&operation.name), work)).or_insert(groups.len());
        match groups.get_mut(at) {
            Some(group) => group.push(operation),
            None => groups.push(vec![operation]),
        }
    }
    let mut out: Vec<Alike> = groups.iter().map(|group| together(group)).collect();
    out.sort_by_key(|alike| Reverse(alike.together.cycles));
    out
}

fn together(group: &[&Operation]) -> Alike {
    let mut sum = group[0].clone();
    for operation in &group[1..] {
        sum.steps += operation.steps;
        sum.cycles = sum.cycles.saturating_add(operation.cycles);
        sum.parts.add(&operation.parts, 1);
        sum.flops = sum.flops.saturating_add(operation.flops);
        sum.sent_bytes = sum.sent_bytes.saturating_add(operation.sent_bytes);
        sum.tiles_used = sum.tiles_used.max(operation.tiles_used);
    }
    sum.name = common_name(&group.iter().map(|operation| operation.name.as_str()).collect::<Vec<_>>());
    Alike { operations: group.len() as u32, together: sum }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(name: &str, cycles: u64, flops: u64) -> Operation {
        Operation { name: name.into(), cycles, flops, steps: 1, ..Operation::default() }
    }

    #[test]
    fn equal_layers_are_one() {
        let operations = [
            operation("dot/layer.0.h1", 5, 64),
            operation("dot/layer.0.h2", 9, 32),
            operation("dot/layer.10.h1", 7, 64),
            operation("other", 8, 0),
            operation("dot/layer.0.h1x", 1, 64),
        ];
        let rows: Vec<(String, u32, u64, u64)> = alike(&operations)
            .into_iter()
            .map(|a| (a.together.name, a.operations, a.together.cycles, a.together.flops))
            .collect();
        let expected = [
            ("dot/layer.*.h1", 2, 12, 128),
            ("dot/layer.0.h2", 1, 9, 32),
            ("other", 1, 8, 0),
            ("dot/layer.0.h1x", 1, 1, 64),
        ];
        assert_eq!(rows, expected.map(|(name, n, cycles, flops)| (name.to_string(), n, cycles, flops)));
    }
}
