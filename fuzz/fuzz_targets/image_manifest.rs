//! What registries and web servers answer when the agent fetches a Wasm module.

#![no_main]

use canopus_agent::wasm::{ImageReference, inspect_manifest, unpack_module};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = inspect_manifest(bytes);
    assert!(unpack_module(bytes, 1 << 16).len() <= bytes.len().max(1 << 16));
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = ImageReference::parse(text);
    }
});
