//! Names of the file made fit for the graph's text: letters, digits, `_`, single `.`s inside.

use pando_base::DType;
use pando_graph::Dim;

/// A name of a parameter or weight; empty if nothing is left.
pub fn symbol(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for c in name.chars() {
        match c {
            _ if c.is_ascii_alphanumeric() || c == '_' => out.push(c),
            _ if out.is_empty() => {}
            _ if out.ends_with('.') => {}
            '.' | '/' | ':' => out.push('.'),
            _ => out.push('_'),
        }
    }
    let trimmed = out.trim_end_matches('.');
    if trimmed.chars().all(|c| c.is_ascii_digit()) && !trimmed.is_empty() {
        return format!("v{trimmed}");
    }
    trimmed.to_string()
}

/// A name as a dimension: starts with a letter or `_`, is no element type.
pub fn dim(name: &str) -> Dim {
    let name = symbol(name);
    let starts_well = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    match starts_well && DType::from_name(&name).is_none() {
        true => Dim::named(&name),
        false => Dim::named(&format!("dim_{name}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_the_text() {
        assert_eq!(symbol("/model/layers.0/Add:0"), "model.layers.0.Add.0");
        assert_eq!(symbol("a..b-c."), "a.b_c");
        assert_eq!(symbol("12"), "v12");
        assert_eq!(dim("batch size").to_string(), "batch_size");
        assert_eq!(dim("f32").to_string(), "dim_f32");
        assert_eq!(dim("2*N").to_string(), "dim_2_N");
    }
}
