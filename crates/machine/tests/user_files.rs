//! Machines from users' files: a chip by built-in name, a chip file beside the system file, and what
//! is said when that chip file is wrong.

use std::path::PathBuf;

use pando_machine::{load, text};

/// A folder of this test alone, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("pando-machine-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    /// Writes a file and returns its path.
    fn write(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn pod16_with_chip(chip: &str) -> String {
    text("pod16").unwrap().replace("chip = \"gc200\"", &format!("chip = \"{chip}\""))
}

/// A chip file: tiny4's [chip] table, moved to the top level.
fn tiny_chip() -> String {
    let text = text("tiny4").unwrap();
    let from = text.find("[chip]\n").unwrap() + "[chip]\n".len();
    let to = text.find("[host]").unwrap();
    text[from..to].replace("[chip.", "[").replace("[[chip.", "[[")
}

#[test]
fn a_built_in_chip() {
    let folder = Folder::new("built-in");
    let path = folder.write("mine.toml", &pod16_with_chip("bow").replace("\"pod16\"", "\"mine\""));
    let machine = load(&path).unwrap();
    assert_eq!(machine.name, "mine");
    assert_eq!(machine.chip.clock_hz, 1.85e9);
    assert_eq!(machine.chips, 16);
}

#[test]
fn a_chip_file_beside_the_system_file() {
    let folder = Folder::new("relative");
    std::fs::create_dir_all(folder.0.join("chips")).unwrap();
    folder.write("chips/tiny.toml", &tiny_chip());
    let path = folder.write("mine.toml", &pod16_with_chip("chips/tiny.toml"));
    assert_eq!(load(&path).unwrap().tiles_total(), 64);
}

#[test]
fn an_absent_chip_file_is_reported_where_it_is_named() {
    let folder = Folder::new("absent");
    let path = folder.write("mine.toml", &pod16_with_chip("absent.toml"));
    let error = load(&path).unwrap_err();
    assert_eq!(error.file(), Some(&*path));
    assert_eq!(error.position(), Some((5, 8)));
    let message = error.message();
    assert!(message.starts_with("cannot read chip file `"), "{message}");
    assert!(message.ends_with("the path is relative to this file's folder"), "{message}");
}

#[test]
fn a_wrong_chip_file_is_reported_in_that_file() {
    let folder = Folder::new("wrong");
    let chip = folder.write("tiny.toml", &tiny_chip().replace("tiles = 4", "tiles = 0"));
    let path = folder.write("mine.toml", &pod16_with_chip("tiny.toml"));
    assert_eq!(
        load(&path).unwrap_err().to_string(),
        format!("{chip}:2:9: tiles: 0 is not possible; expected a whole number from 1 to 65536")
    );
    folder.write("tiny.toml", "name = \"a\"\ntiles = 4\nx = 1\n");
    let error = load(&path).unwrap_err().to_string();
    assert!(error.starts_with(&format!("{chip}:3:1: unknown field `x`")), "{error}");
}

#[test]
fn a_folder_or_bytes_instead_of_a_text() {
    let folder = Folder::new("bytes");
    let path = folder.0.join("bytes.toml");
    std::fs::write(&path, [0xff, 0xfe, 0x00]).unwrap();
    let error = load(path.to_str().unwrap()).unwrap_err().to_string();
    assert!(error.contains("cannot read this file"), "{error}");
    let inside = folder.0.join("d.toml");
    std::fs::create_dir_all(&inside).unwrap();
    let error = load(inside.to_str().unwrap()).unwrap_err().to_string();
    assert!(error.contains("cannot read this file"), "{error}");
}
