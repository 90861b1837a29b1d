//! What the proxies of pods say about themselves.

use std::collections::BTreeMap;

use canopus_mesh::proxy::Proxy;
use canopus_proto::envoy::config::core::v3::{Locality, Node};
use canopus_proto::google::protobuf::{Struct, Value};

use crate::objects::{Pod, Purpose, REGION};

fn structure(fields: impl IntoIterator<Item = (String, String)>) -> Value {
    let fields: BTreeMap<_, _> = fields.into_iter().map(|(key, value)| (key, Value::from(value))).collect();
    Value::from(Struct::from(fields))
}

/// The proxy of a pod, with the metadata that an agent puts into its bootstrap.
pub(crate) fn proxy(pod: &Pod) -> Proxy {
    let (namespace, app, name, address) = (&pod.namespace, pod.app(), pod.name(), pod.address());
    let kind = match pod.purpose {
        Purpose::Gateway => "router",
        Purpose::Waypoint => "waypoint",
        _ => "sidecar",
    };
    let text = |value: &str| Value::from(value);
    let mut metadata = BTreeMap::from([
        ("ANNOTATIONS".to_owned(), structure([("kubernetes.io/config.seen".to_owned(), name.clone())])),
        ("CLUSTER_ID".to_owned(), text("Kubernetes")),
        ("ENVOY_PROMETHEUS_PORT".to_owned(), Value::from(15090.0)),
        ("ENVOY_STATUS_PORT".to_owned(), Value::from(15021.0)),
        ("INSTANCE_IPS".to_owned(), text(&address)),
        ("INTERCEPTION_MODE".to_owned(), text("REDIRECT")),
        ("ISTIO_VERSION".to_owned(), text("1.32.0")),
        ("LABELS".to_owned(), structure(pod.labels())),
        ("MESH_ID".to_owned(), text("cluster.local")),
        ("NAME".to_owned(), text(&name)),
        ("NAMESPACE".to_owned(), text(namespace)),
        ("NODE_NAME".to_owned(), text(&pod.node())),
        ("SERVICE_ACCOUNT".to_owned(), text(&app)),
        ("WORKLOAD_NAME".to_owned(), text(&app)),
    ]);
    if pod.purpose == Purpose::Gateway {
        metadata.insert("UNPRIVILEGED_POD".to_owned(), text("true"));
    }
    let node = Node {
        id: format!("{kind}~{address}~{name}.{namespace}~{namespace}.svc.cluster.local"),
        cluster: format!("{app}.{namespace}"),
        metadata: Some(Struct::from(metadata)),
        locality: Some(Locality { region: REGION.into(), zone: pod.zone(), ..Default::default() }),
        ..Default::default()
    };
    Proxy::new(&node, None).unwrap()
}
