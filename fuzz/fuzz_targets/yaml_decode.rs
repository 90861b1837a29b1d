//! Any bytes are read as YAML and as JSON within limits; what is read is written, and reads back the same.

#![no_main]

use canopus_base::{json, yaml};
use libfuzzer_sys::fuzz_target;

const LIMITS: yaml::Limits = yaml::Limits { max_bytes: 1 << 16, max_depth: 32, max_nodes: 2000 };

fuzz_target!(|bytes: &[u8]| {
    for document in yaml::parse_all(bytes, &LIMITS).into_iter().flatten() {
        let text = yaml::node_to_string(&document.node);
        // Writing may take more levels of indentation, and so more bytes, than reading did.
        let generous = yaml::Limits { max_bytes: usize::MAX, ..LIMITS };
        assert_eq!(yaml::parse_one(&text, &generous).as_ref(), Ok(&document.node), "{text}");
    }
    if let Ok(node) = json::parse(bytes, &LIMITS) {
        assert_eq!(json::parse(node.to_json().to_string().as_bytes(), &LIMITS).as_ref(), Ok(&node));
    }
});
