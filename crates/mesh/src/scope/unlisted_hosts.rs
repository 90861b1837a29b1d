//! Route destinations that the list of public services may not resolve the same way for every namespace.
//!
//! A route may send to a host that is restricted, or defined more than once. Which service that means depends on the
//! namespace that follows the route, so such hosts rule out the shared list of [`scope`](super)'s fast path for namespaces
//! that resolve them differently.

use std::collections::BTreeSet;
use std::sync::Arc;

use canopus_engine::{Ctx, Query};

use crate::service::{HostDefinitions, is_public};
use crate::virtual_service::{self, RouteLocator, RouteNamespaces, destination_hosts};

/// The destination hosts of all routes that exist, but not as a single public definition.
pub(super) struct UnlistedHosts;

impl Query for UnlistedHosts {
    const NAME: &'static str = "unlisted_hosts";
    type Key = ();
    type Value = BTreeSet<Arc<str>>;

    fn run(ctx: &Ctx<'_>, (): &()) -> Self::Value {
        let namespaces = ctx.get::<RouteNamespaces>(&());
        namespaces.iter().flat_map(|namespace| ctx.get::<UnlistedHostsIn>(namespace).to_vec()).collect()
    }
}

/// The unlisted hosts among the destinations of a namespace's routes.
struct UnlistedHostsIn;

impl Query for UnlistedHostsIn {
    const NAME: &'static str = "unlisted_hosts_in";
    type Key = Arc<str>;
    type Value = Vec<Arc<str>>;

    fn run(ctx: &Ctx<'_>, namespace: &Arc<str>) -> Self::Value {
        let is_unlisted = |host: &&Arc<str>| match &ctx.get::<HostDefinitions>(host)[..] {
            [] => false,
            [only] => !is_public(ctx, only),
            _ => true,
        };
        ctx.get::<RouteTargetsIn>(namespace).iter().filter(is_unlisted).cloned().collect()
    }
}

/// The destination hosts of a namespace's routes. They change less often than the routes do.
struct RouteTargetsIn;

impl Query for RouteTargetsIn {
    const NAME: &'static str = "route_targets_in";
    type Key = Arc<str>;
    type Value = BTreeSet<Arc<str>>;

    fn run(ctx: &Ctx<'_>, namespace: &Arc<str>) -> Self::Value {
        let routes = virtual_service::locators_in(ctx, namespace);
        routes.iter().flat_map(|route| ctx.get::<RouteTargetsOf>(route).to_vec()).collect()
    }
}

/// The destination hosts of a route.
struct RouteTargetsOf;

impl Query for RouteTargetsOf {
    const NAME: &'static str = "route_targets_of";
    type Key = RouteLocator;
    type Value = Vec<Arc<str>>;

    fn run(ctx: &Ctx<'_>, locator: &RouteLocator) -> Self::Value {
        let route = locator.route(ctx);
        route.iter().flat_map(|route| destination_hosts(&route.spec)).map(Arc::from).collect()
    }
}
