//! The cluster that was recorded: its objects, the webhooks of the default profile, a control plane outside of it, and the
//! proxies that are connected to that.

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use anyhow::{Context as _, bail};
use canopus_base::tree::{Limits, Node};
use canopus_base::yaml;
use canopus_proto::envoy::service::discovery::v3::DiscoveryRequest;
use canopus_proto::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use canopus_proto::google::rpc::Status;
use canopus_testkit::{Process, channel, eventually, free_port, http};
use serde_json::{Value as Json, json};
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;

use super::super::cluster_stage::{ClusterStage, PATIENCE};
use super::super::live::{RecordedProxy, World};
use super::CHARTS;
use crate::corpus::Corpus;
use crate::tool::{self, Output};

const SYSTEM: &str = "istio-system";

/// The name in the control plane's certificate.
const AUTHORITY: &str = "istiod.istio-system.svc";

/// What a proxy rejects with.
const REASON: &str = "Rejected by test: listener is bad";

/// The proxy without a configuration of its own, which one recording is about.
const BARE_PROXY: &str = "cart-2.shop";

pub(super) struct Stage {
    cluster: ClusterStage,
    plane: Plane,
    proxies: Vec<Proxy>,
    webhooks: Vec<Json>,
}

struct Plane {
    secure: SocketAddr,
    plain: SocketAddr,
    admin: SocketAddr,
    _process: Process,
    _directory: TempDir,
}

/// A connected proxy; it leaves when this is dropped.
struct Proxy(JoinHandle<()>);

impl Drop for Proxy {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Stage {
    pub(super) fn start(corpus: &Corpus) -> anyhow::Result<Self> {
        let world = World::read(corpus)?;
        let cluster = ClusterStage::start(corpus)?;
        apply_world(&cluster, &world)?;
        let webhooks = webhooks(corpus)?;
        cluster.apply(&webhooks)?;
        let plane = cluster.runtime.block_on(launch(&cluster))?;
        let mut stage = Self { cluster, plane, proxies: Vec::new(), webhooks };
        for proxy in &world.proxies {
            stage.connect(proxy)?;
        }
        stage.settle(world.proxies.len())?;
        Ok(stage)
    }

    /// Runs a recorded command line.
    pub(super) fn run(&self, arguments: &[&str], directory: &Path, input: &str) -> anyhow::Result<Output> {
        let is_plain = arguments.contains(&"--plaintext");
        let address = if is_plain { self.plane.plain } else { self.plane.secure }.to_string();
        let arguments: Vec<&str> =
            arguments.iter().map(|word| if *word == "<ADDRESS>" { address.as_str() } else { word }).collect();
        tool::run_in_cluster(&arguments, directory, input, &self.cluster.kubeconfig())
    }

    /// Brings the cluster to where a recording of this name began; recordings of tags and waypoints are sequences.
    pub(super) fn prepare(&self, name: &str, recorded: &str, directory: &Path) -> anyhow::Result<()> {
        let run = |arguments: &[&str]| -> anyhow::Result<()> {
            let output = self.run(arguments, directory, "")?;
            if output.code != Some(0) {
                bail!("{}: {}", arguments.join(" "), output.stderr);
            }
            Ok(())
        };
        if name.starts_with("tag-") {
            let hooks = "mutatingwebhookconfigurations";
            self.cluster.kubectl(&["delete", hooks, "--selector=istio.io/tag"])?;
            if name.ends_with("-empty") {
                self.cluster.kubectl(&["delete", hooks, "--selector=istio.io/rev"])?;
            } else {
                self.cluster.apply(&self.webhooks)?;
            }
            let has_tag = ["after-set", "remove-prod", "overwrite", "again"];
            if has_tag.iter().any(|word| name.contains(word)) {
                run(&["tag", "set", "prod", "--revision", "default", "--overwrite", "-y"])?;
            }
        } else if name.starts_with("waypoint-") {
            self.cluster.kubectl(&[
                "delete",
                "gateways.gateway.networking.k8s.io",
                "--all",
                "--all-namespaces",
            ])?;
            self.cluster.kubectl(&["label", "namespace", "--all", "istio.io/use-waypoint-"])?;
            if recorded.split(|c: char| !c.is_alphanumeric() && c != '-').any(|word| word == "wt") {
                run(&["waypoint", "apply", "--name", "wt", "-n", "shop"])?;
            }
            if name.ends_with("-again") {
                run(&["waypoint", "apply", "-n", "shop"])?;
            }
        } else {
            self.cluster.apply(&self.webhooks)?;
        }
        Ok(())
    }

