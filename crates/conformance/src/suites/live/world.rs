//! The recorded world: its objects and its proxies.

use std::path::Path;

use anyhow::{Context, anyhow, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use canopus_api::{Kind, Object, Options};
use canopus_base::tree::{Node, Value};
use canopus_proto::envoy::config::core::v3::Node as ProxyNode;
use canopus_proto::json::{self, Unknown};
use rcgen::generate_simple_self_signed;
use serde_json::{Map, Value as Json, json};

use crate::corpus::Corpus;

/// When everything was created, as far as it matters: all at once, but for what a cluster begins with.
const CREATED: &str = "2026-01-02T00:00:00Z";
const BEGINNING: &str = "2026-01-01T00:00:00Z";

/// The address from outside that the load balancer of the recorded cluster gave to the gateway.
const EXTERNAL_ADDRESS: &str = "198.51.100.7";

/// The objects and proxies of a world.
pub(crate) struct World {
    pub(crate) objects: Vec<Object>,
    pub(crate) proxies: Vec<RecordedProxy>,
}

/// A proxy of the world.
#[derive(Clone)]
pub(crate) struct RecordedProxy {
    pub(crate) node: ProxyNode,
    pub(crate) namespace: String,
    pub(crate) account: String,
    /// What it asks for, in order.
    pub(crate) subscriptions: Vec<(String, Vec<String>)>,
    /// The types of which it rejects everything.
    pub(crate) rejects: Vec<String>,
}

impl World {
    pub(crate) fn read(corpus: &Corpus) -> anyhow::Result<Self> {
        let directory = Path::new("live-debug/world");
        let mut documents: Vec<Json> =
            corpus.documents(&directory.join("objects.yaml"))?.iter().map(Node::to_json).collect();
        let pods = corpus.document(&directory.join("pods.yaml"))?.to_json();
        let pods = pods["pods"].as_array().context("no pods")?.clone();
        documents.extend(cluster_documents());
        complete(&mut documents);
        let slices = slices(&documents, &pods);
        documents.extend(slices);
        documents.extend(pods.iter().map(pod));
        documents.push(certificate()?);
        let mut objects = Vec::new();
        for (number, mut document) in (1..).zip(documents.into_iter().filter(is_read)) {
            identify(&mut document, number);
            let decoded = Object::decode(&Node::from(document), Options::watch());
            objects.push(decoded.map_err(|error| anyhow!("{error}"))?.value);
        }
        let proxies = corpus.document(&directory.join("proxies.yaml"))?;
        let proxies = proxies.get("proxies").and_then(Node::as_list).context("no proxies")?;
        let proxies = proxies.iter().map(read_proxy).collect::<anyhow::Result<_>>()?;
        Ok(Self { objects, proxies })
    }
}

/// Whether the mesh reads objects of this kind at all.
fn is_read(document: &Json) -> bool {
    let text = |key: &str| document[key].as_str().unwrap_or_default();
    Kind::lookup(text("apiVersion"), text("kind")).is_ok()
}

/// What an API server fills in.
fn identify(document: &mut Json, number: u32) {
    let Some(meta) = document["metadata"].as_object_mut() else { return };
    let fields = [
        ("uid", json!(format!("00000000-0000-0000-0000-{number:012}"))),
        ("resourceVersion", json!(number.to_string())),
        ("generation", json!(1)),
        ("creationTimestamp", json!(CREATED)),
    ];
    for (key, value) in fields {
        meta.entry(key).or_insert(value);
    }
}

/// What the API server and controllers of the cluster fill in.
fn complete(documents: &mut [Json]) {
    for document in documents.iter_mut().filter(|document| document["kind"] == "Service") {
        if document["spec"]["type"] == "LoadBalancer" {
            document["status"] = json!({"loadBalancer": {"ingress": [{"ip": EXTERNAL_ADDRESS}]}});
        }
        let Some(spec) = document["spec"].as_object_mut() else { continue };
        spec.entry("ipFamilies").or_insert(json!(["IPv4"]));
        spec.entry("ipFamilyPolicy").or_insert(json!("SingleStack"));
        let ports = spec.get_mut("ports").and_then(Json::as_array_mut);
        for port in ports.into_iter().flatten().filter_map(Json::as_object_mut) {
            if let Some(number) = port.get("port").cloned() {
                port.entry("targetPort").or_insert(number);
            }
        }
    }
}

/// What a cluster begins with, and what Istio itself adds to it.
fn cluster_documents() -> Vec<Json> {
    let class = |name: &str, controller: &str, description: &str| {
        json!({
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": "GatewayClass",
            "metadata": {"name": name},
            "spec": {"controllerName": controller, "description": description},
            "status": {"conditions": [{
                "type": "Accepted",
                "status": "True",
                "observedGeneration": 1,
                "lastTransitionTime": CREATED,
                "reason": "Accepted",
                "message": "Handled by Istio controller",
            }]},
        })
    };
    let namespaces = ["default", "kube-system", "kube-public", "kube-node-lease", "istio-system"];
    let namespaces =
        namespaces.map(|name| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}));
    let mut all = vec![
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {
                "name": "kubernetes",
                "namespace": "default",
                "labels": {"component": "apiserver", "provider": "kubernetes"},
                "creationTimestamp": BEGINNING,
            },
            "spec": {
                "type": "ClusterIP",
                "clusterIP": "10.117.0.1",
                "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6450}],
            },
        }),
        class("istio", "istio.io/gateway-controller", "The default Istio GatewayClass"),
        class(
            "istio-remote",
            "istio.io/unmanaged-gateway",
            "Remote to this cluster. Does not deploy or affect configuration.",
        ),
    ];
    all.extend(namespaces);
    all
}

