//! The catalogues of labels and annotations hold all that are published, as they are published.

use canopus_api::catalogue::{Key, Stability};
use canopus_api::{annotations, labels};
use canopus_base::tree::Node;

use crate::{corpus, documents};

fn check(file: &str, section: &str, find: fn(&str) -> Option<&'static Key>) {
    let Some(root) = corpus() else { return };
    let document = documents(&root.join("schema").join(file)).remove(0);
    let published = document.get(section).unwrap().as_list().unwrap();
    assert!(!published.is_empty());
    for entry in published {
        let text = |field| entry.get(field).and_then(Node::as_str);
        let name = text("name").unwrap();
        let key = find(name).unwrap_or_else(|| panic!("{name} is missing"));
        let truth = |field| entry.get(field).and_then(Node::as_bool).unwrap_or_default();
        let kinds = entry.get("resources").unwrap().as_list().unwrap();
        let kinds: Vec<_> = kinds.iter().filter_map(Node::as_str).collect();
        assert_eq!(key.kinds, kinds, "{name}");
        assert_eq!((key.deprecated, key.hidden), (truth("deprecated"), truth("hidden")), "{name}");
        // A key without a status is not better than alpha.
        let stability = match text("featureStatus") {
            Some("Stable") => Stability::Stable,
            Some("Beta") => Stability::Beta,
            _ => Stability::Alpha,
        };
        assert_eq!(key.stability, stability, "{name}");
    }
}

#[test]
fn every_published_label_is_known() {
    check("labels.yaml", "labels", labels::find);
}

#[test]
fn every_published_annotation_is_known() {
    check("annotations.yaml", "annotations", annotations::find);
}

#[test]
fn no_name_occurs_twice() {
    for keys in [labels::ALL, annotations::ALL] {
        let mut names: Vec<_> = keys.iter().map(|key| key.name).collect();
        names.sort_unstable();
        let repeats: Vec<_> = names.windows(2).filter(|pair| pair[0] == pair[1]).collect();
        assert!(repeats.is_empty(), "{repeats:?}");
    }
}
