//! Objects of the conformance corpus are read. Without the corpus these tests say so and pass.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use canopus_api::{Kind, Object, Options, decode_documents};
use canopus_base::tree::Limits;

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

/// The YAML files below a directory that `wanted` takes, in a fixed order.
fn yaml_files(root: &Path, wanted: &dyn Fn(&str) -> bool) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if path.is_dir() {
            files.extend(yaml_files(&path, wanted));
        } else if name.ends_with(".yaml") && wanted(&name) {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// Reads all objects of a file without a word of complaint, and each again from what it is written as.
fn read_cleanly(path: &Path, counts: &mut BTreeMap<Kind, usize>) {
    let text = std::fs::read(path).unwrap();
    for outcome in decode_documents(&text, &Limits::default(), Options::strict()) {
        let decoded = outcome.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(decoded.ignored.is_empty(), "{}: {:?}", path.display(), decoded.ignored);
        let object = decoded.value;
        let again = Object::decode(&object.to_node(), Options::strict())
            .unwrap_or_else(|error| panic!("{}: written and read again: {error}", path.display()));
        assert_eq!(again.value, object, "{}", path.display());
        *counts.entry(object.kind()).or_default() += 1;
    }
}

#[test]
fn every_sample_of_a_valid_object_is_read() {
    let Some(root) = corpus() else { return };
    let mut counts = BTreeMap::new();
    for path in yaml_files(&root.join("validation-samples"), &|_| true) {
        read_cleanly(&path, &mut counts);
    }
    assert_eq!(counts.values().sum::<usize>(), 29);
}

#[test]
fn every_object_behind_recorded_configuration_is_read() {
    let Some(root) = corpus() else { return };
    let inputs = |name: &str| name == "config.yaml" || name.starts_with("kube");
    let mut counts = BTreeMap::new();
    for path in yaml_files(&root.join("xds"), &inputs) {
        read_cleanly(&path, &mut counts);
    }
    assert!(counts.values().sum::<usize>() > 7_000, "{counts:?}");
    assert!(counts.len() >= 31, "{counts:?}");
}
