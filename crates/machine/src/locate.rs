//! From a place in a TOML text to a line and column.
//!
//! In: a text and a byte offset, or a field's path such as `chip.matrix[1].cycles_per_row`. Out: line
//! and column, both from 1, the column in characters. Deliberately not here: messages.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Line and column, both counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position {
    pub line: u32,
    pub col: u32,
}

/// The position of a byte offset; offsets past the end mean the end.
pub(crate) fn position(text: &str, offset: usize) -> Position {
    let mut before = offset.min(text.len());
    while !text.is_char_boundary(before) {
        before -= 1;
    }
    let before = &text[..before];
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    Position {
        line: number(before.matches('\n').count() + 1),
        col: number(before[line_start..].chars().count() + 1),
    }
}

/// The position of a field's value, or of the nearest table around it that the text has; a field may
/// be absent. `None` for a text that is not TOML or has nothing of the path.
pub(crate) fn field(text: &str, path: &str) -> Option<Position> {
    let document = DeTable::parse(text).ok()?.into_inner();
    let mut steps = path.split(['.', '[']).map(|step| step.trim_end_matches(']'));
    let mut value = entry(&document, steps.next()?)?;
    for step in steps {
        let next = match value.get_ref() {
            DeValue::Table(table) => entry(table, step),
            DeValue::Array(array) => step.parse().ok().and_then(|i: usize| array.get(i)),
            _ => None,
        };
        match next {
            Some(next) => value = next,
            None => break,
        }
    }
    Some(position(text, value.span().start))
}

fn entry<'t, 'i>(table: &'t DeTable<'i>, key: &str) -> Option<&'t Spanned<DeValue<'i>>> {
    table.iter().find(|(name, _)| name.get_ref() == key).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(line: u32, col: u32) -> Position {
        Position { line, col }
    }

    #[test]
    fn counts_characters_not_bytes() {
        let text = "a = 1\nµµ = 2\n";
        assert_eq!(position(text, 0), at(1, 1));
        assert_eq!(position(text, text.find('2').unwrap()), at(2, 6));
        assert_eq!(position(text, 7), at(2, 1), "inside µ");
        assert_eq!(position(text, 1000), at(3, 1));
        assert_eq!(position("", 0), at(1, 1));
    }

    #[test]
    fn finds_fields() {
        let text = "a = 1\n[t]\nb = 2\n[[m]]\nc = 3\n[[m]]\nc = 4\n";
        assert_eq!(field(text, "a"), Some(at(1, 5)));
        assert_eq!(field(text, "t.b"), Some(at(3, 5)));
        assert_eq!(field(text, "m[1].c"), Some(at(7, 5)));
        assert_eq!(field(text, "t.absent"), Some(at(2, 1)));
        assert_eq!(field(text, "absent"), None);
        assert_eq!(field("no toml", "a"), None);
    }
}
