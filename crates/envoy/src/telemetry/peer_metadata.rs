//! Exchange of workload metadata between the proxies at both ends of a connection.
//!
//! Istio's own proxy has filters for it. Others tell and learn what they can with filters of Envoy's, on requests alone.

pub(crate) mod stock;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use canopus_mesh::world::MeshSettings;
use canopus_proto::Any;
use canopus_proto::envoy::config::cluster::v3::Filter as ClusterFilter;
use canopus_proto::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;
use canopus_proto::google::protobuf::{ListValue, Struct, Value};
use canopus_proto::udpa::r#type::v1::TypedStruct;
use canopus_runtime::flags::{
    AMBIENT_ENABLE_BAGGAGE, PILOT_ENABLE_METADATA_EXCHANGE, PILOT_MX_ADDITIONAL_LABELS,
};

use crate::audience::Build;
use crate::env::{Class, Env};
use crate::filter::{Filters, packed_http_filter};

const NAME: &str = "istio.metadata_exchange";
const PEER_METADATA: &str = "io.istio.http.peer_metadata.Config";
const UPSTREAM_BAGGAGE: &str = "envoy.extensions.network_filters.peer_metadata.UpstreamConfig";
const TUNNEL_BAGGAGE: &str = "envoy.extensions.network_filters.peer_metadata.Config";
const METADATA_EXCHANGE: &str = "envoy.tcp.metadataexchange.config.MetadataExchange";

/// Whether a proxy exchanges metadata over HTTP: whether it is Istio's own.
pub(crate) fn is_known(build: &Build) -> bool {
    build.has(PEER_METADATA)
}

/// Learns the peer's workload from headers, and tells the own.
pub(crate) fn http(env: &Env<'_>, class: Class, in_mesh_only: bool) -> Option<HttpFilter> {
    if !env.flag(PILOT_ENABLE_METADATA_EXCHANGE) {
        return None;
    }
    if !is_known(&env.audience.build) {
        return stock::http(env, class, in_mesh_only);
    }
    let end = match class {
        Class::Inbound => End::Server,
        Class::Outbound | Class::Gateway if in_mesh_only => End::ClientInMesh,
        Class::Outbound | Class::Gateway => End::Client,
    };
    let labels = env.flag(PILOT_MX_ADDITIONAL_LABELS);
    Some(if labels.is_empty() { USUAL[end as usize].clone() } else { exchange(end, labels) })
}

/// Which end of a request exchanges metadata.
#[derive(Clone, Copy)]
enum End {
    /// The one that answers.
    Server,
    /// The one that asks.
    Client,
    /// The one that asks, telling services of the mesh alone.
    ClientInMesh,
}

/// The filter of each end, without labels that users want exchanged besides.
static USUAL: LazyLock<[HttpFilter; 3]> =
    LazyLock::new(|| [End::Server, End::Client, End::ClientInMesh].map(|end| exchange(end, &[])));

fn exchange(end: End, labels: &[String]) -> HttpFilter {
    let method = |name: &str, config: Value| structure([(name, config)]);
    let empty = || Value::from(Struct::default());
    let discovery = list([method("istio_headers", empty()), method("workload_discovery", empty())]);
    let headers = match end {
        End::ClientInMesh => structure([("skip_external_clusters", true.into())]),
        End::Server | End::Client => empty(),
    };
    let propagation = list([method("istio_headers", headers)]);
    let fields = match end {
        End::Server => [("downstream_discovery", discovery), ("downstream_propagation", propagation)],
        End::Client | End::ClientInMesh => {
            [("upstream_discovery", discovery), ("upstream_propagation", propagation)]
        }
    };
    packed_http_filter(NAME, typed_struct(labels, PEER_METADATA, fields))
}

/// Whether a proxy can exchange metadata on connections.
pub(crate) fn is_exchanged_by(build: &Build) -> bool {
    build.has(METADATA_EXCHANGE)
}

/// Learns who opened a tunnel, for the connections that come out of it.
pub(crate) fn tunnelled(env: &Env<'_>) -> Option<HttpFilter> {
    if !is_known(&env.audience.build) {
        return None;
    }
    let method = |name: &str| structure([(name, Value::from(Struct::default()))]);
    let shared = ("shared_with_upstream", true.into());
    let config = if env.flag(AMBIENT_ENABLE_BAGGAGE) {
        let discovery = list([method("workload_discovery"), method("baggage")]);
        let propagation = ("downstream_propagation", list([method("baggage")]));
        plain_struct(PEER_METADATA, [("downstream_discovery", discovery), propagation, shared])
    } else {
        let discovery = list([method("workload_discovery")]);
        plain_struct(PEER_METADATA, [("downstream_discovery", discovery), shared])
    };
    Some(packed_http_filter("waypoint_downstream_peer_metadata", config))
}

