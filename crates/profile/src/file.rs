//! The file of a profile: `PANDO`, one byte with the format's version, then one zstd frame of JSON.
//!
//! In: a profile and a path, or a path. Out: a file that is complete or absent, or a profile. Reading a
//! hostile file costs at most [`MAX_JSON_BYTES`] of text and a bounded decompression window.

use crate::errors;
use crate::schema::{FORMAT_VERSION, Profile};
use pando_base::Result;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// The first five bytes; the version follows as one byte.
const MAGIC: &[u8; 5] = b"PANDO";

/// JSON text beyond this is neither written nor read. A profile takes about 500 bytes a step.
pub const MAX_JSON_BYTES: u64 = 256 << 20;

/// 2^27 bytes is the largest window that zstd's ordinary levels use.
const WINDOW_LOG_MAX: u32 = 27;

/// Speed over size: level 3 shrinks this kind of text some fifteen times.
const LEVEL: i32 = 3;

/// Writes the profile as [`write_bytes`] does. The same profile gives the same bytes.
pub fn write(profile: &Profile, path: impl AsRef<Path>) -> Result<()> {
    let path = path.as_ref();
    write_bytes(path, &encode(profile, path)?)
}

/// Writes a file beside `path` and then renames it, so that no reader sees half a file. A link is followed;
/// what is no regular file (a pipe, a device) is written to, not replaced.
pub fn write_bytes(path: &Path, bytes: &[u8]) -> Result<()> {
    let target = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let special = std::fs::metadata(&target).is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir());
    if special {
        let mut file =
            File::options().write(true).open(&target).map_err(|e| errors::not_written(path, &e))?;
        return file.write_all(bytes).map_err(|error| errors::not_written(path, &error));
    }
    let temporary = temporary_beside(&target)?;
    let written = store(&temporary, bytes).and_then(|()| std::fs::rename(&temporary, &target));
    written.map_err(|error| {
        // What is left of a failed attempt is of no use to anyone.
        let _ = std::fs::remove_file(&temporary);
        errors::not_written(path, &error)
    })
}

fn encode(profile: &Profile, path: &Path) -> Result<Vec<u8>> {
    let json = serde_json::to_vec(profile).map_err(|error| errors::corrupt(path, &error.to_string()))?;
    if json.len() as u64 > MAX_JSON_BYTES {
        return Err(errors::too_large(path, MAX_JSON_BYTES));
    }
    let mut bytes = MAGIC.to_vec();
    bytes.push(FORMAT_VERSION as u8);
    let compress = |bytes: &mut Vec<u8>| -> io::Result<()> {
        let mut encoder = zstd::Encoder::new(bytes, LEVEL)?;
        encoder.include_checksum(true)?;
        encoder.write_all(&json)?;
        encoder.finish().map(|_| ())
    };
    compress(&mut bytes).map_err(|error| errors::not_written(path, &error))?;
    Ok(bytes)
}

/// A name in the same folder that no other writer uses.
fn temporary_beside(path: &Path) -> Result<PathBuf> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let name = path.file_name().ok_or_else(|| errors::no_file_name(path))?;
    if path.is_dir() {
        return Err(errors::no_file_name(path));
    }
    let mut temporary = OsString::from(".");
    temporary.push(name);
    temporary.push(format!(".{}.{}.tmp", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
    Ok(path.with_file_name(temporary))
}

fn store(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::options().write(true).create_new(true).open(path)?;
    file.write_all(bytes)?;
    // A full disk may show only now.
    file.sync_all()
}

/// Reads a profile of this or an older format.
pub fn read(path: impl AsRef<Path>) -> Result<Profile> {
    let path = path.as_ref();
    let mut file = File::open(path).map_err(|error| errors::not_readable(path, &error))?;
    read_header(&mut file, path)?;
    let json = decompress(file, path)?;
    let profile: Profile =
        serde_json::from_slice(&json).map_err(|error| errors::corrupt(path, &error.to_string()))?;
    if profile.format_version > FORMAT_VERSION {
        return Err(errors::newer(path, profile.format_version));
    }
    Ok(profile)
}

fn read_header(file: &mut File, path: &Path) -> Result<()> {
    let mut header = Vec::new();
    let length = MAGIC.len() as u64 + 1;
    file.take(length).read_to_end(&mut header).map_err(|error| errors::not_readable(path, &error))?;
    if header.is_empty() || !header.starts_with(&MAGIC[..header.len().min(MAGIC.len())]) {
        return Err(errors::not_a_profile(path));
    }
    match header.get(MAGIC.len()) {
        None => Err(errors::cut_short(path)),
        Some(0) => Err(errors::not_a_profile(path)),
        Some(&version) if u32::from(version) > FORMAT_VERSION => Err(errors::newer(path, version.into())),
        Some(_) => Ok(()),
    }
}

fn decompress(file: File, path: &Path) -> Result<Vec<u8>> {
    let unpack = || -> io::Result<Vec<u8>> {
        let mut decoder = zstd::Decoder::new(file)?;
        decoder.window_log_max(WINDOW_LOG_MAX)?;
        let mut json = Vec::new();
        decoder.take(MAX_JSON_BYTES + 1).read_to_end(&mut json)?;
        Ok(json)
    };
    let json = unpack().map_err(|error| match error.kind() {
        ErrorKind::UnexpectedEof => errors::cut_short(path),
        _ => errors::corrupt(path, &error.to_string()),
    })?;
    if json.is_empty() {
        return Err(errors::cut_short(path));
    }
    if json.len() as u64 > MAX_JSON_BYTES {
        return Err(errors::too_large(path, MAX_JSON_BYTES));
    }
    Ok(json)
}
