//! Servers that pass connections on to whatever cluster their server name names, for clients in other networks.

use std::sync::Arc;

use canopus_base::host;
use canopus_base::protocol::Protocol;
use canopus_mesh::destination_rule::outbound_rule;
use canopus_mesh::scope;
use canopus_mesh::service::{Port, Service};

use super::chain::Chain;
use crate::env::Env;
use crate::names;
use crate::network::tcp;
use crate::stat_name::{self, Placeholders};

/// What clients of the mesh offer. With it alone a connection reaches mutual TLS on the other side: nobody can go through
/// such a server in plain text.
const MESH_PROTOCOLS: &[&str] =
    &["istio", "istio-peer-exchange", "istio-http/1.0", "istio-http/1.1", "istio-h2"];

/// One chain for each port and subset of the services that `hosts` cover.
pub(super) fn chains(env: &Env<'_>, hosts: &[String]) -> Vec<Chain> {
    let services = scope::services(env.ctx, env.audience.scope());
    let covered = |service: &&Arc<Service>| {
        !service.external && hosts.iter().any(|name| host::subset_of(&service.host, name))
    };
    let services = services.iter().filter(covered);
    services.flat_map(|service| service_chains(env, service)).collect()
}

fn service_chains(env: &Env<'_>, service: &Service) -> Vec<Chain> {
    let rule = outbound_rule(env.ctx, &env.audience.caller, &service.key());
    let subsets = rule.iter().flat_map(|rule| rule.spec.subsets.iter().map(|subset| subset.name.as_str()));
    let subsets: Vec<_> = std::iter::once("").chain(subsets).collect();
    let ports = service.ports.iter().filter(|port| port.protocol != Protocol::Udp);
    let chain = |port: &Port, subset: &str| {
        let cluster = names::outbound_sni(&service.host, port.number, subset);
        let stat_prefix = stat_prefix(env, service, port, subset, &cluster);
        let to = (cluster.as_str(), stat_prefix.as_str());
        Chain {
            filters: tcp::passed_on(env, to, rule.as_deref(), subset, port),
            server_names: vec![cluster],
            application_protocols: MESH_PROTOCOLS,
            ..Default::default()
        }
    };
    ports.flat_map(|port| subsets.iter().map(move |subset| chain(port, subset)).collect::<Vec<_>>()).collect()
}

fn stat_prefix(env: &Env<'_>, service: &Service, port: &Port, subset: &str, cluster: &str) -> String {
    match env.mesh().outbound_cluster_stat_name.as_str() {
        "" => cluster.to_owned(),
        pattern => Placeholders {
            host: &service.host,
            kubernetes: stat_name::kubernetes(service),
            subset,
            port: port.number,
            port_name: &port.name,
            target_port: Some(0),
        }
        .fill(pattern),
    }
}