    fn connect(&mut self, proxy: &RecordedProxy) -> anyhow::Result<()> {
        let handle = self.cluster.runtime.block_on(connect(&self.cluster, &self.plane, proxy))?;
        self.proxies.push(Proxy(self.cluster.runtime.spawn(handle)));
        Ok(())
    }

    /// Waits until as many proxies have answered everything they were sent.
    fn settle(&self, proxies: usize) -> anyhow::Result<()> {
        self.cluster.runtime.block_on(async {
            let settled = async || {
                let answer = http::get(self.plane.admin, "/debug/syncz").await?.ok()?;
                let all: Json = serde_json::from_str(&answer)?;
                let all = all.as_array().context("no list")?;
                let is_answered = |resource: &Json| {
                    resource["sent"] == resource["acked"] || !resource["lastError"].is_null()
                };
                let is_settled = |proxy: &Json| {
                    let types = proxy["resources"].as_object();
                    types.is_some_and(|types| types.len() >= 4 && types.values().all(is_answered))
                };
                let count = all.iter().filter(|proxy| is_settled(proxy)).count();
                (count == proxies).then_some(()).with_context(|| format!("{count} proxies: {answer}"))
            };
            eventually("the proxies", PATIENCE, settled).await
        })
    }

    /// Connects a further proxy, without the metadata of its configuration.
    pub(super) fn connect_bare_proxy(&mut self, corpus: &Corpus) -> anyhow::Result<()> {
        let world = World::read(corpus)?;
        let mut proxy = world.proxies.get(1).context("no second proxy")?.clone();
        proxy.node.id = format!("sidecar~10.217.0.13~{BARE_PROXY}~shop.svc.cluster.local");
        if let Some(metadata) = &mut proxy.node.metadata {
            metadata.fields.remove("PROXY_CONFIG");
        }
        proxy.rejects.clear();
        self.connect(&proxy)
    }

