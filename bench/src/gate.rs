//! Whether two subjects told their proxies the same.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use canopus_proto::{Any, descriptors, json};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use xxhash_rust::xxh3::xxh3_64;

use crate::client::{Fleet, Kind};

/// Examples that are kept of each kind of difference.
const EXAMPLES: usize = 5;

/// What all proxies have at one moment.
pub(crate) struct Picture {
    /// A hash of the names each proxy has, by kind.
    names: Vec<[u64; 4]>,
    /// All that the proxies have which keep it.
    witnesses: BTreeMap<usize, BTreeMap<(Kind, String), Bytes>>,
}

/// How two pictures differ.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Verdict {
    /// Proxies that were looked at.
    pub(crate) proxies: usize,
    /// Proxies that have other names of some kind.
    pub(crate) proxies_with_other_names: usize,
    /// Resources of one proxy in each namespace.
    pub(crate) resources: usize,
    /// Compared resources whose bytes are equal.
    pub(crate) equal_bytes: usize,
    /// Compared resources whose messages are equal, though their bytes differ.
    pub(crate) equal_messages: usize,
    /// Resources that say something else, with the first field in which they do; some of them.
    pub(crate) different: Vec<String>,
    /// How many those are.
    pub(crate) different_in_all: usize,
    /// Names that only one of them has; some of them.
    pub(crate) only_one_has: Vec<String>,
}

impl Verdict {
    /// Whether every proxy has the same names from both.
    pub(crate) fn passed(&self) -> bool {
        self.proxies_with_other_names == 0 && self.only_one_has.is_empty()
    }

    /// In a line.
    pub(crate) fn line(&self) -> String {
        let Self { proxies, proxies_with_other_names: other, resources, .. } = self;
        let mut line =
            format!("names differ for {other} of {proxies} proxies; of {resources} resources compared ");
        line += &format!("{} equal in bytes, {} in meaning, ", self.equal_bytes, self.equal_messages);
        line += &format!("{} differ", self.different_in_all);
        for example in self.only_one_has.iter().chain(&self.different) {
            line += &format!("\n    {example}");
        }
        line
    }
}

impl Picture {
    /// What a fleet has now.
    pub(crate) fn new(fleet: &Fleet) -> Self {
        let mut picture = Self { names: Vec::new(), witnesses: BTreeMap::new() };
        for index in 0..fleet.len() {
            let proxy = fleet.proxy(index);
            let record = fleet.record();
            picture.names.push(Kind::ALL.map(|kind| {
                let mut names: Vec<&str> =
                    proxy.held(kind).iter().map(|held| record.names.text(held.name)).collect();
                names.sort_unstable();
                xxh3_64(names.join("\n").as_bytes())
            }));
            let bodies: BTreeMap<_, _> = proxy
                .bodies()
                .map(|(kind, name, body)| ((kind, record.names.text(name).to_owned()), body.clone()))
                .collect();
            if !bodies.is_empty() {
                picture.witnesses.insert(index, bodies);
            }
        }
        picture
    }

    /// How this differs from what the other subject's proxies have.
    pub(crate) fn compare(&self, other: &Self) -> Verdict {
        let differing = self.names.iter().zip(&other.names).filter(|(ours, theirs)| ours != theirs).count();
        let mut verdict = Verdict {
            proxies: self.names.len(),
            proxies_with_other_names: differing + self.names.len().abs_diff(other.names.len()),
            ..Verdict::default()
        };
        for (index, ours) in &self.witnesses {
            if let Some(theirs) = other.witnesses.get(index) {
                verdict.add(ours, theirs);
            }
        }
        verdict
    }
}

impl Verdict {
    fn add(&mut self, ours: &BTreeMap<(Kind, String), Bytes>, theirs: &BTreeMap<(Kind, String), Bytes>) {
        let all: BTreeSet<_> = ours.keys().chain(theirs.keys()).collect();
        for key in all {
            let (kind, name) = (key.0.name(), &key.1);
            match (ours.get(key), theirs.get(key)) {
                (Some(our), Some(their)) => self.add_pair(key, our, their),
                (our, _) => {
                    let who = if our.is_some() { "the first" } else { "the second" };
                    note(&mut self.only_one_has, format!("{kind} {name}: only {who} has it"));
                }
            }
        }
    }

