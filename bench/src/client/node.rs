use std::collections::BTreeMap;

use canopus_proto::envoy::config::core::v3::Node;
use canopus_proto::google::protobuf::{Struct, Value};

/// The role that a scripted proxy claims.
#[derive(Clone, Debug, PartialEq)]
pub struct Role {
    /// Index of the proxy in the fleet.
    pub index: usize,
    /// The namespace of its pod.
    pub namespace: String,
    /// How it introduces itself.
    pub node: Node,
}

impl Role {
    /// A sidecar that says the same of itself as all others of its namespace, but for its name and address.
    pub fn plain(index: usize, namespace: &str, app: &str) -> Self {
        let pod = format!("{app}-{index}");
        let address = format!("10.64.{}.{}", index / 250 % 256, index % 250 + 1);
        let texts = [
            ("CLUSTER_ID", "Kubernetes"),
            ("INSTANCE_IPS", &address),
            ("ISTIO_VERSION", "1.32.0"),
            ("MESH_ID", "cluster.local"),
            ("NAME", &pod),
            ("NAMESPACE", namespace),
            ("SERVICE_ACCOUNT", "default"),
            ("WORKLOAD_NAME", app),
        ];
        let mut metadata = object(texts);
        let labels = object([("app", app), ("version", "v1")]);
        metadata.insert("LABELS".into(), Value::from(Struct::from(labels)));
        metadata.insert("PROXY_CONFIG".into(), Value::from(Struct::default()));
        let node = Node {
            id: format!("sidecar~{address}~{pod}.{namespace}~{namespace}.svc.cluster.local"),
            cluster: format!("{app}.{namespace}"),
            metadata: Some(metadata.into()),
            ..Node::default()
        };
        Self { index, namespace: namespace.to_owned(), node }
    }
}

fn object<'a>(texts: impl IntoIterator<Item = (&'a str, &'a str)>) -> BTreeMap<String, Value> {
    texts.into_iter().map(|(name, text)| (name.to_owned(), text.into())).collect()
}
