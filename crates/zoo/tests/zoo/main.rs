//! The catalog, without anything that needs PyTorch: `compare.py` does that.

mod common;
mod counts;
mod options;
mod values;
