use std::sync::Arc;

use canopus_engine::Engine;
use canopus_mesh::proxy::Proxy;
use canopus_proto::envoy::config::core::v3::Node;
use canopus_proto::google::protobuf::{Struct, Value};
use canopus_xds::ResourceSet;

use super::*;
use crate::push::{Connections, Dispatcher, Observers};

/// A client that chooses its name and its version.
fn proxy(number: usize) -> Proxy {
    let version = ("ISTIO_VERSION".to_owned(), Value::from(format!("1.0.{number}")));
    let metadata = Some(Struct { fields: [version].into_iter().collect() });
    let id = format!("sidecar~10.0.0.1~client-{number}.default~default.svc.cluster.local");
    Proxy::new(&Node { id, metadata, ..Node::default() }, None).expect("a complete node")
}

#[test]
fn series_that_clients_name_end_with_their_last_client() {
    let registry = Registry::new();
    let observers = Observers::new([Arc::new(Metrics::new(&registry)) as Arc<dyn Observer>]);
    let dispatcher = Dispatcher::new(Engine::new(), Connections::new(observers.clone()), observers);
    let clients: Vec<_> = (0..200).map(|number| dispatcher.connect(proxy(number))).collect();
    for client in &clients {
        let nacked = SessionEvent::Nacked {
            type_url: types::CLUSTER.into(),
            nonce: "1".to_owned(),
            code: Code::Internal as i32,
            message: "no".to_owned(),
            accepted: ResourceSet::default(),
            refused: ResourceSet::default(),
        };
        dispatcher.connections().record(client, &nacked);
    }
    let series = |metric: &str| {
        let text = registry.encode();
        text.lines().filter(|line| line.starts_with(&format!("{metric}{{"))).count()
    };
    assert_eq!((series("pilot_xds"), series("pilot_xds_cds_reject")), (200, 200));
    for client in &clients {
        dispatcher.connections().disconnect(client);
    }
    assert_eq!((series("pilot_xds"), series("pilot_xds_cds_reject")), (MAX_VERSIONS, 0));
}
