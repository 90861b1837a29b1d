//! A cluster for command lines: an API server with Istio's and Gateway API's kinds.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use canopus_parts::Part;
use canopus_testkit::{KubeApi, eventually};
use parking_lot::Mutex;
use serde_json::Value as Json;
use tokio::runtime::Runtime;

use crate::case::{Case, Outcome};
use crate::compare::Difference;
use crate::corpus::Corpus;

/// Nothing on loopback takes this long; a busy machine might.
pub(super) const PATIENCE: Duration = Duration::from_secs(90);

/// Definitions of kinds, from several suites.
const DEFINITIONS: [&str; 2] =
    ["crd-validation/crds/crd-all.gen.yaml", "integration-inputs/pilot/testdata/gateway-api-crd.yaml"];

/// Outcome of cases that need an API server, where none is installed.
pub(super) const NO_CLUSTER: Outcome = Outcome::Missing("no Kubernetes is installed: cargo xtask parts");

pub(super) fn is_possible() -> bool {
    canopus_parts::find(Part::Kube).is_ok()
}

/// Recorded conditions have no reasons: they were never checked by an API server.
fn permit_empty_reasons(value: &mut Json) {
    match value {
        Json::Object(map) => {
            if let Some(reason) = map.get_mut("reason").and_then(Json::as_object_mut) {
                reason.remove("minLength");
                reason.remove("pattern");
            }
            map.values_mut().for_each(permit_empty_reasons);
        }
        Json::Array(items) => items.iter_mut().for_each(permit_empty_reasons),
        _ => {}
    }
}

/// The API server of one suite: started with its first case, and used by one case at a time.
#[derive(Default)]
pub(super) struct SharedStage(OnceLock<Result<Mutex<ClusterStage>, String>>);

impl SharedStage {
    /// Runs a case that compares output with what was recorded.
    pub(super) fn compare(
        &self,
        case: &Case,
        compare: impl FnOnce(&Case, &ClusterStage) -> anyhow::Result<Vec<Difference>>,
    ) -> Outcome {
        if !is_possible() {
            return NO_CLUSTER;
        }
        let start =
            || ClusterStage::start(&case.corpus).map(Mutex::new).map_err(|error| format!("{error:#}"));
        let compared = match self.0.get_or_init(start) {
            Ok(stage) => compare(case, &stage.lock()),
            Err(error) => Err(anyhow!("{error}")),
        };
        compared.into()
    }
}

/// A running API server.
pub(super) struct ClusterStage {
    pub(super) runtime: Runtime,
    pub(super) kube: KubeApi,
}

impl ClusterStage {
    /// Starts an API server and waits until it serves the kinds.
    pub(super) fn start(corpus: &Corpus) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let kube = runtime.block_on(async {
            let kube = KubeApi::start().await?;
            for file in DEFINITIONS {
                let documents = corpus.documents(Path::new(file))?.into_iter();
                let documents = documents.filter(|document| !document.is_null()).map(|document| {
                    let mut definition = document.to_json();
                    permit_empty_reasons(&mut definition);
                    definition.to_string()
                });
                kube.apply(&documents.collect::<Vec<_>>().join("\n---\n")).await.context(file)?;
            }
            let served = async || {
                let kinds = kube.kubectl(&["api-resources", "--output=name"]).await?;
                let wanted = ["gateways.gateway.networking.k8s.io", "workloadgroups.networking.istio.io"];
                wanted.iter().all(|kind| kinds.contains(kind)).then_some(()).context("kinds are missing")
            };
            eventually("the kinds", PATIENCE, served).await?;
            anyhow::Ok(kube)
        })?;
        Ok(Self { runtime, kube })
    }

    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.kube.kubeconfig().to_owned()
    }

    pub(super) fn kubectl(&self, arguments: &[&str]) -> anyhow::Result<String> {
        self.runtime.block_on(self.kube.kubectl(arguments))
    }

    /// Applies objects, in their order.
    pub(super) fn apply(&self, objects: &[Json]) -> anyhow::Result<()> {
        let documents: Vec<String> = objects.iter().map(Json::to_string).collect();
        self.runtime.block_on(self.kube.apply(&documents.join("\n---\n")))
    }

    /// Writes the status of an object that exists.
    pub(super) fn set_status(&self, object: &Json) -> anyhow::Result<()> {
        let text = |pointer: &str| object.pointer(pointer).and_then(Json::as_str).unwrap_or_default();
        let version = text("/apiVersion").rsplit_once('/');
        let kind = match version {
            Some((group, version)) => format!("{}.{version}.{group}", text("/kind").to_lowercase()),
            None => text("/kind").to_lowercase(),
        };
        let patch = serde_json::json!({"status": object["status"]}).to_string();
        let namespace = format!("--namespace={}", text("/metadata/namespace"));
        let patch = format!("--patch={patch}");
        let name = text("/metadata/name");
        self.kubectl(&["patch", &kind, name, &namespace, "--subresource=status", "--type=merge", &patch])?;
        Ok(())
    }

    pub(super) fn ensure_namespaces<'a>(&self, names: impl Iterator<Item = &'a str>) -> anyhow::Result<()> {
        let mut names: Vec<&str> = names.collect();
        names.sort_unstable();
        names.dedup();
        let objects: Vec<Json> = names
            .into_iter()
            .map(|name| serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))
            .collect();
        if objects.is_empty() { Ok(()) } else { self.apply(&objects) }
    }
}
