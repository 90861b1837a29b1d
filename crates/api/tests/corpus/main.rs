//! What the crate makes of the conformance corpus. Without the corpus these tests say so and pass.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "helpers of tests are tests")]

mod keys;
mod mesh;
mod objects;
mod schema;

use std::path::{Path, PathBuf};

use canopus_base::tree::{Limits, Node};
use canopus_base::yaml;

/// The corpus, if there is one: `CANOPUS_CORPUS`, or where it stands beside the repository.
#[allow(clippy::disallowed_methods, reason = "tests find their data by the environment")]
fn corpus() -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/conformance");
    let root = std::env::var_os("CANOPUS_CORPUS").map_or_else(beside, PathBuf::from);
    if root.is_dir() {
        return Some(root);
    }
    println!("skipped: no corpus at {} (set CANOPUS_CORPUS)", root.display());
    None
}

/// The documents of a YAML file.
fn documents(path: &Path) -> Vec<Node> {
    let text = std::fs::read(path).unwrap();
    let documents = yaml::parse_all(text, &Limits::default());
    documents.into_iter().map(|document| document.unwrap().node).collect()
}