    /// Lets the proxy that came last go.
    pub(super) fn disconnect_last(&mut self) {
        self.proxies.pop();
    }
}

/// Writes the recorded objects, less what an API server makes of them itself.
fn apply_world(cluster: &ClusterStage, world: &World) -> anyhow::Result<()> {
    let mut objects: Vec<Json> = world.objects.iter().map(|object| object.to_node().to_json()).collect();
    objects.retain(|object| object["kind"] != "GatewayClass" && object["metadata"]["name"] != "kubernetes");
    let mut later = Vec::new();
    for object in &mut objects {
        if let Some(metadata) = object["metadata"].as_object_mut() {
            for key in ["uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"] {
                metadata.remove(key);
            }
        }
        if object["kind"] == "Pod" {
            object["spec"]["containers"] = json!([{"name": "app", "image": "example.com/app"}]);
        }
        if object["kind"] == "Service"
            && let Some(spec) = object["spec"].as_object_mut()
        {
            // Addresses of the recorded cluster are not in the range of this one.
            if spec.get("clusterIP").is_some_and(|address| address != "None") {
                spec.remove("clusterIP");
                spec.remove("clusterIPs");
            }
            if spec.get("type").is_some_and(|kind| kind == "ExternalName") {
                spec.remove("ipFamilies");
                spec.remove("ipFamilyPolicy");
            }
        }
        if !object["status"].is_null() {
            later.push(object.clone());
            object["status"].take();
        }
    }
    objects.sort_by_key(|object| object["kind"] != "Namespace");
    cluster.apply(&objects)?;
    later.iter().filter(|object| object["kind"] == "Pod").try_for_each(|object| cluster.set_status(object))
}

/// The webhook configurations of the default profile.
fn webhooks(corpus: &Corpus) -> anyhow::Result<Vec<Json>> {
    let charts = corpus.absolute(CHARTS.as_ref());
    let charts = charts.to_string_lossy();
    let output = tool::run(&["manifest", "generate", "--manifests", &charts], Path::new("."), "")?;
    let documents = yaml::parse_all(&output.stdout, &Limits::default());
    let mut found = Vec::new();
    for document in documents {
        let object = document?.node.to_json();
        if object["kind"] == "MutatingWebhookConfiguration" {
            found.push(object);
        }
    }
    Ok(found)
}

async fn launch(cluster: &ClusterStage) -> anyhow::Result<Plane> {
    let directory = tempfile::Builder::new().prefix("canopus-live-istioctl-").tempdir()?;
    let mesh = directory.path().join("mesh.yaml");
    fs::write(&mesh, "accessLogFile: /dev/stdout\n")?;
    let address = || anyhow::Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?)));
    let (secure, plain, webhooks, admin, monitoring) =
        (address()?, address()?, address()?, address()?, address()?);
    let mut command = tool::canopusd()?;
    command.arg("discovery").arg("--kubeconfig").arg(cluster.kube.kubeconfig()).arg("--snapshot=");
    command.arg("--meshConfig").arg(mesh);
    for (flag, address) in [
        ("secureGRPCAddr", secure),
        ("grpcAddr", plain),
        ("httpsAddr", webhooks),
        ("httpAddr", admin),
        ("monitoringAddr", monitoring),
    ] {
        command.arg(format!("--{flag}={address}"));
    }
    command.current_dir(directory.path()).env("POD_NAME", "istiod-0").env("POD_NAMESPACE", SYSTEM);
    let mut process = Process::spawn("canopusd", &mut command, directory.path())?;
    let ready = async || http::get(admin, "/ready").await?.ok();
    process.eventually("canopusd's readiness", PATIENCE, ready).await?;
    // Accounts that tokens are made for: no controller makes them here.
    let accounts =
        ["istio-system/default", "istio-system/istiod", "istio-system/istio-reader-service-account"];
    let accounts: Vec<String> = accounts
        .iter()
        .filter_map(|account| account.split_once('/'))
        .map(|(namespace, name)| {
            let meta = json!({"name": name, "namespace": namespace});
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta}).to_string()
        })
        .collect();
    cluster.kube.apply(&accounts.join("\n---\n")).await?;
    // Tokens that the token controller of a cluster would have filled in.
    for account in ["istio-reader-service-account", "istiod"] {
        let token = cluster.kube.kubectl(&["create", "token", account, "--namespace=istio-system"]).await?;
        let secret = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": format!("{account}-istio-remote-secret-token"),
                "namespace": SYSTEM,
                "annotations": {"kubernetes.io/service-account.name": account},
            },
            "type": "kubernetes.io/service-account-token",
            "stringData": {"token": token.trim(), "ca.crt": cluster.kube.ca_pem()?},
        });
        cluster.kube.apply(&secret.to_string()).await?;
    }
    Ok(Plane { secure, plain, admin, _process: process, _directory: directory })
}

