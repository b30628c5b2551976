//! ONNX models: read from a file and translated to the graph. Opsets 7 and later of the default domain,
//! the fused operators of `com.microsoft`, a model's own functions.
//! `proto.rs` and `tensors.rs` are the file format, `import/` turns graphs into functions, `ops/` has a
//! translation per operator; `export/` is the way back; `session.rs` runs models whose sizes depend on their
//! inputs. Knows nothing of engines and machines.

mod ctx;
pub mod elem;
mod errors;
mod export;
mod file;
mod import;
mod ops;
pub mod proto;
mod session;
pub mod tensors;

pub use export::{EXPORT_OPSET, export, export_model};
pub use import::{
    Data, Evaluate, Given, Imported, Input, OPSETS, Operator, Options, Output, OutputValue, Sample, Text,
    Unsupported, translate,
};
pub use proto::ModelProto;
pub use session::{Engine, Plan, Session};

use bytes::Bytes;
use pando_base::{Result, Tensor};
use prost::Message;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Reads and translates a file.
pub fn load(path: &Path) -> Result<Imported> {
    load_with(path, &Options::default())
}

pub fn load_with(path: &Path, options: &Options) -> Result<Imported> {
    let (bytes, name, folder) = read(path)?;
    parse(bytes, &name, Some(&folder), options)
}

/// Reads and translates a file for these inputs: also where sizes depend on their values, which is what
/// `evaluate` computes. See [`Imported::decided`].
pub fn load_for(
    path: &Path,
    inputs: &[(String, Tensor)],
    options: &Options,
    evaluate: Arc<Evaluate>,
) -> Result<Imported> {
    let sample = Sample { inputs: inputs.to_vec(), evaluate };
    load_with(path, &Options { sample: Some(sample), ..options.clone() })
}

/// The inputs that a file declares, without translating it.
pub fn inputs(path: &Path, options: &Options) -> Result<Vec<Input>> {
    let (bytes, name, _) = read(path)?;
    let declared = decode(bytes).and_then(|model| import::declared_inputs(&model, options));
    declared.map_err(|error| error.with_file(&name))
}

/// A file's bytes, its name for messages and its folder.
fn read(path: &Path) -> Result<(Bytes, String, PathBuf)> {
    let name = path.display().to_string();
    let bytes = file::map(path).map_err(|error| errors::unreadable(&name, error))?;
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    Ok((bytes, name, folder.into()))
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
