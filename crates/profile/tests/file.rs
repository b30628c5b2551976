//! Goal: a profile comes back as it was, and every kind of bad file gives a clear error in bounded memory.
//! Method: files in a temporary folder, damaged on purpose.

mod common;

use common::profile;
use pando_profile::{read, write};
use std::io::Write;
use std::path::{Path, PathBuf};

/// An empty folder of this test's own.
fn folder(test: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("pando-profile-{}-{test}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

fn error_of(path: &Path, bytes: &[u8]) -> String {
    std::fs::write(path, bytes).unwrap();
    read(path).unwrap_err().to_string()
}

#[test]
fn comes_back_and_is_deterministic() {
    let folder = folder("round-trip");
    let (a, b) = (folder.join("a.pando"), folder.join("b.pando"));
    let mut original = profile();
    original.totals.seconds = 0.1 + 0.2;
    write(&original, &a).unwrap();
    write(&original, &b).unwrap();
    assert_eq!(read(&a).unwrap(), original);
    assert_eq!(std::fs::read(&a).unwrap(), std::fs::read(&b).unwrap());
    // Replacing works, and nothing temporary stays behind.
    write(&profile(), &a).unwrap();
    assert_eq!(read(&a).unwrap(), profile());
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 2);
}

#[test]
fn is_plain_json_behind_six_bytes() {
    let path = folder("json").join("a.pando");
    write(&profile(), &path).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    assert_eq!(&bytes[..6], b"PANDO\x01");
    let json = zstd::decode_all(&bytes[6..]).unwrap();
    let value: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(value["steps"][1]["kind"], "exchange");
    assert_eq!(value["totals"]["parts"]["host"], 436);
}

#[test]
fn bad_files_are_told_apart() {
    let folder = folder("bad");
    let path = folder.join("a.pando");
    write(&profile(), &path).unwrap();
    let good = std::fs::read(&path).unwrap();
    let short = "the profile is cut short; it was not written or copied completely";
    let foreign = "this is no Pando profile";
    let name = path.display().to_string();
    assert_eq!(error_of(&path, &good[..good.len() - 9]), format!("{name}: {short}"));
    for end in [1, 5, 6, 7, 20] {
        assert!(error_of(&path, &good[..end]).ends_with(short), "{end} bytes");
    }
    assert!(error_of(&path, b"").contains(foreign));
    assert!(error_of(&path, b"SQLite format 3").contains(foreign));
    let mut newer = good.clone();
    newer[5] = 9;
    assert!(
        error_of(&path, &newer)
            .contains("the profile has format 9, this version of pando reads formats up to 1")
    );
    for at in 6..good.len() {
        let mut flipped = good.clone();
        flipped[at] ^= 0x10;
        // The checksum sees what the decoder does not; one bit of the frame's header has no meaning.
        std::fs::write(&path, &flipped).unwrap();
        assert!(read(&path).is_err() || read(&path).unwrap() == profile(), "byte {at}");
    }
    assert!(error_of(&path, &[&good[..6], b"no zstd frame"].concat()).contains("the profile is damaged"));
    let json = zstd::encode_all(&b"{\"format_version\": \"x\"}"[..], 1).unwrap();
    assert!(error_of(&path, &[&good[..6], &json].concat()).contains("the profile is damaged: invalid type"));
}

#[test]
fn a_bomb_is_refused() {
    let path = folder("bomb").join("a.pando");
    let mut bytes = b"PANDO\x01".to_vec();
    let mut encoder = zstd::Encoder::new(&mut bytes, 1).unwrap();
    let block = vec![b' '; 1 << 20];
    for _ in 0..300 {
        encoder.write_all(&block).unwrap();
    }
    encoder.finish().unwrap();
    assert!(error_of(&path, &bytes).contains("more than 256 MiB of text"));
}

#[test]
fn places_that_cannot_be_written() {
    let folder = folder("places");
    let missing = folder.join("nowhere").join("a.pando");
    let message = write(&profile(), &missing).unwrap_err().to_string();
    assert!(
        message.ends_with("the profile cannot be written: its folder does not exist; create it first"),
        "{message}"
    );
    assert!(write(&profile(), &folder).unwrap_err().to_string().contains("no file name"));
    assert!(write(&profile(), "/").unwrap_err().to_string().contains("no file name"));
    assert!(write(&profile(), "/proc/a.pando").unwrap_err().to_string().contains("cannot be written"));
    assert!(read(folder.join("b")).unwrap_err().to_string().contains("there is no such file"));
    assert!(read(&folder).unwrap_err().to_string().contains("it is a folder"));
}
