//! The bootstrap of applications that speak xDS themselves (proxyless gRPC).

use serde_json::{Value, json};

use crate::node::Node;

/// Where the agent leaves certificates for the application.
#[derive(Clone, Debug)]
pub struct CertificateDirectory(pub String);

/// The JSON of the bootstrap: the agent's socket as xDS server, and certificates from files.
pub fn grpc_bootstrap(node: &Node, socket: &str, certificates: Option<&CertificateDirectory>) -> Value {
    let mut metadata = node.metadata_json();
    metadata["GENERATOR"] = "grpc".into();
    let locality = &node.locality;
    let parts = [("region", &locality.region), ("zone", &locality.zone), ("subZone", &locality.sub_zone)];
    let given = parts.into_iter().filter(|(_, text)| !text.is_empty());
    let locality: serde_json::Map<String, Value> =
        given.map(|(key, text)| (key.to_owned(), text.clone().into())).collect();
    let mut bootstrap = json!({
        "xds_servers": [{
            "server_uri": format!("unix:///{}", socket.trim_start_matches('/')),
            "channel_creds": [{"type": "insecure"}],
            "server_features": ["xds_v3"],
        }],
        "node": {
            "id": node.id,
            "metadata": metadata,
            "locality": locality,
            // Parity: written by Istio's encoder, and there for readers that want it.
            "UserAgentVersionType": null,
        },
        "server_listener_resource_name_template": "xds.istio.io/grpc/lds/inbound/%s",
    });
    if let Some(CertificateDirectory(directory)) = certificates {
        let file = |name: &str| format!("{}/{name}", directory.trim_end_matches('/'));
        bootstrap["certificate_providers"] = json!({"default": {
            "plugin_name": "file_watcher",
            "config": {
                "certificate_file": file("cert-chain.pem"),
                "private_key_file": file("key.pem"),
                "ca_certificate_file": file("root-cert.pem"),
                "refresh_interval": "900s",
            },
        }});
    }
    bootstrap
}
