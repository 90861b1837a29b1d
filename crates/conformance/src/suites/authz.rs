//! `istioctl experimental authz check` of recorded configuration dumps.

use canopus_base::tree::Node;

use super::Suite;
use crate::case::{Case, Outcome};
use crate::compare::{Difference, text};
use crate::dump::Dump;
use crate::tool;

pub(super) struct Authz;

impl Suite for Authz {
    fn name(&self) -> &str {
        "istioctl-authz"
    }

    fn run(&self, case: &Case, _: &Dump) -> Outcome {
        compare(case).into()
    }
}

fn compare(case: &Case) -> anyhow::Result<Vec<Difference>> {
    let given = case.entry.get("args").and_then(Node::as_list).unwrap_or_default();
    let mut arguments = vec!["x", "authz", "check"];
    arguments.extend(given.iter().filter_map(Node::as_str));
    let output = tool::run(&arguments, &case.corpus.absolute(&case.path("")), "")?;
    let fails = case.entry.get("fails").and_then(Node::as_bool).unwrap_or_default();
    let mut found = Vec::new();
    if fails == (output.code == Some(0)) {
        found.push(Difference::new(
            "/exitCode",
            if fails { "a failure" } else { "0" },
            format!("{:?}", output.code),
        ));
    }
    found.extend(text::difference(case.text("stdout").unwrap_or_default(), &output.stdout));
    found.extend(text::difference(case.text("stderr").unwrap_or_default(), &output.stderr));
    Ok(found)
}
