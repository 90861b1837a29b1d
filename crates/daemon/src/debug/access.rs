//! Access to debug endpoints.
//!
//! Whoever is on this machine may ask everything. Others have to prove who they are; what they may ask then depends on the
//! namespace they belong to.

use std::net::SocketAddr;
use std::pin::Pin;

use axum::http::HeaderMap;
use canopus_base::spiffe::Identity;
use canopus_runtime::flags::{DEBUG_ENDPOINT_AUTH_ALLOWED_NAMESPACES, ENABLE_DEBUG_ENDPOINT_AUTH};

use super::Debug;
use crate::push::Connection;

/// Endpoints that everybody may ask about the proxies of their own namespace.
const FOR_EVERYBODY: [&str; 3] = ["config_dump", "ndsz", "edsz"];

/// The caller of a debug endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// A caller on this machine, or one that need not authenticate.
    Trusted,
    /// A caller that proved this identity.
    Proven(Identity),
}

/// Finds out who sends a request.
pub trait Authenticator: Send + Sync + 'static {
    /// The identity that the headers of a request from this address prove; `None` if they prove none.
    fn authenticate<'a>(
        &'a self,
        address: Option<SocketAddr>,
        headers: &'a HeaderMap,
    ) -> Pin<Box<dyn Future<Output = Option<Identity>> + Send + 'a>>;
}

impl Debug {
    /// Whether a caller may ask an endpoint at all.
    pub(super) fn may_ask(&self, caller: &Caller, endpoint: &str) -> bool {
        self.home(caller).is_none() || FOR_EVERYBODY.contains(&endpoint)
    }

    /// Whether a caller may know of a client.
    pub(super) fn may_see(&self, caller: &Caller, client: &Connection) -> bool {
        self.home(caller).is_none_or(|home| home == client.proxy.namespace())
    }

    /// The namespace a caller is confined to; `None` if it is not.
    pub(super) fn home<'a>(&self, caller: &'a Caller) -> Option<&'a str> {
        let Caller::Proven(identity) = caller else { return None };
        let settings = self.settings();
        if !settings.flags.get(ENABLE_DEBUG_ENDPOINT_AUTH) {
            return None;
        }
        let namespace = &*identity.namespace;
        let allowed = settings.flags.get(DEBUG_ENDPOINT_AUTH_ALLOWED_NAMESPACES);
        let free = namespace == settings.root_namespace() || allowed.iter().any(|name| name == namespace);
        (!free).then_some(namespace)
    }
}
