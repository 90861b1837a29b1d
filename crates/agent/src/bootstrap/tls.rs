//! TLS towards services that the bootstrap itself names, with secrets from the agent.

use canopus_proto::istio::networking::v1alpha3::ClientTlsSettings;
use canopus_proto::istio::networking::v1alpha3::client_tls_settings::TlSmode;
use serde_json::{Map, Value, json};

use super::typed;
use crate::node::NodeMetadata;

/// A secret of this name from the agent.
pub(super) fn secret(name: &str) -> Value {
    json!({
        "name": name,
        "sds_config": {
            "api_config_source": {
                "api_type": "GRPC",
                "grpc_services": [{"envoy_grpc": {"cluster_name": "sds-grpc"}}],
                "set_node_on_first_message_only": true,
                "transport_api_version": "V3",
            },
            "resource_api_version": "V3",
        },
    })
}

/// The transport socket that these settings ask for; `None` without TLS.
pub(super) fn transport_socket(
    tls: &ClientTlsSettings,
    default_sni: &str,
    metadata: &NodeMetadata,
    http2: bool,
) -> Option<Value> {
    let or =
        |given: &str, otherwise: &str| if given.is_empty() { otherwise.to_owned() } else { given.to_owned() };
    let root = or(&metadata.tls_client_root_cert, &tls.ca_certificates);
    let file_root = (!root.is_empty()).then(|| format!("file-root:{root}"));
    let mode = TlSmode::try_from(tls.mode).ok()?;
    let (certificate, root, protocols, sni): (_, _, &[&str], _) = match mode {
        TlSmode::Disable => return None,
        TlSmode::Simple => (None, file_root, &["h2"], tls.sni.clone()),
        TlSmode::Mutual => {
            let certificate = or(&metadata.tls_client_cert_chain, &tls.client_certificate);
            let key = or(&metadata.tls_client_key, &tls.private_key);
            let both = !certificate.is_empty() && !key.is_empty();
            (both.then(|| format!("file-cert:{certificate}~{key}")), file_root, &["h2"], tls.sni.clone())
        }
        TlSmode::IstioMutual => {
            let sni = or(&tls.sni, default_sni);
            (Some("default".to_owned()), Some("ROOTCA".to_owned()), &["istio", "h2"], sni)
        }
    };
    let mut context = Map::new();
    if let Some(name) = certificate {
        context.insert("tls_certificate_sds_secret_configs".into(), json!([secret(&name)]));
    }
    let names: Vec<Value> = tls.subject_alt_names.iter().map(|name| json!({"exact": name})).collect();
    let mut validation = Map::new();
    let defaults = if names.is_empty() { json!({}) } else { json!({"match_subject_alt_names": names}) };
    validation.insert("default_validation_context".into(), defaults);
    if let Some(name) = root {
        validation.insert("validation_context_sds_secret_config".into(), secret(&name));
    }
    context.insert("combined_validation_context".into(), Value::Object(validation));
    if http2 {
        context.insert("alpn_protocols".into(), json!(protocols));
    }
    let fields = json!({"common_tls_context": context, "sni": sni});
    let config = typed("envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext", fields);
    Some(json!({"name": "envoy.transport_sockets.tls", "typed_config": config}))
}
