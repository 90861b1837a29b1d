//! Workloads in, workloads with proxies out, through `kube-inject` and through the webhook.
//!
//! The injector's configuration is rendered from Istio's charts with the values of the case. The webhook is asked about the
//! pod that the workload's controllers would make.

mod workload;

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, bail};
use canopus_admission::injection::webhook::{self, Request, Surroundings};
use canopus_admission::injection::{Config, Injector, Operation, Values, apply_patch};
use canopus_api::mesh_config::{self, ProxyTarget};
use canopus_base::tree::Node;
use canopus_install::{Input, Package, generate, merge_inputs};
use canopus_proto::istio::mesh::v1alpha1::{MeshConfig, ProxyConfig};
use parking_lot::Mutex;
use serde_json::{Value as Json, json};

use super::Suite;
use crate::case::{Case, Outcome};
use crate::compare::Difference;
use crate::compare::tree::{self, Rules};
use crate::dump::Dump;

/// The ConfigMaps that charts render, by the flags and the file they were rendered with.
type Settings = BTreeMap<(Vec<String>, Option<String>), Arc<ConfigMaps>>;

#[derive(Default)]
pub(super) struct Inject {
    rendered: Mutex<Settings>,
}

struct ConfigMaps {
    config: String,
    values: String,
    mesh: String,
}

impl Suite for Inject {
    fn name(&self) -> &str {
        "inject"
    }

    fn run(&self, case: &Case, _: &Dump) -> Outcome {
        self.compare(case).into()
    }
}

impl Inject {
    fn compare(&self, case: &Case) -> anyhow::Result<Vec<Difference>> {
        let maps = self.config_maps(case)?;
        let mut mesh = mesh_config::apply(&maps.mesh, &mesh_config::default_mesh_config())?.value;
        if let Some(overlay) = case.entry.get("meshConfigOverlay") {
            mesh = mesh_config::apply_node(overlay, &mesh)?.value;
        }
        let cluster = TestCluster::new(case)?;
        let injector = |revision: &str| -> anyhow::Result<Injector> {
            let config = Config::read(&maps.config, &BTreeMap::new())?;
            Ok(Injector::new(config, Values::read(&maps.values)?, mesh.clone(), revision))
        };
        let is_skipped = |key: &str| case.entry.get(key).and_then(Node::as_bool).unwrap_or_default();
        let input = case.text("input").context("no input")?;
        let text = String::from_utf8(case.corpus.bytes(&case.path(input))?)?;
        let mut found = Vec::new();
        if !is_skipped("skipKubeInject") {
            found.extend(kube_inject(case, &injector("")?, &text, cluster.is_native)?);
        }
        if !is_skipped("skipWebhook") && case.text("golden").is_some() {
            found.extend(ask_webhook(case, &injector("default")?, &text, &cluster)?);
        }
        Ok(found)
    }

    fn config_maps(&self, case: &Case) -> anyhow::Result<Arc<ConfigMaps>> {
        let set = case.entry.get("set").and_then(Node::as_list).unwrap_or_default();
        let set: Vec<String> = set.iter().filter_map(Node::as_str).map(str::to_owned).collect();
        let file = case.text("iop").map(str::to_owned);
        let key = (set, file);
        if let Some(known) = self.rendered.lock().get(&key) {
            return Ok(Arc::clone(known));
        }
        let maps = Arc::new(render(case, &key.0, key.1.as_deref())?);
        self.rendered.lock().insert(key, Arc::clone(&maps));
        Ok(maps)
    }
}

fn render(case: &Case, set: &[String], file: Option<&str>) -> anyhow::Result<ConfigMaps> {
    let package = Package::open(case.corpus.absolute("charts/live".as_ref()));
    let mut inputs = Vec::new();
    if let Some(file) = file {
        let text = String::from_utf8(case.corpus.bytes(&case.path(file))?)?;
        inputs.push(Input { file: file.to_owned(), text });
    }
    let mut flags = set.to_vec();
    flags.extend(["profile=empty", "components.pilot.enabled=true"].map(str::to_owned));
    let operator = merge_inputs(&package, &inputs, &flags)?;
    let generated = generate(&package, &operator, false, None)?;
    let data = |name: &str, key: &str| -> anyhow::Result<String> {
        let found = generated
            .manifests
            .iter()
            .find(|manifest| manifest.kind() == "ConfigMap" && manifest.name() == name);
        let text = found.and_then(|manifest| manifest.object.get("data")?.get(key)?.as_str());
        text.map(str::to_owned).with_context(|| format!("no {key} in ConfigMap {name}"))
    };
    Ok(ConfigMaps {
        config: data("istio-sidecar-injector", "config")?,
        values: data("istio-sidecar-injector", "values")?,
        mesh: data("istio", "mesh")?,
    })
}

/// Nodes and namespaces that the cases share.
struct TestCluster {
    is_native: bool,
    is_openshift: bool,
    namespaces: BTreeMap<String, BTreeMap<String, String>>,
}

