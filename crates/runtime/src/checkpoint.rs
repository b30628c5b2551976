//! Checkpoints: a folder with all state as a safetensors file, and a manifest that says what it is.
//!
//! `manifest.json` names the file of tensors, so a new one is written beside the old one, and the manifest's rename
//! is the moment at which the new checkpoint counts. Bits are kept: a session that loads a checkpoint goes on as
//! the one that saved it would have, random numbers included, since their seed is state like any other.

use crate::errors;
use crate::state::{State, type_of};
use pando_base::{DType, Result, Shape, Tensor};
use pando_cpu::Variable;
use safetensors::tensor::{Dtype, Metadata, TensorView};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

const FORMAT: &str = "pando checkpoint";
/// Grows when older versions of this code could not read what is written.
const VERSION: u64 = 1;
const MANIFEST: &str = "manifest.json";
const TEMPORARY: &str = "tmp";

/// Whether a checkpoint may hold state that the session does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    All,
    Part,
}

/// What every manifest, of whatever version, begins with.
#[derive(Deserialize)]
struct Header {
    format: String,
    version: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    format: String,
    version: u64,
    /// The programs of the session that wrote it, for the reader's eyes.
    programs: Vec<String>,
    /// The file of tensors, in the same folder.
    tensors: String,
    state: Vec<Entry>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    #[serde(rename = "type")]
    ty: String,
    /// Of the bytes of the tensor.
    crc32: u32,
}

pub(crate) fn save(folder: &Path, programs: &[&str], state: &State) -> Result<()> {
    write(folder, programs, state).map_err(|reason| errors::not_written(folder, reason))
}

fn write(folder: &Path, programs: &[&str], state: &State) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let tensors =
        tensors_name(1 + tensor_files(folder)?.iter().map(|&(number, _)| number).max().unwrap_or(0));
    let entry = |(name, variable): (&String, &Variable)| {
        let crc32 = crc32fast::hash(variable.bytes());
        Entry { name: name.clone(), ty: type_of(variable), crc32 }
    };
    let manifest = Manifest {
        format: FORMAT.into(),
        version: VERSION,
        programs: programs.iter().map(|&name| name.into()).collect(),
        tensors: tensors.clone(),
        state: state.names.iter().zip(state.variables()).map(entry).collect(),
    };
    let mut text = serde_json::to_vec_pretty(&manifest)?;
    text.push(b'\n');
    write_whole(&folder.join(&tensors), |path| write_tensors(path, state))?;
    write_whole(&folder.join(MANIFEST), |path| File::create(path)?.write_all(&text))?;
    // The new checkpoint counts. What is left of older ones only takes room: failing to remove it is no failure.
    for (_, path) in tensor_files(folder)?.into_iter().filter(|(_, path)| !path.ends_with(&tensors)) {
        let _ = fs::remove_file(path);
    }
    Ok(())
}

fn tensors_name(number: u64) -> String {
    format!("state-{number}.safetensors")
}

/// Files of tensors in the folder, unfinished ones included, by their numbers.
fn tensor_files(folder: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let finished = name.strip_suffix(&format!(".{TEMPORARY}")).unwrap_or(&name);
        let number = finished.strip_prefix("state-").and_then(|rest| rest.strip_suffix(".safetensors"));
        if let Some(number) = number.and_then(|number| number.parse().ok()) {
            files.push((number, path));
        }
    }
    Ok(files)
}

/// Writes a file under a name beside its own, waits until it is on the disk, and only then gives it its name.
fn write_whole(path: &Path, write: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{TEMPORARY}"));
    let beside = PathBuf::from(beside);
    write(&beside)?;
    File::options().write(true).open(&beside)?.sync_all()?;
    fs::rename(&beside, path)?;
    if cfg!(unix) {
        // The rename itself, too; other systems open no folders.
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
    }
    Ok(())
}

fn write_tensors(path: &Path, state: &State) -> io::Result<()> {
    let named = state.names.iter().zip(state.variables());
    let views = named.map(|(name, variable)| Ok((name, view(variable)?))).collect::<io::Result<Vec<_>>>()?;
    safetensors::serialize_to_file(views, None, path).map_err(io::Error::other)
}

fn view(variable: &Variable) -> io::Result<TensorView<'_>> {
    let (dtype, shape) = variable.ty();
    let shape = shape.iter().map(|&size| size as usize).collect();
    TensorView::new(stored_type(dtype), shape, variable.bytes()).map_err(io::Error::other)
}

/// The IPU's 8-bit floats are not those of the format: their bytes are stored, and the manifest says what they are.
fn stored_type(dtype: DType) -> Dtype {
    match dtype {
        DType::F32 => Dtype::F32,
        DType::F16 => Dtype::F16,
        DType::BF16 => Dtype::BF16,
        DType::F8(..) | DType::U8 => Dtype::U8,
        DType::I8 => Dtype::I8,
        DType::I16 => Dtype::I16,
        DType::I32 => Dtype::I32,
        DType::I64 => Dtype::I64,
        DType::U16 => Dtype::U16,
        DType::U32 => Dtype::U32,
        DType::U64 => Dtype::U64,
        DType::Bool => Dtype::BOOL,
    }
}

