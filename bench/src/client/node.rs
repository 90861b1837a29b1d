use std::collections::BTreeMap;

use canopus_proto::envoy::config::core::v3::Node;
use canopus_proto::google::protobuf::{Struct, Value};

/// Who a scripted proxy says it is.
#[derive(Clone, Debug)]
pub struct Role {
    /// Its place in the fleet, from which its address follows.
    pub index: usize,
    /// The namespace of its pod.
    pub namespace: String,
    /// The value of its label `app`.
    pub app: String,
}

impl Role {
    /// The node it introduces itself with, as an agent beside a sidecar writes it.
    pub fn node(&self) -> Node {
        let Self { index, namespace, app } = self;
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
        let labels = object([("app", app.as_str()), ("version", "v1")]);
        metadata.insert("LABELS".into(), Value::from(Struct::from(labels)));
        metadata.insert("PROXY_CONFIG".into(), Value::from(Struct::default()));
        Node {
            id: format!("sidecar~{address}~{pod}.{namespace}~{namespace}.svc.cluster.local"),
            cluster: format!("{app}.{namespace}"),
            metadata: Some(metadata.into()),
            ..Node::default()
        }
    }
}

fn object<'a>(texts: impl IntoIterator<Item = (&'a str, &'a str)>) -> BTreeMap<String, Value> {
    texts.into_iter().map(|(name, text)| (name.to_owned(), text.into())).collect()
}