/// Learns about the server that a waypoint sends a request to.
pub(crate) fn waypoint_upstream(env: &Env<'_>) -> Option<HttpFilter> {
    if !is_known(&env.audience.build) {
        return None;
    }
    let by_address = structure([("workload_discovery", Value::from(Struct::default()))]);
    let baggage = env.flag(AMBIENT_ENABLE_BAGGAGE).then(|| {
        let noted = structure([("peer_metadata_key", "upstream_peer".into())]);
        structure([("upstream_filter_state", noted)])
    });
    let discovery = list(std::iter::once(by_address).chain(baggage));
    let config = plain_struct(PEER_METADATA, [("upstream_discovery", discovery)]);
    Some(packed_http_filter("waypoint_upstream_peer_metadata", config))
}

/// Notes what the answer to an opened tunnel says about the server, where that is asked for.
pub(crate) fn answered_baggage(filters: &mut Filters, env: &Env<'_>) {
    if env.flag(AMBIENT_ENABLE_BAGGAGE) && is_known(&env.audience.build) {
        let config = plain_struct(TUNNEL_BAGGAGE, [("baggage_key", "io.istio.baggage".into())]);
        filters.add_packed("upstream_hbone_peer_metadata", &config);
    }
}

/// Exchanges metadata with the client on the connection itself.
pub(crate) fn on_connections(filters: &mut Filters, env: &Env<'_>) {
    if !is_exchanged_by(&env.audience.build) {
        return;
    }
    if let Some(config) = connection_exchange(&env.settings) {
        filters.add_packed(NAME, &config);
    }
}

/// Exchanges metadata with the server on the connection itself; for proxies that can.
pub(crate) fn upstream(settings: &MeshSettings) -> Option<ClusterFilter> {
    connection_exchange(settings).map(|config| ClusterFilter {
        name: NAME.into(),
        typed_config: Some(config),
        ..Default::default()
    })
}

/// The configuration of the filter that exchanges metadata on connections; `None` if none is exchanged.
fn connection_exchange(settings: &MeshSettings) -> Option<Any> {
    static USUAL: LazyLock<Any> = LazyLock::new(|| exchange_on_connections(&[]));
    let wanted = settings.flags.get(PILOT_ENABLE_METADATA_EXCHANGE);
    let labels = settings.flags.get(PILOT_MX_ADDITIONAL_LABELS);
    wanted.then(|| if labels.is_empty() { USUAL.clone() } else { exchange_on_connections(labels) })
}

fn exchange_on_connections(labels: &[String]) -> Any {
    let fields = [("enable_discovery", true.into()), ("protocol", "istio-peer-exchange".into())];
    typed_struct(labels, METADATA_EXCHANGE, fields)
}

/// Learns about servers behind tunnels from the baggage of the tunnel.
pub(crate) fn upstream_baggage() -> ClusterFilter {
    let config = TypedStruct {
        type_url: format!("type.googleapis.com/{UPSTREAM_BAGGAGE}"),
        value: Some(Struct::default()),
    };
    ClusterFilter {
        name: "upstream_hbone_peer_metadata".into(),
        typed_config: Some(Any::pack(&config)),
        ..Default::default()
    }
}

/// Configuration of a type that only Istio's proxy knows, with the labels users want exchanged besides.
fn typed_struct<const N: usize>(labels: &[String], name: &str, fields: [(&str, Value); N]) -> Any {
    // Parity: each once, in the order of the alphabet, however they were written.
    let labels: BTreeSet<_> = labels.iter().map(String::as_str).collect();
    let labels = (!labels.is_empty()).then(|| list(labels.into_iter().map(Value::from)));
    let additional = labels.map(|labels| ("additional_labels", labels));
    plain_struct(name, fields.into_iter().chain(additional))
}

fn plain_struct<'a>(name: &str, fields: impl IntoIterator<Item = (&'a str, Value)>) -> Any {
    let fields: BTreeMap<_, _> = fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    Any::pack(&TypedStruct {
        type_url: format!("type.googleapis.com/{name}"),
        value: Some(Struct::from(fields)),
    })
}

fn structure<const N: usize>(fields: [(&str, Value); N]) -> Value {
    Struct::from(fields.into_iter().map(|(k, v)| (k.to_owned(), v)).collect::<BTreeMap<_, _>>()).into()
}

fn list(values: impl IntoIterator<Item = Value>) -> Value {
    ListValue::from(values.into_iter().collect::<Vec<_>>()).into()
}

#[cfg(test)]
mod tests {
    use super::exchange_on_connections;
    use canopus_proto::udpa::r#type::v1::TypedStruct;

    #[test]
    fn additional_labels_are_sorted_and_told_once_when_users_repeat_them() {
        let labels = ["team", "env", "team"].map(str::to_owned);
        let config: TypedStruct = exchange_on_connections(&labels).unpack().unwrap();
        let text = format!("{:?}", config.value.unwrap().fields["additional_labels"]);
        assert!(text.find("env") < text.find("team"), "{text}");
        assert_eq!(text.matches("team").count(), 1, "{text}");
    }
}
