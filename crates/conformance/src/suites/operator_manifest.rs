//! IstioOperators in, manifests out.

use anyhow::Context;
use canopus_install::{Input, Package, generate, merge_inputs};

use super::Suite;
use super::rendered;
use crate::case::{Case, Outcome};
use crate::compare::Difference;
use crate::dump::Dump;

pub(super) struct OperatorManifest;

impl Suite for OperatorManifest {
    fn name(&self) -> &str {
        "operator-manifest"
    }

    fn run(&self, case: &Case, _: &Dump) -> Outcome {
        compare(case).into()
    }
}

fn compare(case: &Case) -> anyhow::Result<Vec<Difference>> {
    let charts = case.text("charts").context("no charts")?;
    let package = Package::open(case.corpus.absolute(format!("charts/{charts}").as_ref()));
    let mut inputs = Vec::new();
    if let Some(file) = case.text("input") {
        let text = String::from_utf8(case.corpus.bytes(&case.path(file))?)?;
        inputs.push(Input { file: file.to_owned(), text });
    }
    let words: Vec<&str> = case.text("flags").unwrap_or_default().split_whitespace().collect();
    let set = |pair: &[&str]| (pair[0] == "--set").then(|| pair[1].to_owned());
    let flags: Vec<String> = words.windows(2).filter_map(set).collect();
    let operator = merge_inputs(&package, &inputs, &flags)?;
    let generated = generate(&package, &operator, words.contains(&"--force"), None)?;
    let golden = case.corpus.documents(&case.path(case.text("golden").context("no golden")?))?;
    let objects = generated.manifests.into_iter().map(|manifest| manifest.object).collect();
    rendered::difference(golden, objects, case.text("diffSelect"))
}
