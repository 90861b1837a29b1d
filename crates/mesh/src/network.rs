//! Networks: where an address can be reached directly, and through which gateways otherwise.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use canopus_api::gateway_api::Gateway;
use canopus_api::labels as known;
use canopus_base::labels::Labels;
use canopus_base::net::{parse_ip, parse_prefix};
use canopus_engine::{Ctx, Query};
use canopus_proto::istio::mesh::v1alpha1::network::istio_network_gateway::Gw;
use canopus_proto::istio::mesh::v1alpha1::network::network_endpoints::Ne;

use crate::service::{Service, ServicesByHost, ServicesOf};
use crate::workload;
use crate::world::{Objects, Shelf, objects_of, settings};

/// The port of a network gateway that does not say otherwise.
pub const DEFAULT_GATEWAY_PORT: u32 = 15443;
/// The port of a network gateway for HBONE.
pub const HBONE_PORT: u32 = 15008;

/// The network of an address in a cluster: a label says it, or the system namespace's label, or the mesh's networks.
/// Empty if nothing does.
pub fn of(ctx: &Ctx<'_>, cluster: &Arc<str>, address: &str, labels: &Labels) -> String {
    if let Some(said) = labels.get(known::TOPOLOGY_NETWORK.name).filter(|said| !said.is_empty()) {
        return said.to_owned();
    }
    of_cluster(ctx, cluster).or_else(|| of_mesh_networks(ctx, cluster, address)).unwrap_or_default()
}

/// What the label of the system namespace says.
pub fn of_cluster(ctx: &Ctx<'_>, cluster: &Arc<str>) -> Option<String> {
    let system = workload::namespace(ctx, cluster, &settings(ctx).system_namespace)?;
    system.meta.label(known::TOPOLOGY_NETWORK.name).filter(|said| !said.is_empty()).map(str::to_owned)
}

/// The network whose endpoints come from this registry, or whose address range has this address.
fn of_mesh_networks(ctx: &Ctx<'_>, cluster: &str, address: &str) -> Option<String> {
    let settings = settings(ctx);
    let mut ranges = Vec::new();
    for (name, network) in &settings.networks.networks {
        for endpoints in &network.endpoints {
            match &endpoints.ne {
                Some(Ne::FromRegistry(registry)) if registry == cluster => return Some(name.clone()),
                Some(Ne::FromCidr(cidr)) => ranges.extend(parse_prefix(cidr).ok().map(|range| (range, name))),
                _ => {}
            }
        }
    }
    let address: IpAddr = parse_ip(address).ok()?;
    ranges.into_iter().find(|(range, _)| range.contains(&address)).map(|(_, name)| name.clone())
}

/// A way into a network.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NetworkGateway {
    /// The network it leads to.
    pub network: String,
    /// The cluster it stands in; empty if the mesh's networks give it by address.
    pub cluster: Arc<str>,
    /// Its address: an IP, or a host name that has to be resolved.
    pub address: String,
    /// The port for mutual TLS with SNI; 0 if it has none.
    pub port: u32,
    /// The port for HBONE; 0 if it has none.
    pub hbone_port: u32,
    /// The identity of the gateway, if known.
    pub service_account: String,
}

/// The gateways of every network, in order.
pub struct NetworkGateways;

impl Query for NetworkGateways {
    const NAME: &'static str = "network_gateways";
    type Key = ();
    type Value = Vec<NetworkGateway>;

    fn run(ctx: &Ctx<'_>, (): &()) -> Self::Value {
        let mut found = BTreeSet::new();
        from_settings(ctx, &mut found);
        // Each cluster's service of a name may lead to another network.
        let origins = ctx.members::<Objects>(&Shelf::NetworkGateways);
        for service in origins.iter().flat_map(|origin| ctx.get::<ServicesOf>(origin).to_vec()) {
            if let Some(network) = service.labels.get(known::TOPOLOGY_NETWORK.name) {
                let port = service.labels.get(known::GATEWAY_PORT.name).and_then(|port| port.parse().ok());
                let has = |port: u32| service.port(port).map_or(0, |port| port.number);
                let ports = (has(port.unwrap_or(DEFAULT_GATEWAY_PORT)), has(HBONE_PORT));
                if ports != (0, 0) {
                    of_service(&service, network, ports, &mut found);
                }
            }
        }
        from_gateways(ctx, &mut found);
        found.into_iter().collect()
    }
}

/// The gateways that the mesh's networks name.
fn from_settings(ctx: &Ctx<'_>, found: &mut BTreeSet<NetworkGateway>) {
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
                    for service in of_host.values() {
                        of_service(service, name, (gateway.port, 0), found);
                    }
                }
                None => {}
            }
        }
    }
}

/// The gateways that Gateways of the Gateway API describe by address; those in places the control plane cannot look into
/// count in its own cluster only.
fn from_gateways(ctx: &Ctx<'_>, found: &mut BTreeSet<NetworkGateway>) {
    let here = settings(ctx).cluster.clone();
    for (origin, gateway) in objects_of::<Gateway>(ctx) {
        let network = gateway.meta.label(known::TOPOLOGY_NETWORK.name).filter(|said| !said.is_empty());
        let is_remote = &*gateway.spec.gateway_class_name == "istio-remote";
        let Some(network) = network.filter(|_| !is_remote || origin.cluster == here) else { continue };
        let tunnels = gateway.spec.listeners.iter().filter(|listener| &*listener.protocol == "HBONE");
        let ports: Vec<u32> = tunnels.map(|listener| listener.port.into()).collect();
        for address in gateway.spec.addresses.iter().filter_map(|address| address.value.as_deref()) {
            found.extend(ports.iter().map(|port| NetworkGateway {
                network: network.to_owned(),
                cluster: origin.cluster.clone(),
                address: address.to_owned(),
                port: *port,
                hbone_port: *port,
                service_account: String::new(),
            }));
        }
    }
}

/// The addresses from outside of a gateway's service, with the port or the node port that stands for it.
fn of_service(
    service: &Service,
    network: &str,
    (port, hbone_port): (u32, u32),
    found: &mut BTreeSet<NetworkGateway>,
) {
    let Some(kube) = &service.kube else { return };
    for (cluster, addresses) in &kube.external_addresses {
        let node_ports = kube.node_ports.get(cluster);
        let port = match node_ports {
            Some(ports) if port != 0 => ports.get(&port).copied(),
            _ => Some(port),
        };
        for address in addresses {
            let Some(port) = port else { continue };
            found.insert(NetworkGateway {
                network: network.to_owned(),
                cluster: cluster.clone(),
                address: address.clone(),
                port,
                hbone_port,
                service_account: String::new(),
            });
        }
    }
}
