//! Envoy's runtime flags, and the limit on connections that one of them used to be.

use canopus_proto::istio::mesh::v1alpha1::ProxyConfig;
use serde_json::{Map, Value, json};

use super::BootstrapSettings;

const FIPS: &str = "fips-140-2";
const MAX_CONNECTIONS_FLAG: &str = "overload.global_downstream_max_connections";
const MAX_CONNECTIONS_METADATA: &str = "ISTIO_META_GLOBAL_DOWNSTREAM_MAX_CONNECTIONS";

pub(super) fn layers(config: &ProxyConfig, settings: &BootstrapSettings) -> Value {
    json!({"layers": [
        {"name": "global config", "static_layer": flags(config, settings)},
        {"name": "admin", "admin_layer": {}},
    ]})
}

pub(super) fn flags(config: &ProxyConfig, settings: &BootstrapSettings) -> Value {
    let mut flags = Map::new();
    let mut set = |name: &str, value: Value| drop(flags.insert(name.to_owned(), value));
    set("re2.max_program_size.error_level", "32768".into());
    let original_dst = "envoy.config.listener.v3.Listener.hidden_envoy_deprecated_use_original_dst";
    set(&format!("envoy.deprecated_features:{original_dst}"), true.into());
    set("envoy.reloadable_features.http_reject_path_with_fragment", false.into());
    set("envoy.reloadable_features.fixed_heap_use_allocated", true.into());
    set("envoy.reloadable_features.coalesce_lb_rebuilds_on_batch_update", false.into());
    if settings.compliance_policy == FIPS {
        set("envoy.reloadable_features.google_grpc_disable_tls_13", true.into());
    }
    if !settings.strip_fragment {
        // Parity: the text "false", as Istio writes this one flag.
        let flag = "envoy.reloadable_features.http_strip_fragment_from_path_unsafe_if_disabled";
        set(flag, "false".into());
    }
    for (name, text) in &config.runtime_values {
        match text.as_str() {
            "" => drop(flags.remove(name)),
            "true" => drop(flags.insert(name.clone(), true.into())),
            "false" => drop(flags.insert(name.clone(), false.into())),
            text => drop(flags.insert(name.clone(), text.into())),
        }
    }
    Value::Object(flags)
}

/// The most connections of clients: the setting, else the metadata, else the old runtime flag, else no limit.
pub(super) fn max_connections(config: &ProxyConfig) -> i64 {
    let setting = config.connection_settings.as_ref().and_then(|settings| {
        settings
            .global_downstream_connection_limit
            .as_ref()
            .map(|limit| limit.value.into())
            .filter(|limit| *limit > 0)
    });
    let number = |text: Option<&String>| text.and_then(|text| text.parse().ok());
    setting
        .or_else(|| number(config.proxy_metadata.get(MAX_CONNECTIONS_METADATA)))
        .or_else(|| number(config.runtime_values.get(MAX_CONNECTIONS_FLAG)))
        .unwrap_or_else(|| i32::MAX.into())
}
