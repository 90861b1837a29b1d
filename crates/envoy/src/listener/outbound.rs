//! Listeners for what a sidecar's workload calls.

mod build;
mod plan;
mod tcp;

use std::collections::BTreeSet;
use std::sync::Arc;

use canopus_engine::{Ctx, Query};
use canopus_mesh::scope;
use canopus_proto::resource::Resource;

use self::plan::Plan;
use crate::audience::{ListenerAudience, Shared};
use crate::dns_cache;
use crate::env::Class;
use crate::env::Env;
use crate::names;
use canopus_api::node::NodeKind;
use canopus_mesh::audience::{Addressing, is_reduction_disabled};
use canopus_mesh::destination_rule::{RuleId, outbound_rule};
use canopus_mesh::scope::ScopeKey;
use canopus_mesh::service::Service;

pub(super) use self::build::exact_balance;
pub(crate) use self::build::{connections_per_event, listener as build};
pub(crate) use self::plan::{Binding, Entry, plain_http};

/// Identifies outbound listeners: an audience, and the proxy's own address where that makes a difference.
pub(super) type Audience = (Shared<ListenerAudience>, Option<String>);

/// The audience of outbound listeners, which knows policies of access only where it has to.
pub(super) fn guarded(
    ctx: &Ctx<'_>,
    outbound: &Shared<ListenerAudience>,
    inbound: &Shared<ListenerAudience>,
) -> Shared<ListenerAudience> {
    match *ctx.get::<ResolvesServerNames>(outbound.scope()) {
        true => outbound.with_access(ctx, inbound.access.clone()),
        false => outbound.clone(),
    }
}

/// Whether a scope has services whose names are resolved as connections to them come, which policies are enforced on.
struct ResolvesServerNames;

impl Query for ResolvesServerNames {
    const NAME: &'static str = "scope_resolves_server_names";
    type Key = ScopeKey;
    type Value = bool;

    fn run(ctx: &Ctx<'_>, key: &ScopeKey) -> bool {
        let services = scope::services(ctx, key);
        services.iter().any(|service| dns_cache::is_for(NodeKind::Sidecar, Class::Outbound, service))
    }
}

/// The outbound listeners of services.
pub(super) struct OutboundListeners;

impl Query for OutboundListeners {
    const NAME: &'static str = "outbound_listeners";
    type Key = Audience;
    type Value = Vec<Resource>;

    fn run(ctx: &Ctx<'_>, (audience, own): &Audience) -> Self::Value {
        let connections = audience.for_connections(ctx);
        let plan = ctx.get::<Plans>(&(connections.clone(), own.clone()));
        let is_whole = is_reduction_disabled(ctx);
        let (of_anybody, connections_of_anybody) =
            (audience.without_caller(ctx), connections.without_caller(ctx));
        let key = |entry: &Arc<Entry>| {
            // Which services the routes of a VirtualService lead to depends on what the caller sees.
            let audience = match (entry.is_routed() || is_whole, entry.has_http()) {
                (true, true) => audience,
                (true, false) => &connections,
                (false, true) => &of_anybody,
                (false, false) => &connections_of_anybody,
            };
            Listener {
                audience: audience.clone(),
                entry: entry.clone(),
                rules: rules(ctx, &connections, entry),
            }
        };
        let keys: Vec<_> = plan.listeners.iter().map(key).collect();
        ctx.get_all::<Built>(&keys).iter().map(|built| built.as_ref().clone()).collect()
    }
}

/// What is planned for an audience of connections.
struct Plans;

impl Query for Plans {
    const NAME: &'static str = "outbound_listener_plans";
    type Key = Audience;
    type Value = Plan;

    fn run(ctx: &Ctx<'_>, (audience, own): &Audience) -> Plan {
        plan::plan(&Env::new(ctx, audience), own.as_deref())
    }
}

/// The names of listeners on which connections to two services cannot be told apart, so that the older gets all.
pub(super) fn crowded(ctx: &Ctx<'_>, (audience, own): &Audience) -> Vec<String> {
    let plan = ctx.get::<Plans>(&(audience.for_connections(ctx), own.clone()));
    plan.crowded.iter().map(|(address, port)| names::listener(address, *port)).collect()
}

/// The DestinationRules for the services that chains of a listener lead to, chain by chain.
fn rules(ctx: &Ctx<'_>, audience: &ListenerAudience, entry: &Entry) -> Box<[Option<RuleId>]> {
    let rule = |service: &Service| outbound_rule(ctx, &audience.caller, &service.key());
    entry.services().map(|service| rule(service).map(|rule| rule.id.clone())).collect()
}

/// A listener to be built, with all that it depends on. Which rules are for the caller is settled, so that callers of
/// different namespaces share it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Listener {
    audience: Shared<ListenerAudience>,
    entry: Arc<Entry>,
    /// The rules for the services of its chains.
    rules: Box<[Option<RuleId>]>,
}

/// One listener of a plan, built. It is known by all that is planned for it, so a change of others does not touch it.
pub(super) struct Built;

impl Query for Built {
    const NAME: &'static str = "outbound_listener";
    type Key = Listener;
    type Value = Resource;

    fn run(ctx: &Ctx<'_>, Listener { audience, entry, rules }: &Listener) -> Self::Value {
        build(&Env::new(ctx, audience), entry, rules)
    }
}

/// The addresses of endpoints that have a listener of their own: a proxy at one of them gets all but that.
pub(super) struct EndpointAddresses;

impl Query for EndpointAddresses {
    const NAME: &'static str = "endpoint_listener_addresses";
    type Key = (ScopeKey, Addressing);
    type Value = BTreeSet<String>;

    fn run(ctx: &Ctx<'_>, (scope, addressing): &Self::Key) -> Self::Value {
        let scope = scope::scope(ctx, scope);
        let services = scope.listeners.iter().flat_map(|listener| listener.services.iter());
        let ports = services.flat_map(|service| service.ports.iter().map(move |port| (service, port)));
        ports
            .filter(|(service, port)| plan::listens_per_endpoint(service, addressing, port))
            .flat_map(|(service, port)| plan::listening_endpoints(ctx, service, port))
            .map(|endpoint| endpoint.address().to_owned())
            .collect()
    }
}
