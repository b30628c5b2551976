//! Goal: what the documents show is what the program does. Method: the texts in ARCHITECTURE.md are the
//! compiler's own.

use crate::common::{pando, root};

#[test]
fn architecture_shows_the_life_of_a_matmul() {
    let document = std::fs::read_to_string(root().join("ARCHITECTURE.md")).expect("readable");
    for pass in ["graph", "plan", "tile"] {
        let run = pando(&["compile", "models/matmul.graph", "--system", "tiny4", "--stop-after", pass]);
        assert!(
            document.contains(run.stdout.trim()),
            "ARCHITECTURE.md lacks this text of pass {pass}:\n{}",
            run.stdout
        );
    }
}

/// Every crate has its paragraph.
#[test]
fn architecture_names_every_crate() {
    let document = std::fs::read_to_string(root().join("ARCHITECTURE.md")).expect("readable");
    for entry in std::fs::read_dir(root().join("crates")).expect("readable") {
        let name = entry.expect("readable").file_name().to_string_lossy().into_owned();
        assert!(
            document.contains(&format!("- **{name}**")),
            "ARCHITECTURE.md does not describe crates/{name}"
        );
    }
}
