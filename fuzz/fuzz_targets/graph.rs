//! `.graph` text: parses or says why not; what parses prints to text that parses to the same.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pando_graph::fuzz_parse(data));
