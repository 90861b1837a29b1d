//! `cargo xtask`: everything a developer or CI runs.
fn main() {}
