//! Gateways of networks.

use std::sync::Arc;

use canopus_api::gateway_api::{Gateway, TlsMode};
use canopus_api::{annotations, labels as known};
use canopus_base::net::parse_ip;
use canopus_engine::{Ctx, Query};
use canopus_mesh::network;
use canopus_mesh::world::{Origin, all_objects, settings};
use canopus_proto::istio::workload::gateway_address::Destination;
use canopus_proto::istio::workload::{GatewayAddress, Workload};
use canopus_runtime::flags::AMBIENT_ENABLE_MULTI_NETWORK;

use crate::address;
use crate::trust_domain::trust_domain;

const EAST_WEST_CLASS: &str = "istio-east-west";
const REMOTE_CLASS: &str = "istio-remote";

/// A gateway into a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NetworkGateway {
    pub(crate) network: String,
    pub(crate) cluster: Arc<str>,
    /// An IP or a host name.
    pub(crate) address: String,
    /// The HBONE port; 0 if unknown.
    pub(crate) port: u32,
    pub(crate) namespace: String,
    pub(crate) name: String,
    service_account: String,
}

/// The gateways of all networks, sorted by origin, those of the control plane's own cluster first.
pub(crate) struct Gateways;

impl Query for Gateways {
    const NAME: &'static str = "ambient_network_gateways";
    type Key = ();
    type Value = Vec<NetworkGateway>;

    fn run(ctx: &Ctx<'_>, (): &()) -> Self::Value {
        let settings = settings(ctx);
        let multi_network = settings.flags.get(AMBIENT_ENABLE_MULTI_NETWORK);
        let mut found: Vec<NetworkGateway> = Vec::new();
        let mut gateways = all_objects::<Gateway>(ctx);
        gateways.sort_by_key(|(origin, _)| origin.cluster != settings.cluster);
        for (origin, gateway) in gateways {
            let is_here = origin.cluster == settings.cluster;
            if is_here || multi_network {
                for gateway in gateways_of_object(&origin, &gateway, is_here) {
                    // A gateway of the own cluster wins over one with the same name and address elsewhere.
                    let same = |known: &NetworkGateway| {
                        (&known.namespace, &known.name, &known.address)
                            == (&gateway.namespace, &gateway.name, &gateway.address)
                    };
                    if !found.iter().any(same) {
                        found.push(gateway);
                    }
                }
            }
        }
        found
    }
}

/// The gateways of an object: in the own cluster those of remote networks, in other clusters the east-west gateways there.
fn gateways_of_object(origin: &Origin, gateway: &Gateway, is_here: bool) -> Vec<NetworkGateway> {
    let Some(network) = gateway.meta.label(known::TOPOLOGY_NETWORK.name).filter(|value| !value.is_empty())
    else {
        return Vec::new();
    };
    let class = &*gateway.spec.gateway_class_name;
    let mut listeners = gateway.spec.listeners.iter().filter(|listener| &*listener.protocol == "HBONE");
    let port = if is_here {
        if class != REMOTE_CLASS {
            return Vec::new();
        }
        listeners.next().map(|listener| u32::from(listener.port))
    } else {
        let terminates =
            listeners.any(|listener| listener.tls.as_ref().is_some_and(|tls| tls.mode == TlsMode::Terminate));
        (class == EAST_WEST_CLASS && terminates).then_some(0)
    };
    let Some(port) = port else { return Vec::new() };
    let addresses = gateway.status.addresses.iter();
    addresses
        .map(|address| NetworkGateway {
            network: network.to_owned(),
            cluster: origin.cluster.clone(),
            address: address.value.to_string(),
            port,
            namespace: origin.namespace().to_owned(),
            name: origin.name().to_owned(),
            service_account: service_account(gateway),
        })
        .collect()
}

fn service_account(gateway: &Gateway) -> String {
    let value = gateway.meta.annotation(annotations::GATEWAY_SERVICE_ACCOUNT.name);
    match value.filter(|value| !value.is_empty()) {
        Some(value) => value.to_owned(),
        None if &*gateway.spec.gateway_class_name == REMOTE_CLASS => {
            format!("{}-{REMOTE_CLASS}", gateway.meta.name)
        }
        None => gateway.meta.name.to_string(),
    }
}

impl NetworkGateway {
    /// The address that clients connect to.
    pub(crate) fn destination(&self) -> Destination {
        match parse_ip(&self.address) {
            Ok(ip) => Destination::Address(address::in_network(&self.network, ip)),
            Err(_) => address::host_destination(&self.namespace, &self.address),
        }
    }

    /// The workload that other resources refer to.
    pub(crate) fn workload(&self, ctx: &Ctx<'_>) -> Workload {
        let uid = format!("NetworkGateway/{}/{}/{}", self.network, self.address, self.port);
        let ip = parse_ip(&self.address).ok();
        Workload {
            name: uid.clone(),
            uid,
            service_account: self.service_account.clone(),
            namespace: self.namespace.clone(),
            network: self.network.clone(),
            trust_domain: trust_domain(ctx),
            addresses: ip.map(address::octets).into_iter().collect(),
            hostname: if ip.is_some() { String::new() } else { self.address.clone() },
            ..Default::default()
        }
    }
}

/// The address of the gateway into a network, if its port is known.
pub(crate) fn gateway_into(ctx: &Ctx<'_>, network: &str) -> Option<GatewayAddress> {
    let gateways = ctx.get::<Gateways>(&());
    let gateway = gateways.iter().find(|gateway| gateway.network == network && gateway.port != 0)?;
    Some(GatewayAddress { hbone_mtls_port: gateway.port, destination: Some(gateway.destination()) })
}

/// The network of a cluster; empty if unknown.
pub(crate) fn network_of_cluster(ctx: &Ctx<'_>, cluster: &Arc<str>) -> String {
    network::network_of_cluster(ctx, cluster).unwrap_or_default()
}