impl TestCluster {
    fn new(case: &Case) -> anyhow::Result<Self> {
        let cluster = case.shared.pointer("/defaults/cluster").context("no cluster")?;
        let group = case.text("group").unwrap_or("main");
        let nodes = cluster.get(group).and_then(|group| group.get("nodes")?.as_list()).context("no nodes")?;
        let versions = nodes.iter().filter_map(|node| node.get("kubeletVersion")?.as_str());
        let flag = |name: &str| case.entry.get("features").and_then(|features| features.get(name)?.as_str());
        let is_native = match flag("ENABLE_NATIVE_SIDECARS") {
            Some("false") => false,
            Some("true") => true,
            _ => versions.into_iter().all(webhook::supports_native_sidecars),
        };
        let mut namespaces = BTreeMap::new();
        for namespace in cluster.get("namespaces").and_then(Node::as_list).unwrap_or_default() {
            let name = namespace.get("name").and_then(Node::as_str).unwrap_or_default();
            let annotations = namespace.get("annotations").and_then(Node::as_map);
            let annotations = annotations.into_iter().flatten();
            let annotations = annotations
                .filter_map(|entry| Some((entry.key.to_string(), entry.node.as_str()?.to_owned())));
            namespaces.insert(name.to_owned(), annotations.collect());
        }
        Ok(Self { is_native, is_openshift: flag("PLATFORM") == Some("openshift"), namespaces })
    }
}

impl Surroundings for TestCluster {
    fn proxy_config(&self, mesh: &MeshConfig, target: ProxyTarget<'_>) -> Option<ProxyConfig> {
        Some(mesh_config::effective_proxy_config(mesh, [], target))
    }

    fn native_sidecars(&self, _: &str, _: &str) -> bool {
        self.is_native
    }

    fn namespace_annotations(&self, _: &str, namespace: &str) -> Option<BTreeMap<String, String>> {
        self.is_openshift.then(|| self.namespaces.get(namespace).cloned().unwrap_or_default())
    }
}

fn kube_inject(
    case: &Case,
    injector: &Injector,
    text: &str,
    is_native: bool,
) -> anyhow::Result<Vec<Difference>> {
    let rewritten = injector.rewrite(text, is_native);
    if let Some(expected) = case.text("expectedErrorContains") {
        let got =
            rewritten.err().map_or_else(|| "no error".to_owned(), |error| error.to_string().to_lowercase());
        let differs = !got.contains(expected);
        return Ok(if differs { vec![Difference::new("/error", expected, got)] } else { Vec::new() });
    }
    let rewritten = rewritten?;
    let mut found = Vec::new();
    if let Some(expected) = case.text("expectedLogContains")
        && !rewritten.warnings.iter().any(|warning| warning.contains(expected))
    {
        found.push(Difference::new("/warnings", expected, rewritten.warnings.join("\n")));
    }
    let golden = case.corpus.documents(&case.path(case.text("golden").context("no golden")?))?;
    let got = canopus_base::yaml::parse_all(&rewritten.text, &canopus_base::tree::Limits::default());
    let got = got.into_iter().map(|document| Ok(document?.node)).collect::<anyhow::Result<Vec<_>>>()?;
    found.extend(tree::difference(&list(golden), &list(got), &Rules::default()));
    Ok(found)
}

fn list(documents: Vec<Node>) -> Node {
    canopus_base::tree::Value::List(documents).into()
}

fn ask_webhook(
    case: &Case,
    injector: &Injector,
    text: &str,
    cluster: &TestCluster,
) -> anyhow::Result<Vec<Difference>> {
    let golden =
        String::from_utf8(case.corpus.bytes(&case.path(case.text("golden").context("no golden")?))?)?;
    let (inputs, expected) = (workload::pods(text)?, workload::pods(&golden)?);
    if inputs.len() != expected.len() {
        bail!("{} workloads in, {} expected", inputs.len(), expected.len());
    }
    let mut found = Vec::new();
    for (input, expected) in inputs.into_iter().zip(expected) {
        let expected = Node::from(workload::without_status(expected.pod));
        let got = Node::from(workload::without_status(patched(injector, cluster, &input)?));
        let differences = tree::difference(&expected, &got, &Rules::default());
        found.extend(
            differences
                .into_iter()
                .map(|difference| Difference { path: format!("webhook: {}", difference.path), ..difference }),
        );
    }
    Ok(found)
}

/// The pod after the webhook's patch.
fn patched(injector: &Injector, cluster: &TestCluster, made: &workload::Made) -> anyhow::Result<Json> {
    let review = json!({
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "request": {"uid": "1", "namespace": made.namespace, "object": made.pod},
    });
    let body = review.to_string();
    let request = Request { path: "/inject", content_type: Some("application/json"), body: body.as_bytes() };
    let answer = webhook::answer(&request, injector, cluster);
    let response: Json = serde_json::from_slice(&answer.body)?;
    if response["response"]["allowed"] != true {
        bail!("{}", response["response"]["status"]["message"]);
    }
    let Some(patch) = response["response"]["patch"].as_str() else { return Ok(made.pod.clone()) };
    let operations = decode_patch(patch)?;
    apply_patch(&made.pod, &operations).context("the patch does not apply")
}

/// The operations of a patch as the answer carries it.
pub(super) fn decode_patch(patch: &str) -> anyhow::Result<Vec<Operation>> {
    use base64::Engine as _;
    let bytes = base64::engine::general_purpose::STANDARD.decode(patch)?;
    Ok(serde_json::from_slice(&bytes)?)
}
