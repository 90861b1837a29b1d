//! What proxies receive for the worlds in `tests/goldens/`.
//!
//! `<name>.in.yaml` is a stream of objects; `<name>.<proxy>.yaml` is everything that proxy gets. Run with
//! `UPDATE_GOLDEN=1` to write what is generated, then read the difference before committing it.
#![expect(clippy::unwrap_used, reason = "a test that cannot read its files has failed")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use canopus_api::{Options, decode_documents};
use canopus_base::tree::{Limits, Map, Node, Value};
use canopus_base::yaml;
use canopus_engine::{Batch, Engine};
use canopus_envoy::bundle::Bundle;
use canopus_mesh::proxy::Proxy;
use canopus_mesh::world::{Objects, Origin};
use canopus_proto::descriptors::{self, DynamicMessage};
use canopus_proto::envoy::config::cluster::v3::Cluster;
use canopus_proto::envoy::config::core::v3::{self as proto, Extension};
use canopus_proto::envoy::config::endpoint::v3::ClusterLoadAssignment;
use canopus_proto::envoy::config::listener::v3::Listener;
use canopus_proto::envoy::config::route::v3::RouteConfiguration;
use canopus_proto::google::protobuf::{Struct, Value as ProtoValue};
use canopus_proto::resource::Resource;
use canopus_proto::{Name, json};

/// A gateway proxy that is Istio's own, and one that says it has no extension of Istio's.
fn proxies() -> [(&'static str, Proxy); 2] {
    let text = |value: &str| ProtoValue::from(value);
    let labels = Struct::from(BTreeMap::from([("istio".to_owned(), text("ingressgateway"))]));
    let metadata = BTreeMap::from([
        ("CLUSTER_ID".to_owned(), text("Kubernetes")),
        ("MESH_ID".to_owned(), text("cluster.local")),
        ("NAMESPACE".to_owned(), text("edge")),
        ("LABELS".to_owned(), ProtoValue::from(labels)),
    ]);
    let proxy = |extensions: &[&str]| {
        let node = proto::Node {
            id: "router~10.0.0.1~gateway.edge~edge.svc.cluster.local".to_owned(),
            metadata: Some(Struct::from(metadata.clone())),
            extensions: extensions
                .iter()
                .map(|known| Extension { type_urls: vec![(*known).to_owned()], ..Default::default() })
                .collect(),
            ..Default::default()
        };
        Proxy::new(&node, None).unwrap()
    };
    [("istio", proxy(&[])), ("stock", proxy(&["envoy.extensions.filters.http.router.v3.Router"]))]
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
    for (name, proxy) in proxies() {
        let golden = PathBuf::from(format!("{base}.{name}.yaml"));
        let generated = yaml::node_to_string(&everything(&engine, &proxy));
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
        batch.set::<Objects>(Origin::new("Kubernetes", object.key()), object);
    }
    engine.apply(batch);
    engine
}

/// All resources of a proxy.
fn everything(engine: &Engine, proxy: &Proxy) -> Node {
    let bundle = Bundle::of(&engine.snapshot(), proxy).unwrap();
    let mut all = Map::new();
    all.insert("clusters", printed::<Cluster>(&bundle.clusters));
    all.insert("endpoints", printed::<ClusterLoadAssignment>(&bundle.endpoints));
    all.insert("listeners", printed::<Listener>(&bundle.listeners));
    all.insert("routes", printed::<RouteConfiguration>(&bundle.routes));
    Value::Map(all).into()
}

fn printed<M: Name>(resources: &[Resource]) -> Node {
    let print = |resource: &Resource| {
        json::write_dynamic(&DynamicMessage::decode(descriptors::of::<M>(), resource.body.clone()).unwrap())
    };
    Value::List(resources.iter().map(print).collect()).into()
}
