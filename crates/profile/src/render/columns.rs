//! Rows of cells to aligned lines.

/// How a column is aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    Left,
    Right,
}

/// Longest name shown; the middle of a longer one is left out, since both ends tell it apart.
const NAME_CHARS: usize = 48;

/// Lines with two spaces between columns and none at the end.
pub fn aligned(rows: &[Vec<String>], aligns: &[Align]) -> Vec<String> {
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| chars(cell)).max();
    let widths: Vec<usize> = (0..aligns.len()).map(|column| width(column).unwrap_or(0)).collect();
    let cell = |(text, (&align, &width)): (&String, (&Align, &usize))| {
        let padding = " ".repeat(width.saturating_sub(chars(text)));
        match align {
            Align::Left => format!("{text}{padding}"),
            Align::Right => format!("{padding}{text}"),
        }
    };
    rows.iter()
        .map(|row| {
            let cells: Vec<String> = row.iter().zip(aligns.iter().zip(&widths)).map(cell).collect();
            cells.join("  ").trim_end().to_string()
        })
        .collect()
}

fn chars(text: &str) -> usize {
    text.chars().count()
}

/// A name that fits its column and has no control characters: names come from users' files.
pub fn shortened(name: &str) -> String {
    let clean: Vec<char> = name.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    if clean.len() <= NAME_CHARS {
        return clean.into_iter().collect();
    }
    let tail = NAME_CHARS / 2;
    let head: String = clean[..NAME_CHARS - tail - 1].iter().collect();
    let end: String = clean[clean.len() - tail..].iter().collect();
    format!("{head}…{end}")
}

/// A bar of up to 30 characters for a share of 0 to 1.
pub fn bar(share: f64) -> String {
    "#".repeat((share.clamp(0.0, 1.0) * 30.0).round() as usize)
}
