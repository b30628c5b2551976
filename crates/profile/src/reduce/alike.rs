//! Operations that equal layers have in common, taken together: fifty layers are a row of a table, not fifty.

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
        let words: Vec<&str> = pieces(&operation.name).map(|p| if is_number(p) { "*" } else { p }).collect();
        let at = *index.entry((words, work)).or_insert(groups.len());
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
    sum.name = common_name(group);
    Alike { operations: group.len() as u32, together: sum }
}

fn common_name(group: &[&Operation]) -> String {
    let mut names: Vec<_> = group.iter().map(|operation| pieces(&operation.name)).collect();
    let mut name = String::new();
    while let Some(piece) = names[0].next() {
        let differs =
            names[1..].iter_mut().fold(false, |differs, other| differs | (other.next() != Some(piece)));
        name.push_str(if differs { "*" } else { piece });
    }
    name
}

/// A name cut where digits begin and end.
fn pieces(name: &str) -> impl Iterator<Item = &str> {
    let mut rest = name;
    std::iter::from_fn(move || {
        let digits = is_number(rest);
        let end = rest.find(|c: char| c.is_ascii_digit() != digits).unwrap_or(rest.len());
        let (piece, after) = rest.split_at(end);
        rest = after;
        (!piece.is_empty()).then_some(piece)
    })
}

fn is_number(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit())
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

    #[test]
    fn numbers_alone_and_empty_names() {
        let rows = alike(&[operation("12", 1, 1), operation("7", 1, 1), operation("", 1, 1)]);
        assert_eq!(rows.iter().map(|a| a.together.name.as_str()).collect::<Vec<_>>(), ["*", ""]);
    }
}
