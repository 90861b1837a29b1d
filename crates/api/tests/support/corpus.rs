//! The part of the conformance corpus about definitions of kinds.

use std::fs;
use std::path::{Path, PathBuf};

use canopus_base::tree::{Limits, Node};
use canopus_base::yaml;

/// Where it is, if there is a corpus: `CANOPUS_CORPUS`, or where it stands beside the repository.
#[allow(clippy::disallowed_methods, reason = "tests find their data by the environment")]
pub(crate) fn directory() -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/conformance");
    let root = std::env::var_os("CANOPUS_CORPUS").map_or_else(beside, PathBuf::from).join("crd-validation");
    if root.is_dir() {
        return Some(root);
    }
    println!("skipped: no corpus at {} (set CANOPUS_CORPUS)", root.display());
    None
}

/// The documents of a YAML file.
pub(crate) fn documents(file: &Path) -> Vec<Node> {
    let documents = yaml::parse_all(fs::read(file).unwrap(), &Limits::default()).into_iter();
    documents.map(|document| document.unwrap().node).filter(|node| !node.is_null()).collect()
}
