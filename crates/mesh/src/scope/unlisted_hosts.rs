//! Where routes lead that may be none of the services that everybody sees.

use std::collections::BTreeSet;
use std::sync::Arc;

use canopus_engine::{Ctx, Query};

use crate::service::{HostDefinitions, is_public};
use crate::virtual_service::{self, RouteLocator, RouteNamespaces, destination_hosts};

/// The hosts that routes of the mesh lead to and that are defined, but not just once and for everybody: who sees them
/// through a route depends on who looks.
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

/// Those that the routes of a namespace lead to.
struct UnlistedHostsIn;

impl Query for UnlistedHostsIn {
    const NAME: &'static str = "unlisted_hosts_in";
    type Key = Arc<str>;
    type Value = Vec<Arc<str>>;

    fn run(ctx: &Ctx<'_>, namespace: &Arc<str>) -> Self::Value {
        let is_stray = |host: &&Arc<str>| match &ctx.get::<HostDefinitions>(host)[..] {
            [] => false,
            [only] => !is_public(ctx, only),
            _ => true,
        };
        ctx.get::<RouteTargetsIn>(namespace).iter().filter(is_stray).cloned().collect()
    }
}

/// The hosts that the routes of a namespace lead to: they stay the same when the routes change in other ways.
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

/// The hosts that a route leads to.
struct RouteTargetsOf;

impl Query for RouteTargetsOf {
    const NAME: &'static str = "route_targets_of";
    type Key = RouteLocator;
    type Value = Vec<Arc<str>>;

    fn run(ctx: &Ctx<'_>, place: &RouteLocator) -> Self::Value {
        let route = place.route(ctx);
        route.iter().flat_map(|route| destination_hosts(&route.spec)).map(Arc::from).collect()
    }
}
