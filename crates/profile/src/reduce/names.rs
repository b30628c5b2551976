//! Names of what equal layers repeat: they differ in numbers.

/// A name with `*` for its numbers: names with the same pattern differ in numbers only.
pub fn pattern(name: &str) -> String {
    pieces(name).map(|piece| if is_number(piece) { "*" } else { piece }).collect()
}

/// Names of one [`pattern`] as one, `*` for the numbers that differ.
pub fn common_name(names: &[&str]) -> String {
    let Some((first, others)) = names.split_first() else { return String::new() };
    let mut others: Vec<_> = others.iter().map(|name| pieces(name)).collect();
    let mut differs =
        |piece| others.iter_mut().fold(false, |differs, name| differs | (name.next() != Some(piece)));
    pieces(first).map(|piece| if differs(piece) { "*" } else { piece }).collect()
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

    #[test]
    fn numbers_that_differ() {
        assert_eq!(pattern("layer.10.h1"), "layer.*.h*");
        assert_eq!(pattern(""), "");
        assert_eq!(common_name(&["layer.10.h1", "layer.3.h1"]), "layer.*.h1");
        assert_eq!(common_name(&["12", "7", "12"]), "*");
        assert_eq!(common_name(&["größe2", "größe3"]), "größe*");
        assert_eq!(common_name(&["one"]), "one");
        assert_eq!(common_name(&[]), "");
    }
}
