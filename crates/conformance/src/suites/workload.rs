//! The files that `istioctl experimental workload entry configure` writes, with a real API server to ask.

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use serde_json::json;

use super::Suite;
use super::cluster_stage::{ClusterStage, SharedStage};
use crate::case::{Case, Outcome};
use crate::compare::{Difference, text};
use crate::dump::Dump;
use crate::tool;

const SYSTEM: &str = "istio-system";

#[derive(Default)]
pub(super) struct Workload {
    stage: SharedStage,
}

impl Suite for Workload {
    fn name(&self) -> &str {
        "istioctl-workload"
    }

    fn run(&self, case: &Case, _: &Dump) -> Outcome {
        self.stage.compare(case, compare)
    }
}

fn compare(case: &Case, stage: &ClusterStage) -> anyhow::Result<Vec<Difference>> {
    let directory = case.path(case.text("dir").context("no directory")?);
    let read = |name: &str| -> anyhow::Result<String> {
        Ok(String::from_utf8(case.corpus.bytes(&directory.join(name))?)?)
    };
    let words: Vec<&str> = case.text("args").context("no arguments")?.split_whitespace().collect();
    let revision = words.iter().position(|word| *word == "--revision").and_then(|at| words.get(at + 1));
    let mesh = if case.corpus.exists(&directory.join("meshconfig.yaml")) {
        read("meshconfig.yaml")?
    } else {
        "defaultConfig: {}".to_owned()
    };
    let mesh_map = revision.map_or_else(|| "istio".to_owned(), |revision| format!("istio-{revision}"));
    let map = |name: &str, namespace: &str, key: &str, text: &str| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": namespace}, "data": {key: text},
        })
    };
    stage.ensure_namespaces([SYSTEM, "bar"].into_iter())?;
    stage.apply(&[
        json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": "vm-serviceaccount", "namespace": "bar"},
        }),
        map("istio-ca-root-cert", "bar", "root-cert.pem", &read("root-cert.pem.golden")?),
        map(&mesh_map, SYSTEM, "mesh", &mesh),
    ])?;
    let written = tempfile::tempdir()?;
    let output_directory = written.path().to_string_lossy().into_owned();
    let mut arguments = vec!["experimental", "workload"];
    arguments
        .extend(words.iter().map(|word| if *word == "<dir>" { output_directory.as_str() } else { *word }));
    let output =
        tool::run_in_cluster(&arguments, &case.corpus.absolute(&directory), "", &stage.kubeconfig())?;
    let mut found = Vec::new();
    if output.code != Some(0) {
        found.push(Difference::new("/exitCode", 0, format!("{:?}: {}", output.code, output.stderr)));
        return Ok(found);
    }
    for file in case.corpus.files(&directory)? {
        let Some(name) = file.to_str().and_then(|name| name.strip_suffix(".golden")) else { continue };
        let got = fs::read_to_string(written.path().join(name)).with_context(|| name.to_owned())?;
        if name == "istio-token" {
            // The API server here issues tokens of its own.
            if got.split('.').count() != 3 {
                found.push(Difference::new("/istio-token", "a token", got));
            }
            continue;
        }
        let differences = text::difference(&read(&format!("{name}.golden"))?, &got).into_iter();
        found.extend(
            differences.map(|one| Difference {
                path: format!("{}: {}", Path::new(name).display(), one.path),
                ..one
            }),
        );
    }
    Ok(found)
}
