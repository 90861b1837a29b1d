//! Gateways: the listeners and route tables of proxies at the edges of the mesh, as Gateway objects describe them.

mod chain;
mod listener;
mod manager;
mod passthrough;
mod routes;
mod tcp;
#[cfg(test)]
mod tests;
mod tls;

use std::collections::BTreeMap;

use canopus_engine::{Ctx, Query};
use canopus_mesh::gateway::{Merged, PortServers};
use canopus_mesh::proxy::View;
use canopus_proto::resource::Resource;

use crate::env::Env;
use chain::Site;
use listener::{Draft, Transport};

pub(crate) use routes::table as route_table;

/// The first port that needs no privilege to be opened.
const UNPRIVILEGED: u32 = 1024;

/// The listeners of a gateway.
pub(crate) struct GatewayListeners;

impl Query for GatewayListeners {
    const NAME: &'static str = "gateway_listeners";
    type Key = View;
    type Value = Vec<Resource>;

    fn run(ctx: &Ctx<'_>, view: &View) -> Vec<Resource> {
        let env = Env::new(ctx, view);
        let merged = ctx.get::<Merged>(view);
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
        let drafts = drafts.into_values().filter(|draft| !draft.chains.is_empty());
        drafts
            .map(|draft| draft.build(&env))
            .map(|built| Resource::encode(built.name.as_str(), &built))
            .collect()
    }
}

/// Ports that the proxy has no right to open are left out: trying would fail the whole update.
fn can_bind(env: &Env<'_>, servers: &PortServers) -> bool {
    let unprivileged = env.view.metadata.unprivileged_pod.as_str();
    let unprivileged = ["1", "t", "T", "true", "TRUE", "True"].contains(&unprivileged);
    !unprivileged || servers.port.number >= UNPRIVILEGED
}
