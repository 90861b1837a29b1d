//! What a proxy is configured with, as keys of results that proxies share.
//!
//! An audience is such a key where resources are asked for by name. Clusters and listeners come as whole lists, put together from
//! groups that have audiences of their own. [`ConfigKeys`] has the audiences of a proxy and the keys of its two lists, so
//! that a list is kept once for all proxies that get the same, and only the keys for each proxy.

use std::sync::Arc;

use canopus_engine::{Ctx, Query};
use canopus_mesh::proxy::Proxy;

use crate::audience::{Audiences, AudiencesOf, Shared};
use crate::cluster::{self, ClusterList};
use crate::listener::{self, ListenerList};

/// The keys of all that a proxy is configured with.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigKeys {
    /// The proxy's audience for each family.
    pub audiences: Arc<Audiences>,
    /// The list of its clusters, shared by all proxies that get the same.
    pub clusters: Shared<ClusterList>,
    /// The list of its listeners, shared likewise.
    pub listeners: Shared<ListenerList>,
}

/// [`ConfigKeys`] of all proxies.
pub struct ConfigKeysOf;

impl Query for ConfigKeysOf {
    const NAME: &'static str = "config_keys_of";
    type Key = Proxy;
    type Value = ConfigKeys;

    fn run(ctx: &Ctx<'_>, proxy: &Proxy) -> ConfigKeys {
        let audiences = ctx.get::<AudiencesOf>(proxy);
        let clusters = cluster::list(ctx, proxy, &audiences);
        let listeners = listener::list(ctx, proxy, &audiences);
        ConfigKeys { audiences, clusters, listeners }
    }
}
