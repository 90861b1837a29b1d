//! What a connected proxy gets: the xDS server's questions, answered by the engine.

use std::sync::Arc;

use canopus_engine::{Engine, Query, QueryError};
use canopus_envoy::cluster::Clusters;
use canopus_envoy::endpoint::Assignment;
use canopus_envoy::extension::Extensions;
use canopus_envoy::listener::Listeners;
use canopus_envoy::name_table::NameTables;
use canopus_envoy::proxyless;
use canopus_envoy::resources::Resources;
use canopus_envoy::route_config::Routes;
use canopus_envoy::secret::Secrets;
use canopus_mesh::proxy::{Proxy, View, ViewOf};
use canopus_proto::envoy::config::core::v3::Node;
use canopus_proto::resource::Resource;
use canopus_xds::{Code, ControlPlane, Interest, Peer, Refusal, ResourceSet, SessionEvent, types};
use tokio::sync::watch;
use tracing::{info, warn};

/// The mesh, as the xDS server sees it.
pub struct Mesh {
    engine: Engine,
    revision: watch::Receiver<u64>,
}

impl Mesh {
    /// Serves what `engine` knows; `revision` tells when to look again.
    pub fn new(engine: Engine, revision: watch::Receiver<u64>) -> Self {
        Self { engine, revision }
    }

    /// What a proxy asks for by name. A name nobody serves is answered too: the proxy waits for it.
    fn named<Q: Query<Value = Option<Resource>>>(
        &self,
        interest: &Interest,
        key: impl Fn(&str) -> Q::Key,
    ) -> Result<ResourceSet, QueryError> {
        let names = interest.names().into_iter().flat_map(|names| names.iter());
        names
            .filter_map(|name| {
                self.engine.get::<Q>(&key(name)).map(|found| found.as_ref().clone()).transpose()
            })
            .collect()
    }

    /// What a proxy gets without asking for names.
    fn all<Q: Query<Key = Proxy, Value = Resources>>(
        &self,
        proxy: &Proxy,
    ) -> Result<ResourceSet, QueryError> {
        self.engine.get::<Q>(proxy).map(|resources| resources.iter().cloned().collect())
    }
}

impl Mesh {
    /// What an Envoy gets.
    fn for_proxy(
        &self,
        proxy: &Proxy,
        view: &View,
        type_url: &str,
        interest: &Interest,
    ) -> Result<ResourceSet, QueryError> {
        let key = |name: &str| (view.clone(), name.to_owned());
        match type_url {
            types::CLUSTER => self.all::<Clusters>(proxy),
            types::LISTENER => self.all::<Listeners>(proxy),
            types::ENDPOINT => self.named::<Assignment>(interest, key),
            types::ROUTE => self.named::<Routes>(interest, key),
            types::SECRET => self.named::<Secrets>(interest, key),
            types::EXTENSION => self.named::<Extensions>(interest, key),
            types::NAME_TABLE => self
                .engine
                .get::<NameTables>(view)
                .map(|table| [table.as_ref().clone()].into_iter().collect()),
            _ => Ok(ResourceSet::default()),
        }
    }

    /// What a gRPC library gets, which asks for everything by name.
    fn for_library(
        &self,
        proxy: &Proxy,
        view: &View,
        type_url: &str,
        interest: &Interest,
    ) -> Result<ResourceSet, QueryError> {
        let key = |name: &str| (view.clone(), name.to_owned());
        match type_url {
            types::CLUSTER => self.named::<proxyless::Clusters>(interest, key),
            types::ENDPOINT => self.named::<Assignment>(interest, key),
            types::ROUTE => self.named::<proxyless::Routes>(interest, key),
            types::LISTENER => {
                let mut found = Vec::new();
                for name in interest.names().into_iter().flat_map(|names| names.iter()) {
                    let listeners =
                        self.engine.get::<proxyless::Listeners>(&(proxy.clone(), name.to_string()))?;
                    found.extend(listeners.iter().cloned());
                }
                Ok(ResourceSet::new(found))
            }
            _ => Ok(ResourceSet::default()),
        }
    }
}

impl ControlPlane for Mesh {
    type Client = Proxy;

    async fn connect(&self, peer: &Peer, node: Node) -> Result<Arc<Proxy>, Refusal> {
        let proxy = Proxy::new(&node, None)
            .map_err(|error| Refusal::new(Code::InvalidArgument, error.to_string()))?;
        info!(proxy = proxy.node_id, peer = ?peer.address, "connected");
        Ok(Arc::new(proxy))
    }

    fn resources(&self, proxy: &Proxy, type_url: &str, interest: &Interest) -> Result<ResourceSet, Refusal> {
        let set = self.engine.get::<ViewOf>(proxy).and_then(|view| {
            if view.is_proxyless() {
                self.for_library(proxy, &view, type_url, interest)
            } else {
                self.for_proxy(proxy, &view, type_url, interest)
            }
        });
        set.map_err(|error| {
            warn!(proxy = proxy.node_id, type_url, %error, "cannot be generated");
            Refusal::new(Code::Internal, error.to_string())
        })
    }

    fn revisions(&self, _proxy: &Proxy) -> watch::Receiver<u64> {
        self.revision.clone()
    }

    fn observe(&self, proxy: &Proxy, event: SessionEvent) {
        if let SessionEvent::Nacked { type_url, message, .. } = event {
            warn!(proxy = proxy.node_id, %type_url, %message, "rejected by the proxy");
        }
    }

    fn disconnect(&self, proxy: &Proxy) {
        info!(proxy = proxy.node_id, "disconnected");
    }
}
