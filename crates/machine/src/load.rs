//! From a name or a file to a checked machine.
//!
//! In: a built-in name, a path, or a text with its file name and folder. Out: a [`Machine`] that
//! passed [`crate::check`], or an error with file, line and column. Deliberately not here: what the
//! numbers mean, and messages.

use std::fmt;
use std::path::Path;

use pando_base::Error;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor, value::MapAccessDeserializer};

use crate::builtin;
use crate::check;
use crate::chip::Chip;
use crate::errors;
use crate::locate::{self, Position};
use crate::machine::{Ddr, Gateway, Host, Links, Machine};

/// A system file as it is written: a [`Machine`] whose chip may be elsewhere.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a system file")]
struct SystemFile {
    name: String,
    title: String,
    chip: ChipSource,
    chips: u32,
    links: Option<Links>,
    gateway: Option<Gateway>,
    ddr: Option<Ddr>,
    host: Host,
    price_usd: Option<f64>,
    power_w: Option<f64>,
}

/// Where a system's chip is described.
enum ChipSource {
    /// A built-in name, or a path ending in `.toml`.
    Elsewhere(String),
    Here(Box<Chip>),
}

/// The machine of a built-in name, or of a file: anything that ends in `.toml` or exists as a file.
pub fn load(name_or_path: &str) -> Result<Machine, Error> {
    if let Some(text) = builtin::text(name_or_path) {
        return parse(text, &format!("{name_or_path}.toml"), None);
    }
    let path = Path::new(name_or_path);
    if !is_toml(name_or_path) && !path.is_file() {
        return Err(errors::unknown_system(name_or_path));
    }
    let text = std::fs::read_to_string(path).map_err(|error| errors::unreadable(path, &error))?;
    parse(&text, name_or_path, Some(path.parent().unwrap_or(Path::new(""))))
}

/// The machine of a system file's text. `file_name` appears in errors; `base_dir` is where paths of
/// chip files start, `None` if the text came from no folder.
pub fn parse(text: &str, file_name: &str, base_dir: Option<&Path>) -> Result<Machine, Error> {
    let file: SystemFile =
        toml::from_str(text).map_err(|error| errors::not_understood(file_name, text, &error))?;
    let chip = match file.chip {
        ChipSource::Here(chip) => *chip,
        ChipSource::Elsewhere(name) => {
            let reference = Reference { file: file_name, position: locate::field(text, "chip"), name: &name };
            reference.load(base_dir)?
        }
    };
    let machine = Machine {
        name: file.name,
        title: file.title,
        chip,
        chips: file.chips,
        links: file.links,
        gateway: file.gateway,
        ddr: file.ddr,
        host: file.host,
        price_usd: file.price_usd,
        power_w: file.power_w,
    };
    // A chip from elsewhere has passed its own check, so what is found here stands in this text.
    check::problem(&machine).map_err(|problem| errors::field(file_name, text, &problem))?;
    Ok(machine)
}

/// A chip named in a system file, and where.
struct Reference<'a> {
    file: &'a str,
    position: Option<Position>,
    name: &'a str,
}

impl Reference<'_> {
    fn load(&self, base_dir: Option<&Path>) -> Result<Chip, Error> {
        if is_toml(self.name) {
            return self.load_file(base_dir);
        }
        match builtin::chip_text(self.name) {
            Some(text) => parse_chip(text, &format!("{}.toml", self.name)),
            None => Err(errors::unknown_chip(self.file, self.position, self.name)),
        }
    }

    fn load_file(&self, base_dir: Option<&Path>) -> Result<Chip, Error> {
        let Some(folder) = base_dir else {
            return Err(errors::chip_path_without_folder(self.file, self.position, self.name));
        };
        let path = folder.join(self.name);
        let text = std::fs::read_to_string(&path)
            .map_err(|error| errors::unreadable_chip(self.file, self.position, &path, &error))?;
        parse_chip(&text, &path.display().to_string())
    }
}

fn parse_chip(text: &str, file_name: &str) -> Result<Chip, Error> {
    let chip: Chip = toml::from_str(text).map_err(|error| errors::not_understood(file_name, text, &error))?;
    check::chip_problem(&chip).map_err(|problem| errors::field(file_name, text, &problem))?;
    Ok(chip)
}

fn is_toml(path: &str) -> bool {
    Path::new(path).extension().is_some_and(|extension| extension == "toml")
}

// By hand because serde's untagged enums forget line and column of what is wrong inside.
impl<'de> Deserialize<'de> for ChipSource {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ChipSourceVisitor)
    }
}

struct ChipSourceVisitor;

impl<'de> Visitor<'de> for ChipSourceVisitor {
    type Value = ChipSource;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a built-in chip, the path of a chip file, or a [chip] table")
    }

    fn visit_str<E>(self, name: &str) -> Result<ChipSource, E> {
        Ok(ChipSource::Elsewhere(name.to_string()))
    }

    fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<ChipSource, A::Error> {
        let chip = Chip::deserialize(MapAccessDeserializer::new(table))?;
        Ok(ChipSource::Here(Box::new(chip)))
    }
}
