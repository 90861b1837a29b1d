//! A check across the corpus: every golden file that is proto-JSON is read, encoded, decoded and written again.
//!
//! One file is one case. What the control plane itself wrote is canonical and must come back the same; what others
//! wrote may spell fields and numbers differently, and must only mean the same after a round trip.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use canopus_base::tree::{Node, Value};
use canopus_proto::descriptors::{self, DynamicMessage};
use canopus_proto::json::{self, Unknown};

use super::Suite;
use crate::case::{Case, Outcome};
use crate::compare::Difference;
use crate::compare::tree::{self, Rules};
use crate::corpus::Corpus;
use crate::corpus::has_extension;
use crate::dump::Dump;
use crate::layout::Layout;

pub(super) struct ProtoJson;

const ANY: &str = "google.protobuf.Any";
const CONFIG_DUMP: &str = "envoy.admin.v3.ConfigDump";
const MESH_CONFIG: &str = "istio.mesh.v1alpha1.MeshConfig";

impl Suite for ProtoJson {
    fn name(&self) -> &str {
        "proto-json"
    }

    fn cases(&self, corpus: &Corpus) -> anyhow::Result<Vec<Case>> {
        let mut files = Vec::new();
        for suite in corpus.suites()? {
            match Layout::detect(&suite, corpus) {
                Layout::Index => files.extend(resource_files(corpus, &suite)?),
                Layout::Cases => files.extend(golden_files(corpus, &suite)?),
                _ => {}
            }
            files.extend(config_dumps(corpus, &suite)?);
        }
        let defaults = PathBuf::from("defaults/meshconfig.yaml");
        if corpus.exists(&defaults) {
            files.push((defaults, MESH_CONFIG.to_owned()));
        }
        Ok(files.into_iter().map(|(file, message)| case(corpus, &file, message)).collect())
    }

    fn run(&self, case: &Case, dump: &Dump) -> Outcome {
        round_trip_file(case, dump).into()
    }

    fn is_extra(&self) -> bool {
        true
    }
}

/// A case whose entry is the full name of the message in the file.
fn case(corpus: &Corpus, file: &Path, message: String) -> Case {
    Case {
        id: file.to_string_lossy().into_owned(),
        corpus: corpus.clone(),
        directory: Path::new("").into(),
        file: file.into(),
        entry: Value::from(message).into(),
        shared: Arc::default(),
    }
}

/// The snapshots of scenarios: lists of named `Any`s.
fn resource_files(corpus: &Corpus, suite: &str) -> anyhow::Result<Vec<(PathBuf, String)>> {
    let files = corpus.files(Path::new(suite))?.into_iter();
    Ok(files
        .filter(|file| has_extension(file, "json"))
        .map(|file| (Path::new(suite).join(file), ANY.to_owned()))
        .collect())
}

/// The golden files of suites whose golden files are messages.
fn golden_files(corpus: &Corpus, suite: &str) -> anyhow::Result<Vec<(PathBuf, String)>> {
    let cases = Layout::Cases.cases(suite, corpus)?;
    let mut files = Vec::new();
    for case in &cases {
        let golden = case.text("golden").into_iter();
        let expected = case.entry.get("expect").and_then(Node::as_list).unwrap_or_default();
        for file in golden.chain(expected.iter().filter_map(Node::as_str)) {
            if let Some(message) = message_of_golden(suite, file, &case.shared) {
                files.push((case.path(file), message));
            }
        }
    }
    files.sort();
    files.dedup();
    files.retain(|(file, _)| corpus.exists(file));
    Ok(files)
}

fn message_of_golden(suite: &str, file: &str, shared: &Node) -> Option<String> {
    let message = match suite {
        "bootstrap" => "envoy.config.bootstrap.v3.Bootstrap",
        "ambient-authz" => "istio.security.Authorization",
        // The suite says it itself, by the first directory of the file.
        _ => {
            let kind = shared.get("outputType")?.get(file.split('/').next()?)?;
            kind.as_str()?.split_whitespace().next()?
        }
    };
    Some(message.to_owned())
}

/// What Envoy says about itself, wherever it was kept.
fn config_dumps(corpus: &Corpus, suite: &str) -> anyhow::Result<Vec<(PathBuf, String)>> {
    let mut files = Vec::new();
    for file in corpus.files(Path::new(suite))? {
        let path = Path::new(suite).join(&file);
        let readable = has_extension(&file, "json") || has_extension(&file, "yaml");
        if readable && is_config_dump(&corpus.bytes(&path)?) {
            files.push((path, CONFIG_DUMP.to_owned()));
        }
    }
    Ok(files)
}

