//! Machine files: load or say why not; what loads can be described.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Ok(text) = std::str::from_utf8(data)
        && let Ok(machine) = pando_machine::parse(text, "fuzz.toml", None)
    {
        pando_machine::describe(&machine);
    }
});
