//! The chip and system files that come with the program.
//!
//! In: names. Out: file texts. Deliberately not here: any knowledge of what a file says; a file
//! joins the program by one line below.

/// A built-in file: its name without `.toml`, and its text.
type File = (&'static str, &'static str);

macro_rules! files {
    ($folder:literal: $($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../data/", $folder, "/", $name, ".toml")))),*]
    };
}

const CHIPS: &[File] = files!("chips": "gc2", "gc200", "bow", "c600");

const SYSTEMS: &[File] = files!("systems":
    "c2", "mk2", "m2000", "pod4", "pod16", "pod64", "pod128", "pod256", "pod64k",
    "bow", "bow2000", "bow-pod16", "bow-pod64", "bow-pod128", "bow-pod256", "c600", "tiny4");

const SYSTEM_NAMES: [&str; SYSTEMS.len()] = names_of(SYSTEMS);
const CHIP_NAMES: [&str; CHIPS.len()] = names_of(CHIPS);

const fn names_of<const N: usize>(files: &[File]) -> [&'static str; N] {
    let mut names = [""; N];
    let mut i = 0;
    while i < N {
        names[i] = files[i].0;
        i += 1;
    }
    names
}

/// The systems that always exist, in the order to list them.
pub fn names() -> &'static [&'static str] {
    &SYSTEM_NAMES
}

/// The text of a built-in system's file, to be read or copied by users.
pub fn text(system: &str) -> Option<&'static str> {
    find(SYSTEMS, system)
}

pub(crate) fn chip_names() -> &'static [&'static str] {
    &CHIP_NAMES
}

pub(crate) fn chip_text(chip: &str) -> Option<&'static str> {
    find(CHIPS, chip)
}

fn find(files: &[File], name: &str) -> Option<&'static str> {
    files.iter().find(|file| file.0 == name).map(|file| file.1)
}
