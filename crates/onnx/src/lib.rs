//! ONNX models: read from a file and translated to the graph. Opsets 7 and later of the default domain,
//! the fused operators of `com.microsoft`, a model's own functions.
//! `proto.rs` and `tensors.rs` are the file format, `import/` turns graphs into functions, `ops/` has a
//! translation per operator. Knows nothing of engines and machines.

mod ctx;
pub mod elem;
mod errors;
mod file;
mod import;
mod ops;
pub mod proto;
pub mod tensors;

pub use import::{Data, Given, Imported, Input, OPSETS, Options, Output, OutputValue, Text, Unsupported};
pub use proto::ModelProto;

use bytes::Bytes;
use pando_base::Result;
use prost::Message;
use std::path::Path;

/// Reads and translates a file.
pub fn load(path: &Path) -> Result<Imported> {
    load_with(path, &Options::default())
}

pub fn load_with(path: &Path, options: &Options) -> Result<Imported> {
    let name = path.display().to_string();
    let bytes = file::map(path).map_err(|error| errors::unreadable(&name, error))?;
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    parse(bytes, &name, Some(folder), options)
}

/// Translates the bytes of a file called `name`, whose external data lies in `folder`.
pub fn parse(bytes: Bytes, name: &str, folder: Option<&Path>, options: &Options) -> Result<Imported> {
    let model = decode(bytes).map_err(|error| error.with_file(name))?;
    import::import(&model, folder, options).map_err(|error| error.with_file(name))
}

/// Decodes without translating. Large tensors stay slices of `bytes`.
pub fn decode(bytes: Bytes) -> Result<ModelProto> {
    ModelProto::decode(bytes).map_err(errors::not_onnx)
}

/// The operators that have a translation, as (domain, name).
pub fn operators() -> impl Iterator<Item = (&'static str, &'static str)> {
    ops::all()
}
