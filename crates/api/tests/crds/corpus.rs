//! Istio's definitions and the documents that go with them, from the conformance corpus.

use std::fs;
use std::path::{Path, PathBuf};

use canopus_base::tree::{Limits, Node};
use canopus_base::yaml;

/// The part of the corpus about CRDs, if there is a corpus: `CANOPUS_CORPUS`, or where it stands beside the repository.
#[allow(clippy::disallowed_methods, reason = "tests find their data by the environment")]
fn directory() -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/conformance");
    let root = std::env::var_os("CANOPUS_CORPUS").map_or_else(beside, PathBuf::from).join("crd-validation");
    if root.is_dir() {
        return Some(root);
    }
    println!("skipped: no corpus at {} (set CANOPUS_CORPUS)", root.display());
    None
}

/// The definitions Istio ships.
pub(crate) fn shipped_crds() -> Option<Vec<Node>> {
    Some(documents(&directory()?.join("crds/crd-all.gen.yaml")))
}

/// The documents of a YAML file.
fn documents(file: &Path) -> Vec<Node> {
    let documents = yaml::parse_all(fs::read(file).unwrap(), &Limits::default()).into_iter();
    documents.map(|document| document.unwrap().node).filter(|node| !node.is_null()).collect()
}
