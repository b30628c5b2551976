//! Every message a user can get from this crate, one named function each.

use crate::schema::FORMAT_VERSION;
use pando_base::Error;
use std::io::{self, ErrorKind};
use std::path::Path;

fn about(path: &Path, message: String) -> Error {
    Error::in_file(path.display().to_string(), message)
}

pub fn not_readable(path: &Path, error: &io::Error) -> Error {
    about(path, format!("the profile cannot be read: {}", reason(error)))
}

pub fn not_written(path: &Path, error: &io::Error) -> Error {
    let message = match error.kind() {
        ErrorKind::NotFound => {
            "the profile cannot be written: its folder does not exist; create it first".into()
        }
        ErrorKind::StorageFull => {
            "the profile cannot be written: the disk is full; free some space or choose another folder".into()
        }
        _ => format!("the profile cannot be written: {}", reason(error)),
    };
    about(path, message)
}

fn reason(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => "there is no such file".into(),
        ErrorKind::PermissionDenied => "permission denied".into(),
        ErrorKind::IsADirectory => "it is a folder".into(),
        _ => error.to_string(),
    }
}

pub fn no_file_name(path: &Path) -> Error {
    about(path, "this is no file name to write a profile to".into())
}

pub fn not_a_profile(path: &Path) -> Error {
    about(path, "this is no Pando profile; write one with `pando profile --report FILE`".into())
}

pub fn cut_short(path: &Path) -> Error {
    about(path, "the profile is cut short; it was not written or copied completely".into())
}

pub fn newer(path: &Path, version: u32) -> Error {
    let message = format!(
        "the profile has format {version}, this version of pando reads formats up to {FORMAT_VERSION}; \
         use the version that wrote it or a newer one"
    );
    about(path, message)
}

pub fn corrupt(path: &Path, detail: &str) -> Error {
    about(path, format!("the profile is damaged: {detail}"))
}

pub fn too_large(path: &Path, limit: u64) -> Error {
    about(path, format!("the profile has more than {} MiB of text, the most that is accepted", limit >> 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_says_becomes_advice() {
        let message = |kind: ErrorKind| not_written(Path::new("a"), &kind.into()).to_string();
        assert!(
            message(ErrorKind::StorageFull).starts_with("a: the profile cannot be written: the disk is full")
        );
        assert_eq!(
            message(ErrorKind::PermissionDenied),
            "a: the profile cannot be written: permission denied"
        );
    }
}
