//! The proxies of the pods in files, with everything each of them would receive.

use anyhow::Context as _;
use canopus_engine::{Batch, Engine, Snapshot};
use canopus_envoy::bundle::Bundle;
use canopus_envoy::simulate::Config;
use canopus_mesh::credential::{Account, SecretAccess};
use canopus_mesh::proxy::Proxy;
use canopus_mesh::world::{Objects, Origin};
use canopus_proto::Message as _;
use canopus_proto::envoy::config::listener::v3::Listener;
use canopus_proto::envoy::config::route::v3::RouteConfiguration;

use crate::files::{self, FileArguments, LoadedMesh};
use crate::global::Global;
use crate::proxy::ProxyArguments;

/// A world of files that proxies can be looked up in.
pub(crate) struct OfflineMesh {
    world: LoadedMesh,
    engine: Engine,
}

impl OfflineMesh {
    pub(crate) fn read(global: &Global, files: &FileArguments) -> anyhow::Result<Self> {
        let mut world = files::read(global, files)?;
        let engine = Engine::new();
        engine.apply(std::mem::take(&mut world.batch));
        Ok(Self { world, engine })
    }

    /// Removes an object; whether there was one.
    pub(crate) fn remove(&self, origin: &Origin) -> bool {
        let existed = self.engine.read::<Objects>(origin).is_some();
        let mut batch = Batch::new();
        batch.remove::<Objects>(origin);
        self.engine.apply(batch);
        existed
    }

    /// What could not be read.
    pub(crate) fn problems(&self) -> &[String] {
        &self.world.problems
    }

    /// The pods that have an address, as `name.namespace`.
    pub(crate) fn pods(&self) -> Vec<String> {
        let pods = self.world.pods.iter().map(|(_, pod)| pod);
        let with_address = pods.filter(|pod| !pod.status.pod_ip.is_empty() || !pod.status.pod_ips.is_empty());
        with_address.map(|pod| format!("{}.{}", pod.meta.name, pod.meta.namespace)).collect()
    }

    /// What the sidecar of a pod receives. Whoever can read the files can read the Secrets in them.
    pub(crate) fn bundle(&self, global: &Global, pod: &str) -> anyhow::Result<Bundle> {
        let (node, identity) = ProxyArguments::for_pod(pod).node(global, &self.world)?;
        let proxy = Proxy::new(&node, Some(identity.clone())).with_context(|| format!("pod {pod}"))?;
        let account = Account {
            cluster: proxy.metadata.cluster_id.as_str().into(),
            namespace: identity.namespace,
            name: identity.service_account,
        };
        let mut batch = Batch::new();
        batch.set::<SecretAccess>(account, true);
        self.engine.apply(batch);
        let snapshot: Snapshot = self.engine.snapshot();
        Ok(Bundle::generate(&snapshot, &proxy)?)
    }
}

/// The part of a bundle that decides where requests go.
pub(crate) fn routing(bundle: &Bundle) -> anyhow::Result<Config> {
    let listeners = bundle.listeners.iter().map(|resource| Listener::decode(resource.body.clone()));
    let routes = bundle.routes.iter().map(|resource| {
        let table = RouteConfiguration::decode(resource.body.clone())?;
        Ok((table.name.clone(), table))
    });
    Ok(Config {
        listeners: listeners.collect::<Result<_, _>>()?,
        routes: routes.collect::<Result<_, canopus_proto::DecodeError>>()?,
    })
}
