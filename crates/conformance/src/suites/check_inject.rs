//! Which webhooks would inject a pod, and why.

use std::path::Path;

use anyhow::Context;
use canopus_admission::selection;
use canopus_base::labels::Labels;
use canopus_base::tree::Node;
use serde_json::{Value as Json, json};

use super::Suite;
use crate::case::{Case, Outcome};
use crate::compare::Difference;
use crate::compare::tree::{self, Rules};
use crate::dump::Dump;

pub(super) struct CheckInject;

impl Suite for CheckInject {
    fn name(&self) -> &str {
        "istioctl-check-inject"
    }

    fn run(&self, case: &Case, _: &Dump) -> Outcome {
        compare(case).into()
    }
}

fn compare(case: &Case) -> anyhow::Result<Vec<Difference>> {
    let directory = case.path(Path::new("testdata"));
    let mut configurations = Vec::new();
    for file in case.corpus.files(&directory)? {
        configurations.push(case.corpus.document(&directory.join(file))?);
    }
    let labels = |of: &str, keys: [&str; 2]| {
        let entry = case.entry.get(of);
        let values =
            keys.map(|key| (key, entry.and_then(|entry| entry.get(key)?.as_str()).unwrap_or_default()));
        values.into_iter().filter(|(_, value)| !value.is_empty()).collect::<Labels>()
    };
    let pod = labels("pod", ["sidecar.istio.io/inject", "istio.io/rev"]);
    let namespace = labels("ns", ["istio-injection", "istio.io/rev"]);
    let verdicts = selection::explain(&configurations, &pod, &namespace);
    let got: Vec<Json> = verdicts
        .into_iter()
        .map(|verdict| {
            json!({"name": verdict.webhook, "revision": verdict.revision, "injected": verdict.injects, "reason": verdict.reason})
        })
        .collect();
    let expected =
        case.entry.get("expectedMessages").and_then(Node::as_list).context("nothing is expected")?;
    let expected: Vec<Json> = expected
        .iter()
        .map(|message| {
            let mut message = message.to_json();
            // A column that is not there is false.
            if message.get("injected").is_none() {
                message["injected"] = json!(false);
            }
            message
        })
        .collect();
    Ok(tree::difference(&Node::from(Json::Array(expected)), &Node::from(Json::Array(got)), &Rules::default()))
}
