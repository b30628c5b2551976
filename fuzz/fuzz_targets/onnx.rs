//! ONNX files: a valid graph or an error that says why not, within the memory that `crates/onnx/tests/robust.rs`
//! states. Files are small, so 2 GiB and ten seconds are ample for all of it.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let bytes = data.to_vec().into();
    if let Ok(imported) = pando_onnx::parse(bytes, "fuzz.onnx", None, &pando_onnx::Options::default()) {
        pando_graph::validate(&imported.module).expect("what is imported is valid");
    }
});
