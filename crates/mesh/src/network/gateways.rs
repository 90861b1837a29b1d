//! Gateways of networks: from `meshNetworks`, from labelled Services, and from Gateway API Gateways.

use std::collections::BTreeSet;
use std::sync::Arc;

use canopus_api::gateway_api::{AddressType, Gateway, Listener, ListenerTls};
use canopus_api::kube::{Node, Service as KubeObject};
use canopus_api::{Meta, annotations, labels as known};
use canopus_base::json;
use canopus_base::labels::Labels;
use canopus_base::tree::Value;
use canopus_base::yaml::Limits;
use canopus_engine::{Ctx, Query};
use canopus_proto::istio::mesh::v1alpha1::Network;
use canopus_proto::istio::mesh::v1alpha1::network::istio_network_gateway::Gw;
use canopus_proto::istio::mesh::v1alpha1::network::network_endpoints::Ne;
use canopus_runtime::flags::PILOT_MULTI_NETWORK_DISCOVER_GATEWAY_API;

use crate::service::{Service, ServicesByHost, ServicesOf};
use crate::world::{ObjectIndex, Objects, Origin, all_objects, object, settings};

/// The listener option that requests forwarding by SNI.
const LISTENER_MODE: &str = "gateway.istio.io/listener-protocol";

/// The default port of a network gateway.
pub const DEFAULT_GATEWAY_PORT: u32 = 15443;
/// The HBONE port of a network gateway.
pub const HBONE_PORT: u32 = 15008;

/// A gateway into a network.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NetworkGateway {
    /// The network it leads to.
    pub network: String,
    /// The cluster it runs in; empty if `meshNetworks` gives its address.
    pub cluster: Arc<str>,
    /// An IP address, or a host name to resolve.
    pub address: String,
    /// The port for mutual TLS with SNI routing; 0 if there is none.
    pub port: u32,
    /// The HBONE port; 0 if there is none.
    pub hbone_port: u32,
    /// The identity of the gateway, if known.
    pub service_account: String,
}

/// The gateways of all networks, sorted.
pub struct NetworkGateways;

impl Query for NetworkGateways {
    const NAME: &'static str = "network_gateways";
    type Key = ();
    type Value = Vec<NetworkGateway>;

    fn run(ctx: &Ctx<'_>, (): &()) -> Self::Value {
        let mut found = BTreeSet::new();
        add_configured_gateways(ctx, &mut found);
        // Services with the same name may be gateways of different networks in different clusters.
        for origin in ctx.members::<Objects>(&ObjectIndex::NetworkGateways).iter() {
            for service in ctx.get::<ServicesOf>(origin).iter() {
                let Some(network) = labelled_network(service) else { continue };
                let port = service.labels.get(known::GATEWAY_PORT.name).and_then(|port| port.parse().ok());
                let has = |port: u32| service.port(port).map_or(0, |port| port.number);
                let ports = (has(port.unwrap_or(DEFAULT_GATEWAY_PORT)), has(HBONE_PORT));
                if ports != (0, 0) {
                    add_service_gateways(ctx, origin, service, network, ports, &mut found);
                }
            }
        }
        if settings(ctx).flags.get(PILOT_MULTI_NETWORK_DISCOVER_GATEWAY_API) {
            add_gateway_api_gateways(ctx, &mut found);
        }
        found.into_iter().collect()
    }
}

/// The network that a label makes the service a gateway of.
fn labelled_network(service: &Service) -> Option<&str> {
    service.labels.get(known::TOPOLOGY_NETWORK.name).filter(|network| !network.is_empty())
}

/// Adds the gateways that `meshNetworks` names.
fn add_configured_gateways(ctx: &Ctx<'_>, found: &mut BTreeSet<NetworkGateway>) {
    let settings = settings(ctx);
    for (name, network) in &settings.networks.networks {
        for gateway in &network.gateways {
            match &gateway.gw {
                Some(Gw::Address(address)) => {
                    found.insert(NetworkGateway {
                        network: name.clone(),
                        cluster: Arc::default(),
                        address: address.clone(),
                        port: gateway.port,
                        hbone_port: 0,
                        service_account: String::new(),
                    });
                }
                Some(Gw::RegistryServiceName(host)) => {
                    let of_host = ctx.get::<ServicesByHost>(&host.as_str().into());
                    let origins = of_host.values().flat_map(|service| &service.origins);
                    // Only in clusters of the network, and unless a label already makes the service a gateway.
                    for origin in origins.filter(|origin| has_registry(network, &origin.cluster)) {
                        for service in ctx.get::<ServicesOf>(origin).iter() {
                            if labelled_network(service).is_none() {
                                add_service_gateways(ctx, origin, service, name, (gateway.port, 0), found);
                            }
                        }
                    }
                }
                None => {}
            }
        }
    }
}

/// Whether the endpoints of a cluster are in a network.
fn has_registry(network: &Network, cluster: &str) -> bool {
    let is_it = |ne: &Ne| matches!(ne, Ne::FromRegistry(registry) if registry == cluster);
    network.endpoints.iter().filter_map(|endpoints| endpoints.ne.as_ref()).any(is_it)
}

