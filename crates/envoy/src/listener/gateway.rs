//! The listeners of proxies at the edges of the mesh, as Gateway objects describe them.

mod chain;
mod listener;
mod manager;
mod passthrough;
mod tcp;
#[cfg(test)]
mod tests;
mod tls;

use std::collections::BTreeMap;

use canopus_engine::{Ctx, Query};
use canopus_mesh::gateway::PortServers;
use canopus_mesh::network::HBONE_PORT;
use canopus_proto::envoy::config::core::v3::TrafficDirection;
use canopus_proto::resource::Resource;

use crate::audience::{ListenerAudience, Shared};
use crate::env::Env;
use crate::listener::connect::originate_double;
use chain::Site;
use listener::{Draft, Transport};

/// The first port that needs no privilege to be opened.
const UNPRIVILEGED: u32 = 1024;

/// The listeners of a gateway.
pub(crate) struct GatewayListeners;

impl Query for GatewayListeners {
    const NAME: &'static str = "gateway_listeners";
    type Key = Shared<ListenerAudience>;
    type Value = Vec<Resource>;

    fn run(ctx: &Ctx<'_>, audience: &Shared<ListenerAudience>) -> Vec<Resource> {
        let env = Env::new(ctx, audience);
        let merged = env.merged();
        let site = Site::new(&env, &merged);
        // Servers of different protocols on one port and address share a listener.
        let mut drafts: BTreeMap<String, Draft> = BTreeMap::new();
        for servers in merged.ports.iter().filter(|servers| can_bind(&env, servers)) {
            for transport in [Transport::Tcp, Transport::Quic] {
                let draft = Draft::new(&env, &servers.port, transport);
                let name = draft.name();
                let chains = site.chains(servers, transport, &name);
                drafts.entry(name).or_insert(draft).chains.extend(chains);
            }
        }
        // Parity: a port none of whose servers leads anywhere is not opened.
        drafts.retain(|_, draft| !draft.chains.is_empty());
        let crosses = !drafts.is_empty() && env.crosses_networks();
        let tunnels = crosses.then(|| originate_double(&env)).into_iter().flatten();
        let built = drafts.into_values().map(|draft| draft.build(&env, TrafficDirection::Outbound));
        built.chain(tunnels).collect()
    }
}

/// The listeners of a gateway between networks for TLS that it passes through, beside those of tunnels.
pub(crate) fn passthrough_listeners(env: &Env<'_>) -> Vec<Resource> {
    let merged = env.merged();
    let site = Site::new(env, &merged);
    let mut drafts: BTreeMap<String, Draft> = BTreeMap::new();
    for servers in merged.ports.iter().filter(|servers| servers.port.number != HBONE_PORT) {
        let draft = Draft::new(env, &servers.port, Transport::Tcp);
        let of_port = merged.servers_at(&servers.servers);
        let chains: Vec<_> = of_port.flat_map(|server| site.network(server, servers.port.number)).collect();
        drafts.entry(draft.name()).or_insert(draft).chains.extend(chains);
    }
    drafts.retain(|_, draft| !draft.chains.is_empty());
    drafts.into_values().map(|draft| draft.build(env, TrafficDirection::Inbound)).collect()
}

/// Ports that the proxy has no right to open are left out: trying would fail the whole update.
fn can_bind(env: &Env<'_>, servers: &PortServers) -> bool {
    let unprivileged = &*env.audience.sockets.unprivileged;
    let unprivileged = ["1", "t", "T", "true", "TRUE", "True"].contains(&unprivileged);
    !unprivileged || servers.port.number >= UNPRIVILEGED
}
