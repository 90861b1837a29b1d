//! `istioctl proxy-config` of recorded configuration dumps.

use anyhow::Context as _;
use canopus_base::tree::Limits;
use canopus_base::yaml;

use super::Suite;
use crate::case::{Case, Outcome};
use crate::compare::tree::Rules;
use crate::compare::{Difference, text, tree};
use crate::dump::Dump;
use crate::tool;

pub(super) struct ProxyConfig;

impl Suite for ProxyConfig {
    fn name(&self) -> &str {
        "istioctl-proxy-config"
    }

    fn run(&self, case: &Case, _: &Dump) -> Outcome {
        compare(case).into()
    }
}

fn compare(case: &Case) -> anyhow::Result<Vec<Difference>> {
    let view = case.text("view").context("no view")?;
    let view = view.split(" (").next().unwrap_or_default().replace("-f <file>", "");
    let input = case.text("input").context("no input")?;
    let mut arguments = vec!["proxy-config"];
    // Endpoints of a configuration dump are those that the control plane sent.
    arguments.extend(view.split_whitespace().map(|word| if word == "endpoint" { "eds" } else { word }));
    arguments.extend(["-f", input]);
    let output = tool::run(&arguments, &case.corpus.absolute(&case.path("")), "")?;
    if output.code != Some(0) {
        return Ok(vec![Difference::new("/exitCode", 0, format!("{:?}: {}", output.code, output.stderr))]);
    }
    let golden =
        String::from_utf8(case.corpus.bytes(&case.path(case.text("golden").context("no golden")?))?)?;
    if view.contains("-o ") {
        let parsed = |text: &str| yaml::parse_one(text, &Limits::default());
        return Ok(tree::difference(&parsed(&golden)?, &parsed(&output.stdout)?, &Rules::default()));
    }
    Ok(text::difference(&golden, &output.stdout))
}