/// Adds Gateway API Gateways with addresses. Remote ones are read from the control plane's own cluster only.
fn add_gateway_api_gateways(ctx: &Ctx<'_>, found: &mut BTreeSet<NetworkGateway>) {
    let here = settings(ctx).cluster.clone();
    for (origin, gateway) in all_objects::<Gateway>(ctx) {
        let network = gateway.meta.label(known::TOPOLOGY_NETWORK.name).filter(|said| !said.is_empty());
        let is_remote = &*gateway.spec.gateway_class_name == "istio-remote";
        let Some(network) = network.filter(|_| !is_remote || origin.cluster == here) else { continue };
        let ports: Vec<_> = gateway
            .spec
            .listeners
            .iter()
            .flat_map(|listener| listener_ports(&gateway.meta, listener))
            .collect();
        let addresses = gateway.spec.addresses.iter();
        let addresses = addresses
            .filter(|address| matches!(address.r#type, AddressType::IpAddress | AddressType::Hostname));
        for address in addresses.filter_map(|address| address.value.as_deref()) {
            found.extend(ports.iter().map(|(port, hbone_port)| NetworkGateway {
                network: network.to_owned(),
                cluster: origin.cluster.clone(),
                address: address.to_owned(),
                port: *port,
                hbone_port: *hbone_port,
                service_account: String::new(),
            }));
        }
    }
}

/// The mutual TLS port and the HBONE port that a listener provides.
fn listener_ports(meta: &Meta, listener: &Listener) -> impl Iterator<Item = (u32, u32)> + use<> {
    let port = u32::from(listener.port);
    let passes = listener.tls.as_ref().is_some_and(|tls| is_auto_passthrough(meta, listener, tls));
    let tunnels = &*listener.protocol == "HBONE";
    let by_sni = passes.then_some((port, 0));
    by_sni.into_iter().chain(tunnels.then_some((port, port)))
}

/// Adds the external addresses of a gateway's Service in a cluster, with its port or the node port in its place.
fn add_service_gateways(
    ctx: &Ctx<'_>,
    origin: &Origin,
    service: &Service,
    network: &str,
    (port, hbone_port): (u32, u32),
    found: &mut BTreeSet<NetworkGateway>,
) {
    let Some(kube) = &service.kube else { return };
    let addresses = kube.external_addresses.get(&origin.cluster).filter(|addresses| !addresses.is_empty());
    let node_ports = kube.node_ports.get(&origin.cluster);
    let addresses = match (addresses, node_ports) {
        (Some(addresses), _) => addresses.clone(),
        (None, Some(_)) => addresses_of_nodes(ctx, origin),
        (None, None) => return,
    };
    let port = node_ports.and_then(|ports| ports.get(&port).copied()).unwrap_or(port);
    found.extend(addresses.into_iter().map(|address| NetworkGateway {
        network: network.to_owned(),
        cluster: origin.cluster.clone(),
        address,
        port,
        hbone_port,
        service_account: String::new(),
    }));
}

/// The external addresses of the nodes that a Service selects.
fn addresses_of_nodes(ctx: &Ctx<'_>, service: &Origin) -> Vec<String> {
    let Some(object) = object::<KubeObject>(ctx, service) else { return Vec::new() };
    let wanted = object.meta.annotation(annotations::NODE_SELECTOR.name).map(selector).unwrap_or_default();
    let nodes = all_objects::<Node>(ctx)
        .into_iter()
        .filter(|(origin, node)| origin.cluster == service.cluster && wanted.subset_of(&node.meta.labels));
    nodes.filter_map(|(_, node)| outside_address(&node)).collect()
}

fn outside_address(node: &Node) -> Option<String> {
    let is_outside = |kind: &str, address: &str| kind == "ExternalIP" && !address.is_empty();
    let mut addresses = node.status.addresses.iter();
    let address = addresses.find(|address| is_outside(&address.r#type, &address.address))?;
    Some(address.address.to_string())
}

/// Parses the node selector annotation, a JSON object. Parity: an invalid one selects all nodes.
fn selector(text: &str) -> Labels {
    let Ok(node) = json::parse(text.as_bytes(), &Limits::default()) else { return Labels::default() };
    let Value::Map(map) = &node.value else { return Labels::default() };
    let labels = map.iter().filter_map(|entry| Some((&*entry.key, entry.node.as_str()?)));
    labels.fold(Labels::default(), |mut labels, (key, value)| {
        labels.insert(key, value);
        labels
    })
}

/// Whether a listener forwards connections to the cluster that their SNI names, as gateways between networks do.
pub(crate) fn is_auto_passthrough(meta: &Meta, listener: &Listener, tls: &ListenerTls) -> bool {
    if tls.options.get(LISTENER_MODE) == Some("auto-passthrough") {
        return true;
    }
    if meta.label(known::TOPOLOGY_NETWORK.name).is_none() {
        return false;
    }
    let expected = meta.label(known::GATEWAY_PORT.name).unwrap_or("15443");
    listener.port.to_string() == expected
}
