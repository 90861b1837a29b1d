//! One endpoint as an `LbEndpoint`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use canopus_api::labels as known;
use canopus_base::labels::{Labels, canonical};
use canopus_mesh::endpoint::{Endpoint, EndpointWorkload, Health};
use canopus_mesh::workload::{TLS_DISABLED, TLS_ISTIO};
use canopus_proto::envoy::config::core::v3::{
    Address, EnvoyInternalAddress, HealthStatus, Metadata, Pipe, SocketAddress, address,
    envoy_internal_address, socket_address::PortSpecifier,
};
use canopus_proto::envoy::config::endpoint::v3::endpoint::AdditionalAddress;
use canopus_proto::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
use canopus_proto::envoy::config::endpoint::v3::{Endpoint as Target, LbEndpoint};
use canopus_proto::google::protobuf::Struct;
use canopus_runtime::flags::{
    LABEL_CANONICAL_SERVICES_FOR_MESH_EXTERNAL_SERVICE_ENTRIES, PILOT_ENABLE_TELEMETRY_LABEL,
    PILOT_ENDPOINT_TELEMETRY_LABEL, PILOT_PREFER_SENDING_HBONE,
};

use super::Env;
use super::{Destination, visible};
use crate::names;
use crate::tunnel::{CONNECT_ORIGINATE, FORWARD_INNER};

/// Where transport sockets are chosen by.
pub(super) const TRANSPORT_SOCKET_MATCH: &str = "envoy.transport_socket_match";
/// Where a connection that goes through a tunnel is to arrive.
pub(super) const ORIGINAL_DESTINATION: &str = "envoy.filters.listener.original_dst";

pub(super) fn lb_endpoint(
    env: &Env<'_>,
    destination: &Destination<'_>,
    endpoint: &Endpoint,
    mutual_tls: bool,
) -> LbEndpoint {
    let tls_mode = if mutual_tls { &*endpoint.workload.tls_mode } else { "" };
    let mut metadata = telemetry_metadata(env, destination, endpoint);
    if !matches!(tls_mode, "" | TLS_DISABLED) {
        metadata.insert(TRANSPORT_SOCKET_MATCH.to_owned(), field("tlsMode", tls_mode));
    }
    let target = if destination.through_waypoint || uses_tunnel(env, destination, endpoint) {
        let own = join(endpoint.address(), endpoint.port);
        let passed = if destination.through_waypoint {
            let service = join(&service_address(destination, endpoint), destination.port.number);
            fields([("local", service.as_str()), ("waypoint", own.as_str())])
        } else {
            field("local", &own)
        };
        metadata.insert(ORIGINAL_DESTINATION.to_owned(), passed);
        if !destination.is_fronted() {
            metadata.insert(TRANSPORT_SOCKET_MATCH.to_owned(), field("tunnel", "http"));
        }
        let listener = if env.audience.role.is_east_west_gateway { FORWARD_INNER } else { CONNECT_ORIGINATE };
        Target { address: Some(internal(listener, &own)), ..Default::default() }
    } else {
        let others = endpoint.addresses.iter().skip(1).filter(|_| env.dual_stack());
        let additional =
            |text: &std::sync::Arc<str>| AdditionalAddress { address: Some(address(text, endpoint.port)) };
        Target {
            address: Some(address(endpoint.address(), endpoint.port)),
            additional_addresses: others.map(additional).collect(),
            ..Default::default()
        }
    };
    LbEndpoint {
        host_identifier: Some(HostIdentifier::Endpoint(target)),
        health_status: health_status(visible::health(env, endpoint)) as i32,
        load_balancing_weight: Some(endpoint.weight.max(1).into()),
        metadata: Some(Metadata { filter_metadata: metadata, ..Default::default() }),
    }
}

fn health_status(health: Health) -> HealthStatus {
    match health {
        Health::Unknown => HealthStatus::Unknown,
        Health::Healthy => HealthStatus::Healthy,
        Health::Unhealthy => HealthStatus::Unhealthy,
        Health::Draining | Health::Terminating => HealthStatus::Draining,
    }
}

