//! Goal: dependencies between crates point down. Method: the table of what each crate may depend on; the
//! manifests must not ask for more, and the table must not allow what nobody needs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// A crate and the internal crates it depends on. Levels as in ARCHITECTURE.md.
const ALLOWED: &[(&str, &[&str])] = &[
    // L0
    ("base", &[]),
    // L1
    ("graph", &["base"]),
    ("machine", &["base"]),
    ("profile", &["base"]),
    ("tile", &["base", "machine"]),
    // L2
    ("cpu", &["base", "graph"]),
    ("onnx", &["base", "graph"]),
    ("transform", &["base", "graph"]),
    ("zoo", &["base", "graph"]),
    ("lower", &["base", "graph", "machine", "profile", "tile"]),
    ("sim", &["base", "machine", "profile", "tile"]),
    // L3
    ("runtime", &["base", "cpu", "graph", "transform"]),
    ("validate", &["base", "graph", "lower", "machine", "profile", "sim", "tile", "zoo"]),
    // L4
    (
        "cli",
        &[
            "base",
            "cpu",
            "graph",
            "lower",
            "machine",
            "onnx",
            "profile",
            "sim",
            "tile",
            "transform",
            "validate",
            "zoo",
        ],
    ),
    // L5
    ("python", &["base", "cli", "cpu", "graph", "machine", "onnx", "profile", "runtime", "transform"]),
];

#[test]
fn dependencies_point_down() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = BTreeMap::new();
    let entries = std::fs::read_dir(&crates).expect("the crates folder");
    let folders = entries.map(|entry| entry.expect("readable").path());
    for path in folders.chain([crates.join("../python")]) {
        if let Ok(manifest) = std::fs::read_to_string(path.join("Cargo.toml")) {
            let name = path.file_name().expect("a folder").to_string_lossy().into_owned();
            found.insert(name, dependencies(&manifest));
        }
    }
    let allowed: BTreeMap<String, BTreeSet<String>> = ALLOWED
        .iter()
        .map(|(name, deps)| ((*name).to_string(), deps.iter().map(|dep| (*dep).to_string()).collect()))
        .collect();
    assert_eq!(found, allowed);
    let position =
        |name: &str| ALLOWED.iter().position(|(other, _)| *other == name).expect("every crate is listed");
    for (name, deps) in ALLOWED {
        assert!(deps.iter().all(|dep| position(dep) < position(name)), "{name} depends upwards");
    }
}

/// Internal crates in `[dependencies]`; tests may look at anything.
fn dependencies(manifest: &str) -> BTreeSet<String> {
    let section = manifest.split("\n[").find(|section| section.starts_with("dependencies]")).unwrap_or("");
    section
        .lines()
        .filter_map(|line| Some(line.strip_prefix("pando-")?.split(['.', ' ', '=']).next()?.to_string()))
        .collect()
}
