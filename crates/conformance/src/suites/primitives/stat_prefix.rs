//! Names of statistics and of spans.

use anyhow::Context;
use canopus_api::node::NodeKind;
use canopus_api::{Options, decode_documents};
use canopus_base::tree::{Limits, Node};
use canopus_engine::{Batch, Engine};
use canopus_envoy::bundle::Bundle;
use canopus_envoy::names;
use canopus_envoy::stat_name::Placeholders;
use canopus_mesh::proxy::Proxy;
use canopus_mesh::world::{MeshSettings, Objects, Origin, Settings};
use canopus_proto::Message;
use canopus_proto::envoy::config::core::v3::Node as ProxyNode;
use canopus_proto::envoy::config::listener::v3::{Filter, Listener, filter::ConfigType};
use canopus_proto::envoy::extensions::filters::network::tcp_proxy::v3::TcpProxy;
use canopus_proto::json::{self, Unknown};
use serde_json::{Value as Json, json};

use super::Check;
use super::row::{Row, equal};
use crate::compare::Difference;

/// The address of the proxy.
const ADDRESS: &str = "1.1.1.1";
const NAMESPACE: &str = "ns";

pub(super) fn check(test: &str) -> Option<Check> {
    Some(match test {
        "TestBuildStatPrefix" => outbound,
        "TestBuildInboundStatPrefix" => inbound,
        "TestTraceOperation" => operation,
        "TestInboundNetworkFilterStatPrefix" => inbound_filter,
        "TestOutboundNetworkFilterStatPrefix" => outbound_filter,
        _ => return None,
    })
}

fn number(row: Row<'_>, column: &str) -> anyhow::Result<u32> {
    Ok(u32::try_from(row.integer(column)?)?)
}

/// Name and namespace of a service of Kubernetes.
fn kubernetes<'a>(name: &'a str, namespace: &'a str) -> Option<(&'a str, &'a str)> {
    (!name.is_empty()).then_some((name, namespace))
}

fn outbound(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let (port, attributes) = (row.row("port")?, row.row("attributes")?);
    let placeholders = Placeholders {
        host: row.text("host")?,
        kubernetes: kubernetes(attributes.text("name")?, attributes.text("namespace")?),
        subset: row.text("subsetName")?,
        port: number(port, "port")?,
        port_name: port.text("name")?,
        target_port: Some(number(row, "targetPort")?),
    };
    Ok(equal("want", &row.text("want")?, &placeholders.fill(row.text("statPattern")?).as_str()))
}

fn inbound(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let service = row.row("tm")?;
    let (name, namespace) =
        (service.text("kubernetesServiceName")?, service.text("kubernetesServiceNamespace")?);
    let placeholders = Placeholders {
        host: service.text("instanceHostname")?,
        kubernetes: kubernetes(name, namespace),
        subset: row.text("subset")?,
        port: number(row, "port")?,
        port_name: row.text("portName")?,
        target_port: None,
    };
    Ok(equal("want", &row.text("want")?, &placeholders.fill(row.text("statPattern")?).as_str()))
}

fn operation(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let got = names::operation(row.text("host")?, number(row, "port")?);
    Ok(equal("match", &row.text("match")?, &got.as_str()))
}

fn inbound_filter(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let mut settings = MeshSettings::default();
    settings.mesh.inbound_cluster_stat_name = row.text("statPattern")?.to_owned();
    let service = service("v0.default.example.org", &[8888], json!([{ "address": ADDRESS }]));
    let listeners = listeners(settings, &[service])?;
    let got = stat_prefix(&listeners, "virtualInbound", |proxy| is_to(proxy, "inbound|8888||"));
    Ok(equal("expectedStatPrefix", &row.text("expectedStatPrefix")?, &got?.as_str()))
}

fn outbound_filter(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let mut settings = MeshSettings::default();
    settings.mesh.outbound_cluster_stat_name = row.text("statPattern")?.to_owned();
    let routes = row.get("routes").map(Node::to_json);
    let routed = json!({
        "apiVersion": "networking.istio.io/v1", "kind": "VirtualService",
        "metadata": {"name": "test.com", "namespace": NAMESPACE},
        "spec": {"hosts": ["test.com"], "tcp": [{"route": routes}]},
    });
    let service = service("test.com", &[9999, 8888], json!([{ "address": "2.2.2.2" }]));
    let listeners = listeners(settings, &[service, routed])?;
    let got = stat_prefix(&listeners, "10.10.0.1_9999", |_| true);
    Ok(equal("expectedStatPrefix", &row.text("expectedStatPrefix")?, &got?.as_str()))
}

/// A service whose ports carry TCP.
fn service(host: &str, ports: &[u32], endpoints: Json) -> Json {
    let port = |port: &u32| json!({"name": format!("tcp-{port}"), "number": port, "protocol": "TCP"});
    json!({
        "apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry",
        "metadata": {"name": "service", "namespace": NAMESPACE},
        "spec": {
            "hosts": [host], "addresses": ["10.10.0.1"], "resolution": "STATIC", "location": "MESH_INTERNAL",
            "ports": ports.iter().map(port).collect::<Vec<_>>(), "endpoints": endpoints,
        },
    })
}

/// The listeners of a sidecar in a world of these objects.
fn listeners(settings: MeshSettings, objects: &[Json]) -> anyhow::Result<Vec<Listener>> {
    let mut batch = Batch::new();
    let cluster = settings.cluster.clone();
    batch.set::<Settings>((), settings);
    for object in objects {
        for outcome in decode_documents(object.to_string(), &Limits::default(), Options::watch()) {
            let object = outcome?.value;
            batch.set::<Objects>(Origin::new(cluster.clone(), object.key()), object);
        }
    }
    let engine = Engine::new();
    engine.apply(batch);
    let node = json!({
        "id": format!("{}~{ADDRESS}~app.{NAMESPACE}~{NAMESPACE}.svc.cluster.local", NodeKind::Sidecar.as_str()),
        "metadata": {"NAMESPACE": NAMESPACE, "CLUSTER_ID": &*cluster, "INSTANCE_IPS": ADDRESS},
    });
    let node = json::read::<ProxyNode>(&Node::from(node), Unknown::Reject)?.value;
    let proxy = Proxy::new(&node, None).context("cannot read the node")?;
    let bundle = Bundle::generate(&engine.snapshot(), &proxy)?;
    let decoded = bundle.listeners.iter().map(|resource| Listener::decode(&*resource.body));
    decoded.collect::<Result<_, _>>().context("what was generated cannot be read")
}

fn is_to(proxy: &TcpProxy, cluster: &str) -> bool {
    use canopus_proto::envoy::extensions::filters::network::tcp_proxy::v3::tcp_proxy::ClusterSpecifier;
    proxy.cluster_specifier == Some(ClusterSpecifier::Cluster(cluster.to_owned()))
}

/// What the statistics of a listener's TCP proxy are called.
fn stat_prefix(
    listeners: &[Listener],
    name: &str,
    is_wanted: impl Fn(&TcpProxy) -> bool,
) -> anyhow::Result<String> {
    let listener = listeners.iter().find(|listener| listener.name == name);
    let listener = listener.with_context(|| format!("no listener {name}"))?;
    let filters = listener.filter_chains.iter().flat_map(|chain| &chain.filters);
    let found = filters.filter_map(tcp_proxy).find(is_wanted);
    Ok(found.context("no TCP proxy")?.stat_prefix)
}

fn tcp_proxy(filter: &Filter) -> Option<TcpProxy> {
    match &filter.config_type {
        Some(ConfigType::TypedConfig(config)) => config.unpack().ok(),
        _ => None,
    }
}
