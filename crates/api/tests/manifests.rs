//! The committed definitions are those we would make.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use canopus_api::crd::own;

#[test]
fn committed_definitions_are_current() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests/crds");
    let mut committed = BTreeMap::new();
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        committed.insert(name, fs::read_to_string(entry.path()).unwrap());
    }
    let made: BTreeMap<String, String> =
        own::manifests().into_iter().map(|manifest| (manifest.file, manifest.text)).collect();
    let differ: Vec<&String> =
        made.keys().chain(committed.keys()).filter(|name| made.get(*name) != committed.get(*name)).collect();
    assert!(differ.is_empty(), "not current: {differ:?}; run `cargo xtask gen crds` and commit the result");
}
