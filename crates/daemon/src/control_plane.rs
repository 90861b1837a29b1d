//! What a connected proxy gets: the xDS server's questions, answered by the engine.

use std::sync::Arc;

use canopus_engine::{Engine, Query, QueryError};
use canopus_envoy::cluster::Clusters;
use canopus_envoy::endpoint::Assignment;
use canopus_envoy::listener::Listeners;
use canopus_envoy::resources::Resources;
use canopus_envoy::route_config::Routes;
use canopus_mesh::proxy::{Proxy, ViewOf};
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

impl ControlPlane for Mesh {
    type Client = Proxy;

    async fn connect(&self, peer: &Peer, node: Node) -> Result<Arc<Proxy>, Refusal> {
        let proxy = Proxy::new(&node, None)
            .map_err(|error| Refusal::new(Code::InvalidArgument, error.to_string()))?;
        info!(proxy = proxy.node_id, peer = ?peer.address, "connected");
        Ok(Arc::new(proxy))
    }

    fn resources(&self, proxy: &Proxy, type_url: &str, interest: &Interest) -> Result<ResourceSet, Refusal> {
        let view = self.engine.get::<ViewOf>(proxy).map_err(|error| refuse(proxy, type_url, &error))?;
        let set = match type_url {
            types::CLUSTER => self.all::<Clusters>(proxy),
            types::LISTENER => self.all::<Listeners>(proxy),
            types::ENDPOINT => {
                self.named::<Assignment>(interest, |name| (view.as_ref().clone(), name.to_owned()))
            }
            types::ROUTE => self.named::<Routes>(interest, |name| (view.as_ref().clone(), name.to_owned())),
            _ => Ok(ResourceSet::default()),
        };
        set.map_err(|error| refuse(proxy, type_url, &error))
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

fn refuse(proxy: &Proxy, type_url: &str, error: &QueryError) -> Refusal {
    warn!(proxy = proxy.node_id, type_url, %error, "cannot be generated");
    Refusal::new(Code::Internal, error.to_string())
}
