//! `istioctl ztunnel-config` of a recorded dump.

use anyhow::{Context as _, bail};
use canopus_base::tree::{Limits, Node};
use canopus_base::yaml;

use super::Suite;
use crate::case::{Case, Outcome};
use crate::compare::tree::Rules;
use crate::compare::{Difference, text, tree};
use crate::dump::Dump;
use crate::tool;

/// The view that each golden file is of, by the column it is named in, and whether it is a document.
const VIEWS: [(&str, &str, bool); 13] = [
    ("wantOutputSecret", "certificate", false),
    ("wantOutputWorkload", "workload", false),
    ("wantOutputService", "service", false),
    ("wantOutputPolicy", "policy", false),
    ("wantOutputConn", "connections", false),
    ("wantOutputAll", "all", false),
    ("wantOutputSecretDump", "certificate", true),
    ("wantOutputWorkloadDump", "workload", true),
    ("wantOutputServiceDump", "service", true),
    ("wantOutputPolicyDump", "policy", true),
    ("wantOutputConnDump", "connections", true),
    ("wantOutputConfigDump", "all", true),
    ("wantOutputAllDump", "all", true),
];

pub(super) struct ZtunnelConfig;

impl Suite for ZtunnelConfig {
    fn name(&self) -> &str {
        "istioctl-ztunnel-config"
    }

    fn run(&self, case: &Case, _: &Dump) -> Outcome {
        compare(case).into()
    }
}

fn compare(case: &Case) -> anyhow::Result<Vec<Difference>> {
    let input = case.shared.get("input").and_then(Node::as_str).context("no input")?;
    let input = input.split_whitespace().next().unwrap_or(input);
    let mut found = Vec::new();
    let views = VIEWS.iter().filter_map(|view| Some((case.text(view.0)?, view.1, view.2)));
    let views: Vec<_> = views.collect();
    if views.is_empty() {
        bail!("no golden file of a known view");
    }
    for (golden, view, is_document) in views {
        let mut arguments = vec!["ztunnel-config", view, "-f", input];
        if is_document {
            arguments.extend(["-o", "json"]);
        }
        let named = if view == "connections" { case.text("connWorkload") } else { case.text("workloadName") };
        arguments.extend(named);
        let namespace =
            if view == "connections" { case.text("connNamespace") } else { case.text("configNamespace") };
        if let Some(namespace) = namespace {
            let flag = match view {
                "service" => "--service-namespace",
                "policy" => "--policy-namespace",
                _ => "--workload-namespace",
            };
            arguments.extend([flag, namespace]);
        }
        let output = tool::run(&arguments, &case.corpus.absolute(&case.path("")), "")?;
        if output.code != Some(0) {
            found.push(Difference::new("/exitCode", 0, format!("{:?}: {}", output.code, output.stderr)));
            continue;
        }
        let golden = String::from_utf8(case.corpus.bytes(&case.path(golden))?)?;
        if is_document {
            let parsed = |text: &str| yaml::parse_one(text, &Limits::default());
            found.extend(tree::difference(&parsed(&golden)?, &parsed(&output.stdout)?, &Rules::default()));
        } else {
            found.extend(text::difference(&golden, &output.stdout));
        }
    }
    Ok(found)
}
