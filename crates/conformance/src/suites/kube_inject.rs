//! `istioctl kube-inject` with files for all that it would ask a cluster for.

use std::path::Path;

use anyhow::Context;
use canopus_base::tree::Node;
use regex::Regex;

use super::Suite;
use crate::case::{Case, Outcome};
use crate::compare::{Difference, text};
use crate::dump::Dump;
use crate::tool;

pub(super) struct KubeInject;

impl Suite for KubeInject {
    fn name(&self) -> &str {
        "istioctl-kube-inject"
    }

    fn run(&self, case: &Case, _: &Dump) -> Outcome {
        compare(case).into()
    }
}

fn compare(case: &Case) -> anyhow::Result<Vec<Difference>> {
    let arguments = case.text("args").unwrap_or_default();
    let arguments: Vec<&str> = ["kube-inject"].into_iter().chain(arguments.split_whitespace()).collect();
    let output = tool::run(&arguments, &case.corpus.absolute(&case.path(Path::new(""))), "")?;
    let fails = case.entry.get("fails").and_then(Node::as_bool).unwrap_or_default();
    let mut found = Vec::new();
    if fails != (output.code != Some(0)) {
        let got = format!("code {:?}: {}", output.code, output.stderr);
        found.push(Difference::new("/exit", if fails { "a failure" } else { "success" }, got));
    }
    if let Some(expected) = case.text("expectRegexp") {
        let printed = format!("{}{}", output.stdout, output.stderr);
        if !Regex::new(expected)?.is_match(&printed) {
            found.push(Difference::new("/output", expected, printed));
        }
    }
    if let Some(golden) = case.text("golden") {
        let golden =
            String::from_utf8(case.corpus.bytes(&case.path(golden))?).context("the golden is no text")?;
        found.extend(text::difference(&golden, &output.stdout));
    }
    Ok(found)
}