/// Whether a workload takes HBONE tunnels; waypoints always do.
pub(super) fn takes_tunnels(workload: &EndpointWorkload) -> bool {
    let is_waypoint = workload.labels.get(known::GATEWAY_MANAGED.name) == Some("istio.io-mesh-controller");
    is_waypoint || workload.takes_tunnels
}

/// Whether connections to the endpoint go through HBONE: it can, and mutual TLS cannot or is not preferred. Waypoints have
/// nothing else.
fn uses_tunnel(env: &Env<'_>, destination: &Destination<'_>, endpoint: &Endpoint) -> bool {
    let workload = &endpoint.workload;
    let has_mutual_tls = *workload.tls_mode == *TLS_ISTIO;
    takes_tunnels(workload)
        && !env.audience.proxyless
        && env.audience.tunnels.may_open
        && (!has_mutual_tls || env.flag(PILOT_PREFER_SENDING_HBONE) || destination.is_fronted())
}

/// The address by which the waypoint in front of a service knows it.
fn service_address(destination: &Destination<'_>, waypoint: &Endpoint) -> String {
    let service = destination.service;
    let of_cluster = service.cluster_addresses.get(&waypoint.workload.cluster);
    of_cluster.and_then(|addresses| addresses.first()).unwrap_or(&service.address).clone()
}

/// What the client's telemetry says about the endpoint, in one text.
fn telemetry_metadata(
    env: &Env<'_>,
    destination: &Destination<'_>,
    endpoint: &Endpoint,
) -> BTreeMap<String, Struct> {
    if !(env.flag(PILOT_ENABLE_TELEMETRY_LABEL) && env.flag(PILOT_ENDPOINT_TELEMETRY_LABEL)) {
        return BTreeMap::new();
    }
    let (workload, service) = (&endpoint.workload, destination.service);
    let mut labels = Cow::Borrowed(&workload.labels);
    let mut namespace = &workload.namespace;
    if service.external && env.flag(LABEL_CANONICAL_SERVICES_FOR_MESH_EXTERNAL_SERVICE_ENTRIES) {
        namespace = &service.namespace;
        for key in [known::CANONICAL_NAME.name, known::CANONICAL_REVISION.name] {
            if let Some(value) = service.labels.get(key) {
                labels.to_mut().insert(key, value);
            }
        }
    }
    BTreeMap::from([("istio".to_owned(), description(&workload.name, namespace, &labels, &workload.cluster))])
}

/// `workload;namespace;canonical name;canonical revision;cluster`.
pub(super) fn description(workload: &str, namespace: &str, labels: &Labels, cluster: &str) -> Struct {
    let (name, revision) = canonical::service(labels, workload);
    // The default is not worth its bytes.
    let revision = if revision == "latest" { "" } else { revision };
    let text = names::joined([workload, ";", namespace, ";", name, ";", revision, ";", cluster]);
    field("workload", &text)
}

pub(super) fn field(key: &str, value: &str) -> Struct {
    fields([(key, value)])
}

fn fields<const N: usize>(fields: [(&str, &str); N]) -> Struct {
    let fields = fields.into_iter().map(|(key, value)| (key.to_owned(), value.into()));
    Struct::from(fields.collect::<BTreeMap<_, _>>())
}

pub(super) fn join(address: &str, port: u32) -> String {
    if address.contains(':') { format!("[{address}]:{port}") } else { format!("{address}:{port}") }
}

/// An address with a port, or the path of a socket if the port is 0.
pub(crate) fn address(text: &str, port: u32) -> Address {
    let address = if port == 0 {
        address::Address::Pipe(Pipe { path: text.to_owned(), ..Default::default() })
    } else {
        address::Address::SocketAddress(SocketAddress {
            address: text.to_owned(),
            port_specifier: Some(PortSpecifier::PortValue(port)),
            ..Default::default()
        })
    };
    Address { address: Some(address) }
}

/// A listener of the proxy itself.
pub(super) fn internal(listener: &str, endpoint: &str) -> Address {
    let name = envoy_internal_address::AddressNameSpecifier::ServerListenerName(listener.to_owned());
    Address {
        address: Some(address::Address::EnvoyInternalAddress(EnvoyInternalAddress {
            address_name_specifier: Some(name),
            endpoint_id: endpoint.to_owned(),
        })),
    }
}
