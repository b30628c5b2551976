//! Model files in memory: mapped, not read, so that the bytes of a weight that has become a tensor need not stay
//! ([`let_go`]): a model of 440 MB would otherwise be there twice. Whoever changes a file while it is read gets
//! what they deserve, as with every mapped file.

#![allow(unsafe_code)]

use bytes::Bytes;
use memmap2::Mmap;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Fewer bytes are not worth a call.
const LARGE: usize = 1 << 20;

/// The files that are mapped now.
static MAPPED: Mutex<Vec<Weak<Mmap>>> = Mutex::new(Vec::new());

struct Owner(Arc<Mmap>);

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// The bytes of a file.
pub fn map(path: &Path) -> io::Result<Bytes> {
    let file = File::open(path)?;
    if file.metadata()?.len() < LARGE as u64 {
        return std::fs::read(path).map(Bytes::from);
    }
    // SAFETY: nobody is expected to change a model's file while it is read.
    let map = Arc::new(unsafe { Mmap::map(&file) }?);
    let mut mapped = MAPPED.lock().unwrap_or_else(PoisonError::into_inner);
    mapped.retain(|map| map.strong_count() > 0);
    mapped.push(Arc::downgrade(&map));
    Ok(Bytes::from_owner(Owner(map)))
}

/// Says that bytes will not be read again soon. If they are part of a mapped file, its pages leave memory, and
/// come back from the file if they are read after all.
#[cfg(unix)]
pub fn let_go(bytes: &[u8]) {
    if bytes.len() < LARGE {
        return;
    }
    let maps: Vec<Arc<Mmap>> =
        MAPPED.lock().unwrap_or_else(PoisonError::into_inner).iter().filter_map(Weak::upgrade).collect();
    let begin = bytes.as_ptr() as usize;
    for map in maps {
        let first = map.as_ptr() as usize;
        if begin >= first && begin + bytes.len() <= first + map.len() {
            // SAFETY: the mapping is of a file and never written, so its pages are read again when needed. A
            // hint: what does not succeed costs memory only.
            let _ = unsafe {
                map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, begin - first, bytes.len())
            };
        }
    }
}

#[cfg(not(unix))]
pub fn let_go(_bytes: &[u8]) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back() {
        let path = std::env::temp_dir().join(format!("pando-file-{}.bin", std::process::id()));
        let content: Vec<u8> = (0..3 << 20).map(|i: u32| (i % 251) as u8).collect();
        std::fs::write(&path, &content).unwrap();
        let bytes = map(&path).unwrap();
        let_go(&bytes[100..(2 << 20) + 7]);
        let_go(&content);
        assert_eq!(bytes, content);
        std::fs::remove_file(&path).unwrap();
    }
}