/// Opens the stream of a proxy; the future answers what comes over it for as long as it runs.
async fn connect(
    cluster: &ClusterStage,
    plane: &Plane,
    proxy: &RecordedProxy,
) -> anyhow::Result<impl Future<Output = ()> + Send + 'static> {
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": proxy.account, "namespace": proxy.namespace},
    });
    cluster.kube.apply(&account.to_string()).await?;
    let namespace = format!("--namespace={}", proxy.namespace);
    let token =
        cluster.kube.kubectl(&["create", "token", &proxy.account, &namespace, "--audience=istio-ca"]).await?;
    let root = eventually("the root certificate", PATIENCE, async || {
        let map = ["get", "configmap", "istio-ca-root-cert", "--namespace=shop", "--output=json"];
        let map: Json = serde_json::from_str(&cluster.kube.kubectl(&map).await?)?;
        map["data"]["root-cert.pem"].as_str().map(str::to_owned).context("no root")
    });
    let channel = channel(&root.await?, plane.secure, AUTHORITY, None).await?;
    let (requests, outbound) = mpsc::channel(64);
    let mut wishes: BTreeMap<String, (Vec<String>, bool)> = BTreeMap::new();
    // The clients of these recordings asked for neither extensions nor secrets.
    let is_asked =
        |type_url: &str| !type_url.ends_with(".TypedExtensionConfig") && !type_url.ends_with(".Secret");
    for (type_url, names) in proxy.subscriptions.iter().filter(|(type_url, _)| is_asked(type_url)) {
        wishes.insert(type_url.clone(), (names.clone(), proxy.rejects.contains(type_url)));
        let node = (wishes.len() == 1).then(|| proxy.node.clone());
        let request = DiscoveryRequest {
            node,
            type_url: type_url.clone(),
            resource_names: names.clone(),
            ..DiscoveryRequest::default()
        };
        requests.send(request).await.context("the queue is closed")?;
    }
    let mut outbound = tonic::Request::new(ReceiverStream::new(outbound));
    outbound.metadata_mut().insert("authorization", format!("Bearer {}", token.trim()).parse()?);
    let mut client = AggregatedDiscoveryServiceClient::new(channel).max_decoding_message_size(usize::MAX);
    let mut inbound = client.stream_aggregated_resources(outbound).await?.into_inner();
    Ok(async move {
        while let Ok(Some(response)) = inbound.message().await {
            let (names, rejects) = wishes.get(&response.type_url).cloned().unwrap_or_default();
            let error = rejects.then(|| Status { code: 13, message: REASON.to_owned(), ..Status::default() });
            let answer = DiscoveryRequest {
                type_url: response.type_url,
                resource_names: names,
                version_info: if rejects { String::new() } else { response.version_info },
                response_nonce: response.nonce,
                error_detail: error,
                ..DiscoveryRequest::default()
            };
            if requests.send(answer).await.is_err() {
                return;
            }
        }
    })
}

/// A tree with what control planes say of themselves as a tree, too, as of a build that knows nothing of itself.
pub(super) fn comparable(node: Node) -> Node {
    fn walk(value: &mut Json) {
        match value {
            Json::String(text) if text.starts_with('{') => {
                if let Ok(tree @ Json::Object(_)) = serde_json::from_str(text) {
                    *value = tree;
                    walk(value);
                }
            }
            Json::Object(map) => {
                map.values_mut().for_each(walk);
                if map.contains_key("golang_version") {
                    map.values_mut().for_each(|value| *value = json!("unknown"));
                }
            }
            Json::Array(items) => items.iter_mut().for_each(walk),
            _ => {}
        }
    }
    let mut json = in_order(node).to_json();
    walk(&mut json);
    Node::from(json)
}

/// Lists in an order of their own: what a control plane lists comes from a map.
fn in_order(node: Node) -> Node {
    let mut json = node.to_json();
    let key = |item: &Json| {
        let name = item.pointer("/node/id").or_else(|| item.get("proxy")).or_else(|| item.get("ID"));
        name.and_then(Json::as_str).unwrap_or_default().to_owned()
    };
    let sort = |list: Option<&mut Json>| {
        if let Some(items) =
            list.and_then(Json::as_array_mut).filter(|items| items.iter().all(Json::is_object))
        {
            items.sort_by_key(key);
        }
    };
    sort(json.get_mut("resources"));
    sort(json.get_mut("dataPlaneVersion"));
    sort(Some(&mut json));
    Node::from(json)
}