pub(crate) fn load(folder: &Path, state: &mut State, extent: Extent) -> Result<()> {
    let manifest = read_manifest(&folder.join(MANIFEST))?;
    check_state(folder, &manifest, state, extent)?;
    let path = folder.join(&manifest.tensors);
    let mut stored = Stored::open(&path)?;
    // All is read and compared before anything changes.
    let mut tensors = Vec::new();
    for entry in &manifest.state {
        if let Ok(place) = state.place(&entry.name) {
            tensors.push((place, stored.read(entry, state.variable(place))?));
        }
    }
    tensors.into_iter().for_each(|(place, tensor)| state.put(place, tensor));
    Ok(())
}

fn read_manifest(path: &Path) -> Result<Manifest> {
    let text = fs::read(path).map_err(|reason| errors::no_checkpoint(path, reason))?;
    let header: Header = serde_json::from_slice(&text).map_err(|reason| errors::no_manifest(path, reason))?;
    if header.format != FORMAT {
        return Err(errors::no_manifest(path, format!("its format is '{}'", header.format)));
    }
    if header.version != VERSION {
        return Err(errors::newer_checkpoint(path, header.version, VERSION));
    }
    let manifest: Manifest =
        serde_json::from_slice(&text).map_err(|reason| errors::no_manifest(path, reason))?;
    // A manifest from somewhere else must not make us read files from somewhere else.
    match Path::new(&manifest.tensors).file_name().is_some_and(|name| *name == *manifest.tensors) {
        true => Ok(manifest),
        false => Err(errors::no_manifest(path, format!("'{}' is no file in its folder", manifest.tensors))),
    }
}

/// The names, and the types as the manifest states them.
fn check_state(folder: &Path, manifest: &Manifest, state: &State, extent: Extent) -> Result<()> {
    let known = |name: &str| manifest.state.iter().find(|entry| entry.name == name);
    let missing: Vec<&str> =
        state.names.iter().map(String::as_str).filter(|name| known(name).is_none()).collect();
    if !missing.is_empty() {
        return Err(errors::missing_in_checkpoint(folder, missing));
    }
    let more = manifest.state.iter().map(|entry| entry.name.as_str());
    let more: Vec<&str> = more.filter(|name| state.place(name).is_err()).collect();
    if extent == Extent::All && !more.is_empty() {
        return Err(errors::unknown_in_checkpoint(folder, more));
    }
    for entry in &manifest.state {
        let Ok(place) = state.place(&entry.name) else { continue };
        let expected = type_of(state.variable(place));
        if entry.ty != expected {
            return Err(errors::wrong_type_in_checkpoint(folder, &entry.name, expected, &entry.ty));
        }
    }
    Ok(())
}

/// A file of tensors, read one at a time: beside the tensors no copy of the file is held.
struct Stored<'a> {
    path: &'a Path,
    file: File,
    metadata: Metadata,
    /// Where the tensors' bytes begin.
    begin: u64,
}

impl Stored<'_> {
    fn open(path: &Path) -> Result<Stored<'_>> {
        let damaged = |reason: String| errors::damaged(path, reason);
        let mut file = File::open(path).map_err(|reason| errors::damaged(path, reason))?;
        let size = file.metadata().map_err(|reason| errors::damaged(path, reason))?.len();
        let mut length = [0; 8];
        file.read_exact(&mut length).map_err(|reason| errors::damaged(path, reason))?;
        let length = u64::from_le_bytes(length);
        if length > size.saturating_sub(8) {
            return Err(damaged(format!("its header has {length} bytes, and it has {size}")));
        }
        let mut text = Vec::new();
        (&file).take(length).read_to_end(&mut text).map_err(|reason| errors::damaged(path, reason))?;
        let metadata: Metadata =
            serde_json::from_slice(&text).map_err(|reason| errors::damaged(path, reason))?;
        let (begin, length) = (8 + length, metadata.data_len() as u64);
        match begin + length == size {
            true => Ok(Stored { path, file, metadata, begin }),
            false => Err(damaged(format!("its tensors have {length} bytes, and it has {}", size - begin))),
        }
    }

    fn read(&mut self, entry: &Entry, like: &Variable) -> Result<Tensor> {
        let (path, name) = (self.path, &entry.name);
        let info = self.metadata.info(name);
        let info = info.ok_or_else(|| errors::damaged(path, format!("it has no tensor '{name}'")))?;
        let shape: Shape = info.shape.iter().map(|&size| size as u64).collect();
        let (dtype, expected) = like.ty();
        if info.dtype != stored_type(dtype) || shape != *expected {
            let found = format!("'{name}' is {}{shape}, {} in the manifest", info.dtype, type_of(like));
            return Err(errors::damaged(path, found));
        }
        let begin = self.begin + info.data_offsets.0 as u64;
        let mut tensor = Tensor::zeros(dtype, shape);
        let bytes = tensor.bytes_mut();
        let read = self.file.seek(SeekFrom::Start(begin)).and_then(|_| self.file.read_exact(bytes));
        read.map_err(|reason| errors::damaged(path, reason))?;
        if crc32fast::hash(bytes) != entry.crc32 {
            return Err(errors::damaged(path, format!("the bytes of '{name}' have changed")));
        }
        Ok(tensor)
    }
}
