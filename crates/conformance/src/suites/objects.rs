//! A check across the corpus: every object that scenarios and samples give to a control plane can be read.
//!
//! One file is one case. Each object of a known kind must be read without a problem, and be the same after it was
//! written and read again.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use canopus_api::{Object, Options, decode_documents};
use canopus_base::tree::{Limits, Node};

use super::Suite;
use crate::case::{Case, Outcome};
use crate::compare::Difference;
use crate::corpus::Corpus;
use crate::corpus::has_extension;
use crate::dump::Dump;
use crate::layout::Layout;

pub(super) struct Objects;

impl Suite for Objects {
    fn name(&self) -> &str {
        "objects"
    }

    fn cases(&self, corpus: &Corpus) -> anyhow::Result<Vec<Case>> {
        let mut cases = Vec::new();
        for suite in corpus.suites()? {
            let layout = Layout::detect(&suite, corpus);
            if layout != Layout::Index && suite != "samples" {
                continue;
            }
            for file in corpus.files(Path::new(&suite))? {
                let path = Path::new(&suite).join(&file);
                if is_scenario_input(&file) || (layout == Layout::Inputs && has_objects(corpus, &path)?) {
                    cases.push(case(corpus, path));
                }
            }
        }
        Ok(cases)
    }

    fn run(&self, case: &Case, _: &Dump) -> Outcome {
        match case.corpus.bytes(&case.file) {
            Ok(text) => problems(&text).into(),
            Err(error) => Outcome::error(error),
        }
    }

    fn is_extra(&self) -> bool {
        true
    }
}

/// `kube.yaml`, `kube.<cluster>.yaml` and `config.yaml` of a scenario.
fn is_scenario_input(file: &Path) -> bool {
    let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    has_extension(file, "yaml") && (name.starts_with("kube.") || name == "config.yaml")
}

/// Whether a file of a sample has objects, rather than a template of them or the values of a chart.
fn has_objects(corpus: &Corpus, file: &Path) -> anyhow::Result<bool> {
    let content = corpus.bytes(file)?;
    let content = String::from_utf8_lossy(&content);
    Ok(has_extension(file, "yaml") && content.contains("apiVersion:") && !content.contains("{{"))
}

fn case(corpus: &Corpus, file: PathBuf) -> Case {
    Case {
        id: file.to_string_lossy().into_owned(),
        corpus: corpus.clone(),
        directory: Path::new("").into(),
        file: file.into(),
        entry: Node::default(),
        shared: Arc::default(),
    }
}

fn problems(text: &[u8]) -> Vec<Difference> {
    let mut found = Vec::new();
    for outcome in decode_documents(text, &Limits::default(), Options::lenient()) {
        match outcome {
            Ok(decoded) => found.extend(not_the_same_again(&decoded.value)),
            Err(error) if error.is_unknown_kind() => {}
            Err(error) => found.push(Difference::new("", "an object", error)),
        }
    }
    found
}

fn not_the_same_again(object: &Object) -> Option<Difference> {
    let name = object.key().to_string();
    let written = object.to_node();
    let difference =
        |got: &dyn std::fmt::Display| Some(Difference::new(name, "the same object read again", got));
    match Object::decode(&written, Options::lenient()) {
        Ok(again) if again.value == *object => None,
        Ok(_) => difference(&format_args!("another one: {}", written.to_json())),
        Err(error) => difference(&error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_is_fine_when_it_reads_and_comes_back() {
        let text = b"apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: a}\nspec: {hosts: [b]}\n\
            ---\nkind: Unheard\napiVersion: of/v1\n";
        assert_eq!(problems(text), []);
    }

    #[test]
    fn wrong_type_and_broken_document_are_problems() {
        let text = |spec: &str| {
            format!(
                "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{name: a}}\nspec: {spec}\n"
            )
        };
        assert_eq!(problems(text("{hosts: 1}").as_bytes()).len(), 1);
        assert_eq!(problems(b"a: [\n").len(), 1);
    }

    #[test]
    fn inputs_of_a_scenario_are_told_by_their_names() {
        for (file, expected) in [
            ("g/s/kube.yaml", true),
            ("g/s/kube.remote.yaml", true),
            ("g/s/config.yaml", true),
            ("g/s/scenario.yaml", false),
            ("g/s/kube.cds.json", false),
        ] {
            assert_eq!(is_scenario_input(Path::new(file)), expected, "{file}");
        }
    }
}
