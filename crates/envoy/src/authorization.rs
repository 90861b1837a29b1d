//! Who may call: AuthorizationPolicies as filters.
//!
//! Policies that deny, allow and audit are rules of Envoy's RBAC filter. CUSTOM policies are rules of an RBAC filter that
//! only notes what matches, and a filter after it that asks the external authorizer about what was noted.

mod custom;
mod matcher;
pub mod permission;
pub mod principal;
mod provider;
pub(crate) mod proxyless;
mod rbac;
pub mod rule;
pub mod term;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use canopus_api::node::NodeKind;
use canopus_engine::{Ctx, Query};
use canopus_mesh::attachment::PolicyTarget;
use canopus_mesh::authorization::PoliciesOf;
use canopus_mesh::service::Service;
use canopus_proto::Any;
use canopus_proto::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;
use canopus_runtime::flags::ENABLE_LAYERED_WAYPOINT_AUTHORIZATION_POLICIES;

use crate::env::{Class, Env};
use crate::filter::{Filters, packed_http_filter};

/// Which policies a filter enforces; the two kinds stand at different places of a filter chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// CUSTOM policies, whose decision an external authorizer makes.
    Custom,
    /// AUDIT, DENY and ALLOW policies, which the proxy decides by itself.
    Own,
}

/// Where the proxy finds out who its peer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Peer {
    /// In the certificate of the connection.
    Certificate,
    /// In what an earlier listener noted: the connection came out of a tunnel.
    FilterState,
}

/// What is there to be looked at, and which sort of filter looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Layer {
    /// Requests.
    Http,
    /// Connections.
    Tcp,
    /// Connections, by an HTTP filter on the requests that open them.
    TunnelledTcp,
}

impl Layer {
    /// Whether requests can be looked at.
    fn sees_requests(self) -> bool {
        self == Self::Http
    }
}

/// A place where policies are enforced.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Guard {
    /// The workload or service whose policies apply.
    pub protected: PolicyTarget,
    /// Which of them.
    pub stage: Stage,
    /// How callers are known.
    pub peer: Peer,
    /// What is looked at.
    pub layer: Layer,
}

/// A filter, whichever sort of chain it goes into.
#[derive(Clone, Debug, PartialEq)]
pub struct Built {
    /// Envoy's well-known name of the filter.
    pub name: &'static str,
    /// Configuration of the filter.
    pub config: Any,
}

/// The filters at a guarded place. Proxies that are the same to every policy share them.
pub struct AuthorizationFilters;

impl Query for AuthorizationFilters {
    const NAME: &'static str = "authorization_filters";
    type Key = Guard;
    type Value = Vec<Built>;

    fn run(ctx: &Ctx<'_>, guard: &Guard) -> Vec<Built> {
        let policies = ctx.get::<PoliciesOf>(&guard.protected);
        match guard.stage {
            Stage::Custom => custom::filters(ctx, guard, &policies.custom),
            Stage::Own => rbac::filters(ctx, guard, &policies),
        }
    }
}

/// The filters on requests. Policies are enforced where requests arrive, not where they are sent.
pub(crate) fn on_requests(env: &Env<'_>, stage: Stage, class: Class, tunnelled: bool) -> Vec<HttpFilter> {
    if class == Class::Outbound {
        return Vec::new();
    }
    let Some(protected) = env.protected() else { return Vec::new() };
    let peer = peer(env, stage, tunnelled);
    on_layer_of_requests(env, Guard { protected, stage, peer, layer: Layer::Http })
}

/// The filters on requests that open tunnels, where policies of the workload count besides those of what it stands in
/// front of.
pub(crate) fn on_tunnels(env: &Env<'_>) -> Vec<HttpFilter> {
    if !env.flag(ENABLE_LAYERED_WAYPOINT_AUTHORIZATION_POLICIES) {
        return Vec::new();
    }
    let Some(protected) = env.audience.access.clone().map(PolicyTarget::as_workload) else {
        return Vec::new();
    };
    let (stage, peer) = (Stage::Own, Peer::Certificate);
    on_layer_of_requests(env, Guard { protected, stage, peer, layer: Layer::TunnelledTcp })
}

fn on_layer_of_requests(env: &Env<'_>, guard: Guard) -> Vec<HttpFilter> {
    filters(env, &guard).iter().map(|built| packed_http_filter(built.name, built.config.clone())).collect()
}

/// Adds the filters on connections. Where they are sent, policies are enforced only for a `service` of their own.
pub(crate) fn on_connections(
    all: &mut Filters,
    env: &Env<'_>,
    (class, tunnelled): (Class, bool),
    stage: Stage,
    service: Option<&Service>,
) {
    let Some(mut protected) = env.protected() else { return };
    match service {
        Some(service) => protected = protected.with_service(service),
        None if class == Class::Outbound => return,
        None => {}
    }
    let guard = Guard { protected, stage, peer: peer(env, stage, tunnelled), layer: Layer::Tcp };
    filters(env, &guard).iter().for_each(|built| all.add_packed(built.name, &built.config));
}

/// The filters at a guarded place, which mostly has no policies.
fn filters(env: &Env<'_>, guard: &Guard) -> Arc<Vec<Built>> {
    let policies = env.ctx.get::<PoliciesOf>(&guard.protected);
    let wanted = match guard.stage {
        Stage::Custom => !policies.custom.is_empty(),
        Stage::Own => [&policies.deny, &policies.allow, &policies.audit].iter().any(|list| !list.is_empty()),
    };
    if wanted { env.ctx.get::<AuthorizationFilters>(guard) } else { Arc::default() }
}

fn peer(env: &Env<'_>, stage: Stage, tunnelled: bool) -> Peer {
    // Parity: external authorizers of a sidecar are asked about the certificate of the tunnel's inner connection.
    let noted = tunnelled && stage == Stage::Own;
    if noted || env.audience.role.kind == NodeKind::Waypoint { Peer::FilterState } else { Peer::Certificate }
}
