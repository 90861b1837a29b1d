//! What a control plane has for a proxy against what the proxy has.

use anyhow::Context as _;
use canopus_base::tree::Node;

use super::Suite;
use crate::case::{Case, Outcome};
use crate::compare::Difference;
use crate::dump::Dump;
use crate::tool;

pub(super) struct CompareDumps;

impl Suite for CompareDumps {
    fn name(&self) -> &str {
        "istioctl-compare"
    }

    fn run(&self, case: &Case, _: &Dump) -> Outcome {
        compare(case).into()
    }
}

fn compare(case: &Case) -> anyhow::Result<Vec<Difference>> {
    let own = case.text("istiod").context("no istiod")?;
    let envoy = case.text("envoy").context("no envoy")?;
    let arguments = ["proxy-status", "--file", envoy, "--control-plane-file", own];
    let output = tool::run(&arguments, &case.corpus.absolute(&case.path("")), "")?;
    let wanted = case.entry.get("outputContains").and_then(Node::as_list).unwrap_or_default();
    let missing = wanted.iter().filter_map(Node::as_str).filter(|text| !output.stdout.contains(text));
    let printed = || format!("{}{}", output.stdout, output.stderr).chars().take(300).collect::<String>();
    Ok(missing.map(|text| Difference::new("/stdout", text, printed())).collect())
}
