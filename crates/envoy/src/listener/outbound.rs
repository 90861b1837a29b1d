//! Listeners for what a sidecar's workload calls.

mod build;
mod plan;
mod tcp;

use std::collections::BTreeSet;
use std::sync::Arc;

use canopus_engine::{Ctx, Query};
use canopus_mesh::proxy::View;
use canopus_mesh::scope;
use canopus_proto::resource::Resource;

use self::plan::Plan;
use crate::env::Env;
use crate::names;

pub(super) use self::build::exact_balance;
pub(crate) use self::build::{connections_per_event, listener as build};
pub(crate) use self::plan::{Binding, Entry, plain_http};

/// Who shares outbound listeners: a view, and the proxy's own address where that makes a difference.
pub(super) type Audience = (View, Option<String>);

/// The outbound listeners of services.
pub(super) struct OutboundListeners;

impl Query for OutboundListeners {
    const NAME: &'static str = "outbound_listeners";
    type Key = Audience;
    type Value = Vec<Resource>;

    fn run(ctx: &Ctx<'_>, audience: &Audience) -> Self::Value {
        let plan = ctx.get::<Plans>(audience);
        let keys: Vec<_> = plan.listeners.iter().map(|entry| (audience.0.clone(), entry.clone())).collect();
        ctx.get_all::<Built>(&keys).iter().map(|built| built.as_ref().clone()).collect()
    }
}

/// What is planned for an audience.
struct Plans;

impl Query for Plans {
    const NAME: &'static str = "outbound_listener_plans";
    type Key = Audience;
    type Value = Plan;

    fn run(ctx: &Ctx<'_>, (view, own): &Audience) -> Plan {
        plan::plan(&Env::new(ctx, view), own.as_deref())
    }
}

/// The names of listeners on which connections to two services cannot be told apart, so that the older gets all.
pub(super) fn crowded(ctx: &Ctx<'_>, audience: &Audience) -> Vec<String> {
    let plan = ctx.get::<Plans>(audience);
    plan.crowded.iter().map(|(address, port)| names::listener(address, *port)).collect()
}

/// One listener of a plan, built. It is known by all that is planned for it, so a change of others does not touch it.
pub(super) struct Built;

impl Query for Built {
    const NAME: &'static str = "outbound_listener";
    type Key = (View, Arc<Entry>);
    type Value = Resource;

    fn run(ctx: &Ctx<'_>, (view, entry): &Self::Key) -> Self::Value {
        build(&Env::new(ctx, view), entry)
    }
}

/// The addresses of endpoints that have a listener of their own: a proxy at one of them gets all but that.
pub(super) struct EndpointAddresses;

impl Query for EndpointAddresses {
    const NAME: &'static str = "endpoint_listener_addresses";
    type Key = View;
    type Value = BTreeSet<String>;

    fn run(ctx: &Ctx<'_>, view: &View) -> Self::Value {
        let env = Env::new(ctx, view);
        let scope = scope::scope(ctx, view);
        let services = scope.listeners.iter().flat_map(|listener| listener.services.iter());
        let ports = services.flat_map(|service| service.ports.iter().map(move |port| (service, port)));
        ports
            .filter(|(service, port)| plan::listens_per_endpoint(service, view, &env, port))
            .flat_map(|(service, port)| plan::listening_endpoints(&env, service, port))
            .map(|endpoint| endpoint.address().to_owned())
            .collect()
    }
}
