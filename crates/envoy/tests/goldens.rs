//! What proxies receive for the worlds in `tests/goldens/`.
//!
//! `<name>.in.yaml` is a stream of objects; `<name>.<proxy>.yaml` is everything that proxy gets. Run with
//! `UPDATE_GOLDEN=1` to write what is generated, then read the difference before committing it.
#![expect(clippy::unwrap_used, reason = "a test that cannot read its files has failed")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use canopus_api::{Options, decode_documents};
use canopus_base::tree::{Limits, Map, Node, Value};
use canopus_base::yaml;
use canopus_engine::{Batch, Engine};
use canopus_envoy::cluster::Clusters;
use canopus_envoy::endpoint::Assignment;
use canopus_envoy::listener::Listeners;
use canopus_envoy::route_config::Routes;
use canopus_mesh::proxy::{NodeType, View, ViewFacts};
use canopus_mesh::world::Objects;
use canopus_proto::descriptors::{self, DynamicMessage};
use canopus_proto::envoy::config::cluster::v3::Cluster;
use canopus_proto::envoy::config::endpoint::v3::ClusterLoadAssignment;
use canopus_proto::envoy::config::listener::v3::Listener;
use canopus_proto::envoy::config::route::v3::RouteConfiguration;
use canopus_proto::resource::Resource;
use canopus_proto::{Message as _, Name, json};

/// A gateway proxy that is Istio's own, and one that says it has no extension of Istio's.
fn proxies() -> [(&'static str, View); 2] {
    let facts = |extensions: Option<BTreeSet<String>>| {
        View::new(ViewFacts {
            node_type: NodeType::Router,
            namespace: "edge".into(),
            labels: [("istio".to_owned(), "ingressgateway".to_owned())].into(),
            cluster: "Kubernetes".into(),
            mesh: "cluster.local".into(),
            extensions,
        })
    };
    let router = "envoy.extensions.filters.http.router.v3.Router".to_owned();
    [("istio", facts(None)), ("stock", facts(Some([router].into())))]
}

#[test]
fn proxies_receive_what_the_goldens_say() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens");
    let mut inputs: Vec<PathBuf> =
        fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    inputs.retain(|path| path.to_str().is_some_and(|path| path.ends_with(".in.yaml")));
    assert!(!inputs.is_empty());
    let wrong: Vec<String> = inputs.iter().flat_map(|input| check(input)).collect();
    assert!(wrong.is_empty(), "{}\nUPDATE_GOLDEN=1 writes what is generated", wrong.join("\n"));
}

fn check(input: &Path) -> Vec<String> {
    let engine = world(&fs::read_to_string(input).unwrap());
    let base = input.to_str().unwrap().trim_end_matches(".in.yaml");
    let mut wrong = Vec::new();
    for (name, view) in proxies() {
        let golden = PathBuf::from(format!("{base}.{name}.yaml"));
        let generated = yaml::node_to_string(&everything(&engine, &view));
        #[expect(clippy::disallowed_methods, reason = "a switch of this test alone")]
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&golden, &generated).unwrap();
        } else if fs::read_to_string(&golden).unwrap_or_default() != generated {
            wrong.push(format!("{} differs from what is generated:\n{generated}", golden.display()));
        }
    }
    wrong
}

fn world(documents: &str) -> Engine {
    let engine = Engine::new();
    let mut batch = Batch::new();
    for outcome in decode_documents(documents, &Limits::default(), Options::strict()) {
        let object = outcome.unwrap().value;
        batch.set::<Objects>(object.key(), object);
    }
    engine.apply(batch);
    engine
}

/// All resources of a proxy, asked for as a proxy does: clusters and listeners, then what they refer to.
fn everything(engine: &Engine, view: &View) -> Node {
    let clusters = engine.get::<Clusters>(view).unwrap();
    let listeners = engine.get::<Listeners>(view).unwrap();
    let eds = clusters
        .iter()
        .filter(|cluster| Cluster::decode(cluster.body.clone()).unwrap().eds_cluster_config.is_some());
    let endpoints: Vec<_> = eds
        .map(|cluster| engine.get::<Assignment>(&cluster.name.to_string()).unwrap().as_ref().clone())
        .collect();
    let routes: Vec<_> = listeners
        .iter()
        .filter_map(|listener| listener.name.rsplit_once('_').map(|(_, port)| format!("http.{port}")))
        .map(|name| engine.get::<Routes>(&(view.clone(), name)).unwrap().as_ref().clone())
        .collect();
    let mut all = Map::new();
    all.insert("clusters", printed::<Cluster>(&clusters));
    all.insert("endpoints", printed::<ClusterLoadAssignment>(&endpoints));
    all.insert("listeners", printed::<Listener>(&listeners));
    all.insert("routes", printed::<RouteConfiguration>(&routes));
    Value::Map(all).into()
}

fn printed<M: Name>(resources: &[Resource]) -> Node {
    let print = |resource: &Resource| {
        json::write_dynamic(&DynamicMessage::decode(descriptors::of::<M>(), resource.body.clone()).unwrap())
    };
    Value::List(resources.iter().map(print).collect()).into()
}
