//! Objects are read, and read again from what they are written as.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use canopus_api::{Kind, Object, Options, decode_documents};
use canopus_base::tree::{Limits, Node};

use crate::{corpus, documents};

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

/// What was read.
#[derive(Default)]
struct Tally {
    objects: BTreeMap<Kind, usize>,
    ignored: Vec<String>,
}

/// Reads all objects of a file, and each again from what it is written as.
fn read_file(path: &Path, options: Options, tally: &mut Tally) {
    let text = std::fs::read(path).unwrap();
    for outcome in decode_documents(&text, &Limits::default(), options) {
        let decoded = outcome.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        tally.ignored.extend(decoded.ignored.iter().map(ToString::to_string));
        let object = decoded.value;
        let again = Object::decode(&object.to_node(), Options::strict())
            .unwrap_or_else(|error| panic!("{}: written and read again: {error}", path.display()));
        assert_eq!(again.value, object, "{}", path.display());
        *tally.objects.entry(object.kind()).or_default() += 1;
    }
}

#[test]
fn every_sample_of_a_valid_object_is_read() {
    let Some(root) = corpus() else { return };
    let mut tally = Tally::default();
    for path in yaml_files(&root.join("validation-samples"), &|_| true) {
        read_file(&path, Options::strict(), &mut tally);
    }
    assert_eq!(tally.objects.values().sum::<usize>(), 29);
}

#[test]
fn every_object_behind_recorded_configuration_is_read() {
    let Some(root) = corpus() else { return };
    let inputs = |name: &str| name == "config.yaml" || name.starts_with("kube");
    let mut tally = Tally::default();
    for path in yaml_files(&root.join("xds"), &inputs) {
        read_file(&path, Options::lenient(), &mut tally);
    }
    println!("{:?}\n{}", tally.objects, tally.ignored.join("\n"));
    assert!(tally.objects.values().sum::<usize>() > 7_000);
    assert!(tally.objects.len() >= 31);
    // A handful of fragments have fields that no version of the schema had.
    assert!(tally.ignored.len() < 10);
}

/// The objects anywhere inside a document.
fn objects_within<'a>(node: &'a Node, found: &mut Vec<&'a Node>) {
    if node.get("apiVersion").is_some() && node.get("kind").is_some() {
        found.push(node);
    } else if let Some(map) = node.as_map() {
        map.iter().for_each(|entry| objects_within(&entry.node, found));
    } else {
        node.as_list().unwrap_or_default().iter().for_each(|item| objects_within(item, found));
    }
}

#[test]
fn every_object_inside_a_scripted_change_is_read() {
    let Some(root) = corpus() else { return };
    let mut read = 0;
    for group in ["push", "wire"] {
        for path in yaml_files(&root.join("xds").join(group), &|name| name == "scenario.yaml") {
            for document in documents(&path) {
                let mut found = Vec::new();
                objects_within(&document, &mut found);
                for node in found {
                    Object::decode(node, Options::lenient())
                        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                    read += 1;
                }
            }
        }
    }
    assert!(read > 50, "{read}");
}

#[test]
fn input_that_once_broke_a_fuzzer_is_survived() {
    let Some(root) = corpus() else { return };
    let mut files = Vec::new();
    let mut folders = vec![root.join("fuzz-regressions")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    assert!(!files.is_empty());
    for path in files {
        for outcome in decode_documents(std::fs::read(&path).unwrap(), &Limits::default(), Options::watch()) {
            let error = outcome.err().map(|error| error.to_string());
            assert!(error.is_none_or(|words| !words.is_empty()), "{}", path.display());
        }
    }
}