    fn add_pair(&mut self, (kind, name): &(Kind, String), ours: &Bytes, theirs: &Bytes) {
        self.resources += 1;
        if ours == theirs {
            self.equal_bytes += 1;
            return;
        }
        match difference(&decoded(*kind, ours), &decoded(*kind, theirs)) {
            None => self.equal_messages += 1,
            Some(at) => {
                self.different_in_all += 1;
                note(&mut self.different, format!("{} {name}: {at}", kind.name()));
            }
        }
    }
}

/// Keeps an example, unless there are enough or there is one like it.
fn note(examples: &mut Vec<String>, example: String) {
    if examples.len() < EXAMPLES && !examples.contains(&example) {
        examples.push(example);
    }
}

/// A resource as JSON; null if it cannot be read.
fn decoded(kind: Kind, body: &Bytes) -> Value {
    let any = Any { type_url: kind.type_url().to_owned(), value: body.clone() };
    match descriptors::open(&any) {
        Some(Ok(message)) => json::write_dynamic(&message).to_json(),
        _ => Value::Null,
    }
}

/// Where two values differ first, and how.
fn difference(ours: &Value, theirs: &Value) -> Option<String> {
    let within = |name: &str, ours: &Value, theirs: &Value| {
        difference(ours, theirs).map(|deeper| format!("/{name}{deeper}"))
    };
    match (ours, theirs) {
        (Value::Object(our), Value::Object(their)) => {
            let names: BTreeSet<_> = our.keys().chain(their.keys()).collect();
            let of =
                |map: &serde_json::Map<String, Value>, name: &str| map.get(name).cloned().unwrap_or_default();
            names.into_iter().find_map(|name| within(name, &of(our, name), &of(their, name)))
        }
        (Value::Array(our), Value::Array(their)) if our.len() == their.len() => {
            let pairs = our.iter().zip(their).enumerate();
            pairs.into_iter().find_map(|(at, (our, their))| within(&at.to_string(), our, their))
        }
        _ if ours == theirs => None,
        _ => Some(format!(": {} and {}", short(ours), short(theirs))),
    }
}

fn short(value: &Value) -> String {
    value.to_string().chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use canopus_proto::Message as _;
    use canopus_proto::envoy::config::cluster::v3::Cluster;
    use serde_json::json;

    use super::*;

    fn picture(clusters: &[(&str, &str)]) -> Picture {
        let bodies = clusters.iter().map(|(name, stat)| {
            let cluster =
                Cluster { name: (*name).into(), alt_stat_name: (*stat).into(), ..Default::default() };
            ((Kind::Cds, (*name).to_owned()), Bytes::from(cluster.encode_to_vec()))
        });
        let names = clusters.iter().map(|(name, _)| *name).collect::<Vec<_>>().join("\n");
        Picture {
            names: vec![[xxh3_64(names.as_bytes()), 0, 0, 0]],
            witnesses: [(0, bodies.collect())].into(),
        }
    }

    #[test]
    fn equal_pictures_pass() {
        let verdict = picture(&[("a", ""), ("b", "")]).compare(&picture(&[("a", ""), ("b", "")]));
        assert!(verdict.passed());
        assert_eq!((verdict.resources, verdict.equal_bytes), (2, 2));
    }

    #[test]
    fn name_that_one_lacks_is_named() {
        let verdict = picture(&[("a", ""), ("b", "")]).compare(&picture(&[("a", "")]));
        assert!(!verdict.passed());
        assert_eq!(verdict.only_one_has, ["CDS b: only the first has it"]);
    }

    #[test]
    fn field_that_differs_is_named() {
        let verdict = picture(&[("a", "x")]).compare(&picture(&[("a", "y")]));
        assert!(verdict.passed(), "names are the same");
        assert_eq!(verdict.different, [r#"CDS a: /altStatName: "x" and "y""#]);
    }

    #[test]
    fn first_difference_is_found_in_lists_and_absent_fields() {
        assert_eq!(difference(&json!({"a": [1, 2]}), &json!({"a": [1, 3]})).unwrap(), "/a/1: 2 and 3");
        assert_eq!(difference(&json!({"a": {"b": 1}}), &json!({"a": {}})).unwrap(), "/a/b: 1 and null");
        assert_eq!(difference(&json!([1]), &json!([1, 2])).unwrap(), ": [1] and [1,2]");
        assert_eq!(difference(&json!({"a": 1}), &json!({"a": 1})), None);
    }
}