fn pod(entry: &Json) -> Json {
    let mut labels = entry["labels"].as_object().cloned().unwrap_or_default();
    labels.insert("security.istio.io/tlsMode".to_owned(), json!("istio"));
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": entry["name"], "namespace": entry["namespace"], "labels": labels},
        "spec": {"serviceAccountName": entry["serviceAccount"], "nodeName": entry["node"], "containers": []},
        "status": {
            "phase": "Running",
            "podIP": entry["ip"],
            "podIPs": [{"ip": entry["ip"]}],
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    })
}

/// What the endpoint controller makes of services and pods.
fn slices(documents: &[Json], pods: &[Json]) -> Vec<Json> {
    let services = documents.iter().filter(|document| document["kind"] == "Service");
    let selecting = services.filter_map(|service| Some((service, service["spec"]["selector"].as_object()?)));
    selecting
        .map(|(service, selector)| {
            let name = service["metadata"]["name"].as_str().unwrap_or_default();
            let selected = pods.iter().filter(|pod| {
                pod["namespace"] == service["metadata"]["namespace"] && selects(selector, &pod["labels"])
            });
            let endpoints: Vec<Json> = selected
                .map(|pod| {
                    let reference =
                        json!({"kind": "Pod", "name": pod["name"], "namespace": pod["namespace"]});
                    json!({
                        "addresses": [pod["ip"]],
                        "conditions": {"ready": true, "serving": true, "terminating": false},
                        "nodeName": pod["node"],
                        "targetRef": reference,
                    })
                })
                .collect();
            let ports = service["spec"]["ports"].as_array().into_iter().flatten().map(|port| {
                let target = if port["targetPort"].is_null() { &port["port"] } else { &port["targetPort"] };
                json!({"name": port["name"], "port": target, "protocol": "TCP"})
            });
            json!({
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "addressType": "IPv4",
                "metadata": {
                    "name": format!("{name}-slice"),
                    "namespace": service["metadata"]["namespace"],
                    "labels": {"kubernetes.io/service-name": name},
                },
                "endpoints": endpoints,
                "ports": ports.collect::<Vec<_>>(),
            })
        })
        .collect()
}

fn selects(selector: &Map<String, Json>, labels: &Json) -> bool {
    selector.iter().all(|(key, value)| labels.get(key) == Some(value))
}

/// The certificate of the gateway. Which one it is was not recorded.
fn certificate() -> anyhow::Result<Json> {
    let made = generate_simple_self_signed(["shop.example.com".to_owned()])?;
    let encoded = |text: String| STANDARD.encode(text);
    let data =
        json!({"tls.crt": encoded(made.cert.pem()), "tls.key": encoded(made.signing_key.serialize_pem())});
    Ok(json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "shop-cert", "namespace": "istio-system"},
        "type": "kubernetes.io/tls",
        "data": data,
    }))
}

fn read_proxy(entry: &Node) -> anyhow::Result<RecordedProxy> {
    let text = |key: &str| entry.get(key).and_then(Node::as_str).unwrap_or_default().to_owned();
    let metadata = entry.get("metadata").context("a proxy without metadata")?;
    let of_metadata = |key: &str| metadata.get(key).and_then(Node::as_str).unwrap_or_default().to_owned();
    let node = json!({"id": text("node"), "cluster": text("nodeCluster"), "metadata": metadata.to_json()});
    let node = json::read::<ProxyNode>(&Node::from(node), Unknown::Reject);
    let node = node.map_err(|error| anyhow!("{error:?}"))?.value;
    let Some(Value::Map(subscriptions)) = entry.get("subscriptions").map(|node| &node.value) else {
        bail!("a proxy without subscriptions");
    };
    let strings = |node: &Node| -> Vec<String> {
        let items = node.as_list().unwrap_or_default().iter();
        items.filter_map(|item| item.as_str().map(str::to_owned)).collect()
    };
    Ok(RecordedProxy {
        node,
        namespace: of_metadata("NAMESPACE"),
        account: of_metadata("SERVICE_ACCOUNT"),
        subscriptions: subscriptions.iter().map(|e| (e.key.to_string(), strings(&e.node))).collect(),
        rejects: entry.get("rejects").map(strings).unwrap_or_default(),
    })
}
