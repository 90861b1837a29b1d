//! What the injector answered to recorded requests.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use canopus_admission::injection::webhook::{self, Request, Surroundings};
use canopus_admission::injection::{Config, Injector, Values, apply_patch};
use canopus_admission::validation::{self, Answer};
use canopus_api::mesh_config::{self, ProxyTarget};
use canopus_api::{Object, Options, istio};
use canopus_base::tree::Node;
use canopus_proto::istio::mesh::v1alpha1::{MeshConfig, ProxyConfig};
use serde_json::{Value as Json, json};

use crate::case::Case;
use crate::compare::Difference;
use crate::compare::tree::{self, Rules};
use crate::record;
use crate::suites::inject::decode_patch;

/// The cluster that requests were recorded in.
struct RecordedCluster {
    proxy_configs: Vec<Arc<istio::ProxyConfig>>,
    is_native: bool,
}

impl Surroundings for RecordedCluster {
    fn proxy_config(&self, mesh: &MeshConfig, target: ProxyTarget<'_>) -> Option<ProxyConfig> {
        let configs = self.proxy_configs.iter().map(|config| &**config);
        Some(mesh_config::effective_proxy_config(mesh, configs, target))
    }

    fn native_sidecars(&self, cluster: &str, _: &str) -> bool {
        self.is_native && cluster == "Kubernetes"
    }

    fn namespace_annotations(&self, _: &str, _: &str) -> Option<BTreeMap<String, String>> {
        None
    }
}

/// Asks a recorded request again.
pub(super) fn replay(case: &Case) -> anyhow::Result<Vec<Difference>> {
    let recorded = record::read(&case.corpus, &case.path(&case.file))?;
    let request = recorded.get("request").context("no request")?;
    let path = request.get("path").and_then(Node::as_str).context("no path")?;
    let body = super::request_body(request).unwrap_or_default();
    let setup = recorded.get("setup").and_then(Node::as_str).unwrap_or("std");
    let (injector, cluster) = set_up(case, setup)?;
    let content_type = request.pointer("/headers/Content-Type").and_then(Node::as_str);
    let request = Request { path, content_type, body: body.as_bytes() };
    let answer = webhook::answer(&request, &injector, &cluster);
    let response = recorded.get("response").context("no response")?;
    let raw = recorded.pointer("/request/body/request/object").map(Node::to_json).unwrap_or_default();
    let others = response.get("alsoSeen").and_then(Node::as_list).unwrap_or_default();
    for other in others {
        if difference(other, &answer, &raw)?.is_empty() {
            return Ok(Vec::new());
        }
    }
    difference(response, &answer, &raw)
}

fn set_up(case: &Case, setup: &str) -> anyhow::Result<(Injector, RecordedCluster)> {
    let map = if setup == "custom" { "custom" } else { "std" };
    let file = case.path(Path::new("setup").join(format!("{map}-injector-configmap.yaml")));
    let map = case.corpus.document(&file)?;
    let data = |key: &str| map.pointer(&format!("/data/{key}")).and_then(Node::as_str).context("no data");
    let config = Config::read(data("config")?, &BTreeMap::new())?;
    let injector =
        Injector::new(config, Values::read(data("values")?)?, mesh_config::default_mesh_config(), "default");
    let objects = case.corpus.documents(&case.path(Path::new("setup/std-cluster-objects.yaml")))?;
    let mut proxy_configs = Vec::new();
    for object in objects {
        if let Ok(decoded) = Object::decode(&object, Options::watch())
            && let Object::ProxyConfig(config) = decoded.value
        {
            proxy_configs.push(config);
        }
    }
    Ok((injector, RecordedCluster { proxy_configs, is_native: setup != "nativeoff" }))
}

fn difference(response: &Node, answer: &webhook::Answer, raw: &Json) -> anyhow::Result<Vec<Difference>> {
    let mut body: Json = serde_json::from_slice(&answer.body).unwrap_or_default();
    let patch = body.pointer("/response/patch").and_then(Json::as_str).map(str::to_owned);
    let mut expected = response.clone();
    if let Some(message) = expected_message(&mut expected) {
        *message = canopus_base::tree::Value::from(sorted_names(message.as_str().unwrap_or_default())).into();
    }
    if let Some(Json::String(message)) = body.pointer_mut("/response/status/message") {
        *message = sorted_names(message);
    }
    // The patch is compared by what it makes of the pod.
    if patch.is_some()
        && let Some(recorded) = response.pointer("/body/response/patch")
    {
        body["response"]["patch"] = recorded.to_json();
    }
    let plain = Answer {
        status: answer.status,
        headers: answer.headers,
        body: if body.is_null() { answer.body.clone() } else { serde_json::to_vec(&body)? },
        outcome: validation::Outcome::default(),
    };
    let mut found = super::difference(&expected, &plain);
    if let Some(patched) = response.get("patchedObject") {
        let operations = decode_patch(&patch.context("no patch was answered")?)?;
        let got = apply_patch(raw, &operations).context("the patch does not apply")?;
        // Istio's patch does not fit what was sent, so there is no pod to compare with; ours must fit.
        if response.get("patchDoesNotApplyToInput").is_some() {
            return Ok(found);
        }
        found.extend(tree::difference(patched, &Node::from(got), &Rules::default()));
    }
    Ok(found)
}

fn expected_message(response: &mut Node) -> Option<&mut Node> {
    ["body", "response", "status", "message"].iter().try_fold(response, |node, key| node.get_mut(key))
}

/// A message with the names at its end sorted: their order came from a map of Go's.
fn sorted_names(message: &str) -> String {
    let Some((start, names)) = message.split_once("; have ") else { return message.to_owned() };
    let mut names: Vec<&str> = names.split(", ").collect();
    names.sort_unstable();
    format!("{start}; have {}", json!(names.join(", ")).as_str().unwrap_or_default())
}
