//! What proxies say when they reject something: any text.

#![no_main]

use canopus_xds::rejection;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (&str, &str)| {
    let (words, name) = input;
    if let Some(field) = rejection::failed_field(words) {
        assert!(words.contains("ValidationError.") && field.len() <= 2 * words.len() + 64);
    }
    if rejection::mentions(words, name) {
        assert!(words.contains(name));
    }
});
