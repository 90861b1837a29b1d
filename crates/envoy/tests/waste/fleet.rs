//! An engine with the world of a mesh, and everything that connected proxies watch.

use std::collections::BTreeMap;

use canopus_api::{Object, Options, decode_documents};
use canopus_base::tree::Limits;
use canopus_engine::{Batch, Engine, Root};
use canopus_envoy::bundle::References;
use canopus_envoy::cluster::ListedClusters;
use canopus_envoy::config_keys::ConfigKeysOf;
use canopus_envoy::endpoint::Assignment;
use canopus_envoy::listener::ListedListeners;
use canopus_envoy::name_table::NameTables;
use canopus_envoy::resources::Resources;
use canopus_envoy::route_config::Routes;
use canopus_mesh::proxy::Proxy;
use canopus_mesh::world::{Objects, Origin};
use canopus_proto::resource::Resource;

use crate::objects::{Mesh, Pod};
use crate::proxies::proxy;

/// The watched results of one proxy.
struct Session {
    proxy: Proxy,
    keys: Root<ConfigKeysOf>,
    clusters: Root<ListedClusters>,
    listeners: Root<ListedListeners>,
    assignments: Vec<Root<Assignment>>,
    routes: Vec<Root<Routes>>,
    /// Gateways and waypoints have no application whose DNS queries are answered.
    names: Option<Root<NameTables>>,
}

/// A mesh with its connected proxies.
pub(crate) struct Fleet {
    pub(crate) mesh: Mesh,
    engine: Engine,
    sessions: BTreeMap<String, Session>,
}

fn decode(document: &str) -> (Origin, Object) {
    let decoded = decode_documents(document, &Limits::default(), Options::watch()).remove(0);
    let object = decoded.unwrap_or_else(|error| panic!("{error:?}\n{document}")).value;
    (Origin::new("Kubernetes", object.key()), object)
}

fn all(resources: &Resources) -> Vec<Resource> {
    resources.iter().cloned().collect()
}

impl Session {
    fn new(engine: &Engine, proxy: Proxy) -> Self {
        let keys = engine.watch::<ConfigKeysOf>(proxy.clone());
        let own = keys.value().unwrap();
        let clusters = engine.watch::<ListedClusters>(own.clusters.clone());
        let listeners = engine.watch::<ListedListeners>(own.listeners.clone());
        let (assignments, routes) = (Vec::new(), Vec::new());
        let mut session = Self { proxy, keys, clusters, listeners, assignments, routes, names: None };
        session.follow(engine);
        session
    }

    /// Asks for what the clusters and listeners refer to now.
    fn follow(&mut self, engine: &Engine) {
        let keys = self.keys.value().unwrap();
        // What is no longer asked for is let go only once the rest is watched, as sessions do it.
        self.clusters = engine.watch::<ListedClusters>(keys.clusters.clone());
        self.listeners = engine.watch::<ListedListeners>(keys.listeners.clone());
        let audiences = &keys.audiences;
        let references =
            References::find(&all(&self.clusters.value().unwrap()), &all(&self.listeners.value().unwrap()));
        let assignments = references.assignments.into_iter().map(|name| (audiences.endpoints.clone(), name));
        let routes = references.routes.into_iter().map(|name| (audiences.routes.clone(), name));
        let assignments = engine.watch_all::<Assignment>(assignments);
        let routes = engine.watch_all::<Routes>(routes);
        self.names = (!self.proxy.is_gateway()).then(|| engine.watch::<NameTables>(audiences.names.clone()));
        (self.assignments, self.routes) = (assignments, routes);
    }
}

impl Fleet {
    /// A mesh whose proxies are all connected.
    pub(crate) fn connected(mesh: Mesh) -> Self {
        let engine = Engine::new();
        let mut batch = Batch::new();
        for (origin, object) in mesh.objects().iter().map(|document| decode(document)) {
            batch.set::<Objects>(origin, object);
        }
        engine.apply(batch);
        let mut fleet = Self { mesh, engine, sessions: BTreeMap::new() };
        for pod in fleet.mesh.proxied_pods() {
            fleet.connect(pod);
        }
        fleet
    }

    pub(crate) fn connect(&mut self, pod: Pod) {
        self.sessions.insert(pod.name(), Session::new(&self.engine, proxy(&pod)));
    }

    pub(crate) fn disconnect(&mut self, pod: &Pod) {
        let session = self.sessions.remove(&pod.name()).unwrap();
        assert_eq!(session.proxy, proxy(pod));
    }

    /// Sets an object; every proxy asks for what it then lacks.
    pub(crate) fn set(&mut self, document: &str) {
        let (origin, object) = decode(document);
        self.apply(std::mem::take(Batch::new().set::<Objects>(origin, object)));
    }

    /// Removes an object.
    pub(crate) fn remove(&mut self, document: &str) {
        let (origin, _) = decode(document);
        self.apply(std::mem::take(Batch::new().remove::<Objects>(&origin)));
    }

    fn apply(&mut self, batch: Batch) {
        let changed = self.engine.apply(batch).changed;
        for session in self.sessions.values_mut() {
            let own = [session.clusters.id(), session.listeners.id(), session.keys.id()];
            if own.iter().any(|id| changed.contains(id)) {
                session.follow(&self.engine);
            }
        }
    }
}
