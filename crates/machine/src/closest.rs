//! The known name nearest to a mistyped one.
//!
//! In: a word and the known words. Out: one of them, or nothing if none is near. Deliberately not
//! here: the sentence around it (`errors`).

/// The candidate with the fewest edits, if those are at most a third of the word's length (at
/// least one, so that a wrong letter in a short name is found). Ties go to the earlier candidate.
pub(crate) fn closest<'a>(word: &str, candidates: &[&'a str]) -> Option<&'a str> {
    let word: Vec<char> = word.to_lowercase().chars().take(LONGEST_CHARS).collect();
    let limit = (word.len() / 3).max(1);
    let scored = candidates.iter().map(|name| (edits(&word, name), *name));
    let best = scored.min_by_key(|(edits, _)| *edits)?;
    (best.0 <= limit).then_some(best.1)
}

/// No name is longer; bounds the work on a word that is a whole file pasted by mistake.
const LONGEST_CHARS: usize = 64;

/// Insertions, deletions and replacements that turn one into the other (Levenshtein).
fn edits(word: &[char], name: &str) -> usize {
    let name: Vec<char> = name.chars().collect();
    let mut row: Vec<usize> = (0..=name.len()).collect();
    for (i, letter) in word.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for j in 0..name.len() {
            let replaced = diagonal + usize::from(*letter != name[j]);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[name.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_edits() {
        let count = |a: &str, b: &str| edits(&a.chars().collect::<Vec<_>>(), b);
        assert_eq!(count("pod64", "pod64"), 0);
        assert_eq!(count("pod65", "pod64"), 1);
        assert_eq!(count("", "bow"), 3);
        assert_eq!(count("kitten", "sitting"), 3);
    }

    #[test]
    fn offers_only_what_is_near() {
        assert_eq!(closest("POD64", &["pod16", "pod64"]), Some("pod64"));
        assert_eq!(closest("m200", &["mk2", "m2000"]), Some("m2000"));
        assert_eq!(closest("tpu-v4", &["mk2", "m2000"]), None);
        assert_eq!(closest("x", &[]), None);
    }
}
