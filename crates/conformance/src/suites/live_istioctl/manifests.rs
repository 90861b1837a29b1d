//! The objects of `manifest generate`.

use std::fmt::Write as _;

use anyhow::{Context as _, bail};
use canopus_base::tree::{Limits, Node};
use canopus_base::yaml;
use serde_json::Value as Json;
use sha2::{Digest as _, Sha256};

use super::super::rendered;
use super::{CHARTS, INPUTS, words};
use crate::case::Case;
use crate::compare::Difference;
use crate::tool;

/// How many bytes of a hash were recorded.
const HASH_BYTES: usize = 8;

/// Renders a profile again: its objects, their order, and what each of them says.
pub(super) fn compare(case: &Case) -> anyhow::Result<Vec<Difference>> {
    let recorded = case.corpus.document(&case.path(&case.file))?;
    let command = recorded.get("command").and_then(Node::as_str).context("no command")?;
    let mut arguments = words(command);
    let charts = case.corpus.absolute(CHARTS.as_ref());
    arguments.extend(["--manifests".to_owned(), charts.to_string_lossy().into_owned()]);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let got = generate(&arguments, case)?;
    let expected = recorded.get("objects").and_then(Node::as_list).context("no objects")?;
    let line = |object: &Node, hash: &str| {
        let text = |key: &str| object.get(key).and_then(Node::as_str).unwrap_or_default();
        format!("{} {} {}/{} {hash}", text("apiVersion"), text("kind"), text("namespace"), text("name"))
    };
    let expected: Vec<String> = expected
        .iter()
        .map(|object| line(object, object.get("sha256").and_then(Node::as_str).unwrap_or_default()))
        .collect();
    let own: Vec<String> = got.iter().map(|object| summary(object, true)).collect();
    if expected == own {
        return Ok(Vec::new());
    }
    let full = case.file.with_extension("full.yaml");
    if case.corpus.exists(&case.path(&full)) {
        let golden = case.corpus.documents(&case.path(&full))?;
        let objects =
            got.iter().map(Node::to_json).filter(|object| object["kind"] != "CustomResourceDefinition");
        let found = rendered::difference(golden, objects.collect(), None)?;
        if !found.is_empty() {
            return Ok(found);
        }
    }
    Ok(lines(&expected, &own))
}

/// Where the objects of a command line differ from those that were recorded beside its output.
pub(super) fn listed(recorded: &Node, arguments: &[&str], case: &Case) -> anyhow::Result<Vec<Difference>> {
    let Some(expected) = recorded.get("objects").and_then(Node::as_list) else { return Ok(Vec::new()) };
    let got = generate(arguments, case)?;
    let expected: Vec<String> = expected
        .iter()
        .map(|object| {
            let text = |key: &str| object.get(key).and_then(Node::as_str).unwrap_or_default();
            format!("{} {}/{}", text("kind"), text("namespace"), text("name"))
        })
        .collect();
    let own: Vec<String> = got.iter().map(|object| summary(object, false)).collect();
    if expected != own {
        return Ok(lines(&expected, &own));
    }
    let documents = recorded.get("documents").and_then(Node::as_list).unwrap_or_default();
    if documents.is_empty() {
        return Ok(Vec::new());
    }
    let named: Vec<String> = documents.iter().map(|document| summary(document, false)).collect();
    let objects = got.iter().filter(|object| named.contains(&summary(object, false)));
    rendered::difference(documents.to_vec(), objects.map(Node::to_json).collect(), None)
}

fn generate(arguments: &[&str], case: &Case) -> anyhow::Result<Vec<Node>> {
    let output = tool::run(arguments, &case.corpus.absolute(&case.path(INPUTS)), "")?;
    if output.code != Some(0) {
        bail!("exit code {:?}: {}", output.code, output.stderr);
    }
    let documents = yaml::parse_all(&output.stdout, &Limits::default());
    let documents =
        documents.into_iter().map(|document| Ok(document?.node)).collect::<anyhow::Result<Vec<_>>>()?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}

/// Kind and name of an object, with its version and hash if these are compared too.
fn summary(object: &Node, is_long: bool) -> String {
    let text = |pointer: &str| object.pointer(pointer).and_then(Node::as_str).unwrap_or_default();
    let name = format!("{} {}/{}", text("/kind"), text("/metadata/namespace"), text("/metadata/name"));
    if !is_long {
        return name;
    }
    let digest = Sha256::digest(canonical(&object.to_json()));
    let mut hash = String::new();
    for byte in &digest[..HASH_BYTES] {
        let _ = write!(hash, "{byte:02x}");
    }
    format!("{} {name} {hash}", text("/apiVersion"))
}

/// JSON with sorted keys, without spaces, in ASCII: the form that was hashed.
fn canonical(object: &Json) -> String {
    let mut text = String::new();
    for c in object.to_string().chars() {
        if c.is_ascii() {
            text.push(c);
        } else {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                let _ = write!(text, "\\u{unit:04x}");
            }
        }
    }
    text
}

fn lines(expected: &[String], got: &[String]) -> Vec<Difference> {
    crate::compare::text::difference(&expected.join("\n"), &got.join("\n"))
}