/// Whether a file starts as a configuration dump does, in JSON or YAML.
fn is_config_dump(content: &[u8]) -> bool {
    let start: String = String::from_utf8_lossy(&content[..content.len().min(200)])
        .chars()
        .filter(|c| !c.is_whitespace() && !matches!(c, '"' | '\''))
        .collect();
    start.starts_with("{configs:[{@type:") || start.starts_with("configs:-@type:")
}

fn round_trip_file(case: &Case, dump: &Dump) -> anyhow::Result<Vec<Difference>> {
    let message = case.entry.as_str().context("the case names no message")?;
    let file = case.path(&case.file);
    let document = case.corpus.document(&file)?;
    if message == ANY {
        return round_trip_resources(&document, &file, dump);
    }
    let mut found = Vec::new();
    if !document.is_null() {
        let written = round_trip(message, &document, "", &mut found)?;
        dump.write(&file, || pretty(&written))?;
    }
    Ok(found)
}

fn round_trip_resources(document: &Node, file: &Path, dump: &Dump) -> anyhow::Result<Vec<Difference>> {
    let Some(resources) = document.as_list() else {
        bail!("{} is not a list of resources", file.display());
    };
    let mut found = Vec::new();
    let mut all = Vec::new();
    for (index, named) in resources.iter().enumerate() {
        let resource = named.get("resource").context("a resource is missing")?;
        let path = format!("/{index}/resource");
        let written = round_trip(ANY, resource, &path, &mut found)?;
        found.extend(
            tree::difference(resource, &written, &Rules::default())
                .into_iter()
                .map(|difference| Difference { path: format!("{path}{}", difference.path), ..difference }),
        );
        let mut named = named.clone();
        named.as_map_mut().context("a resource has no name")?.insert("resource", written);
        all.push(named);
    }
    dump.write(file, || pretty(&Node::from(Value::List(all))))?;
    Ok(found)
}

/// Reads, encodes, decodes, writes; then reads again, which must give the same bytes.
fn round_trip(message: &str, tree: &Node, path: &str, found: &mut Vec<Difference>) -> anyhow::Result<Node> {
    let descriptor = descriptors::message(message).with_context(|| format!("unknown message {message}"))?;
    let encoded = json::read_wire(&descriptor, tree, Unknown::Reject)?.value;
    let written = json::write_dynamic(&DynamicMessage::decode(descriptor.clone(), encoded.as_slice())?);
    let again =
        json::read_wire(&descriptor, &written, Unknown::Reject).context("reading what was written")?.value;
    if again != encoded {
        let sizes = (encoded.len(), again.len());
        found.push(Difference::new(
            path,
            format_args!("the same {} bytes after a round trip", sizes.0),
            format_args!("{} other bytes", sizes.1),
        ));
    }
    Ok(written)
}

fn pretty(node: &Node) -> String {
    format!("{:#}\n", node.to_json())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const CLUSTER: &str = r#"[{"name": "a", "resource": {
        "@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "a", "connectTimeout": TIMEOUT}}]"#;

    fn outcome(timeout: &str) -> Outcome {
        let root = tempfile::tempdir().unwrap();
        let scenario = root.path().join("xds/g/s");
        fs::create_dir_all(&scenario).unwrap();
        fs::write(root.path().join("xds/index.yaml"), "scenarios: []\n").unwrap();
        fs::write(scenario.join("p.cds.json"), CLUSTER.replace("TIMEOUT", timeout)).unwrap();
        let corpus = Corpus::open(root.path()).unwrap();
        let cases = ProtoJson.cases(&corpus).unwrap();
        assert_eq!(cases[0].id, "xds/g/s/p.cds.json");
        ProtoJson.run(&cases[0], &Dump::new(None))
    }

    #[test]
    fn canonical_resource_comes_back_the_same() {
        assert_eq!(outcome(r#""1s""#), Outcome::Pass);
    }

    #[test]
    fn other_spelling_of_a_resource_is_a_difference() {
        let expected = Difference::new("/0/resource/connectTimeout", "\"1.0s\"", "\"1s\"");
        assert_eq!(outcome(r#""1.0s""#), Outcome::Fail(vec![expected]));
    }

    #[test]
    fn resource_that_cannot_be_read_fails() {
        assert!(matches!(outcome("1"), Outcome::Fail(_)));
    }

    #[test]
    fn configuration_dump_is_told_by_its_start() {
        assert!(is_config_dump(b"{\n \"configs\": [\n  {\"@type\": \"x\"}]}"));
        assert!(is_config_dump(b"configs:\n- '@type': x\n"));
        assert!(!is_config_dump(b"{\"configs\": []}"));
        assert!(!is_config_dump(b"kind: ConfigMap\n"));
    }
}
