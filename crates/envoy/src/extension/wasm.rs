//! Modules and the machines that run them.

use std::collections::BTreeMap;

use canopus_api::url::Url;
use canopus_engine::Ctx;
use canopus_mesh::credential::registry_password;
use canopus_mesh::extension::{Extension, is_for};
use canopus_proto::Any;
use canopus_proto::envoy::config::core::v3::async_data_source::Specifier;
use canopus_proto::envoy::config::core::v3::http_uri::HttpUpstreamType;
use canopus_proto::envoy::config::core::v3::{
    AsyncDataSource, DataSource, HttpUri, RemoteDataSource, data_source,
};
use canopus_proto::envoy::extensions::wasm::v3::plugin_config::Vm;
use canopus_proto::envoy::extensions::wasm::v3::{
    EnvironmentVariables, FailurePolicy, PluginConfig, VmConfig,
};
use canopus_proto::google::protobuf::{Duration, StringValue};
use canopus_proto::istio::extensions::v1alpha1::{EnvValueSource, FailStrategy, PullPolicy, WasmConfig};
use canopus_proto::json;

use super::fronted;
use crate::audience::ExtensionAudience;

/// Variables of the Wasm VM's environment that are meant for the agent, which removes them.
const SECRET: &str = "ISTIO_META_WASM_IMAGE_PULL_SECRET";
const POLICY: &str = "ISTIO_META_WASM_IMAGE_PULL_POLICY";
const VERSION: &str = "ISTIO_META_WASM_PLUGIN_RESOURCE_VERSION";

const FETCH_TIMEOUT: Duration = Duration::from_secs(30);

/// The module of an extension; `None` if it runs none.
pub(super) fn config(
    ctx: &Ctx<'_>,
    audience: &ExtensionAudience,
    extension: &Extension,
) -> Option<PluginConfig> {
    let wasm = extension.wasm()?;
    let machine = VmConfig {
        runtime: "envoy.wasm.runtime.v8".into(),
        code: Some(code(wasm)?),
        environment_variables: Some(environment(ctx, audience, extension, wasm)),
        ..Default::default()
    };
    let failure_policy = match wasm.fail_strategy() {
        FailStrategy::FailClose => FailurePolicy::FailClosed,
        FailStrategy::FailOpen => FailurePolicy::FailOpen,
        FailStrategy::FailReload => FailurePolicy::FailReload,
    };
    Some(PluginConfig {
        name: format!("{}.{}", extension.namespace, extension.name),
        root_id: wasm.plugin_name.clone(),
        configuration: Some(configuration(wasm)),
        failure_policy: failure_policy as i32,
        vm: Some(Vm::VmConfig(machine)),
        ..Default::default()
    })
}

/// What the module is configured with: a document as a text, or nothing.
fn configuration(wasm: &WasmConfig) -> Any {
    match &wasm.plugin_config {
        Some(written) if !written.fields.is_empty() => {
            Any::pack(&StringValue::from(json::write(written).to_json().to_string()))
        }
        _ => Any::default(),
    }
}

/// Where the module is. What has no scheme is an image.
fn code(wasm: &WasmConfig) -> Option<AsyncDataSource> {
    let url = Url::parse(&wasm.url).ok()?;
    let specifier = if url.scheme == "file" {
        let path = wasm.url.strip_prefix("file://").unwrap_or(&wasm.url).to_owned();
        let specifier = Some(data_source::Specifier::Filename(path));
        Specifier::Local(DataSource { specifier, ..Default::default() })
    } else {
        let uri = if url.scheme.is_empty() { format!("oci://{}", wasm.url) } else { wasm.url.clone() };
        Specifier::Remote(RemoteDataSource {
            http_uri: Some(HttpUri {
                uri,
                timeout: Some(FETCH_TIMEOUT),
                // The agent fetches it, without a cluster.
                http_upstream_type: Some(HttpUpstreamType::Cluster("_".into())),
            }),
            sha256: wasm.sha256.clone(),
            ..Default::default()
        })
    };
    Some(AsyncDataSource { specifier: Some(specifier) })
}

fn environment(
    ctx: &Ctx<'_>,
    audience: &ExtensionAudience,
    extension: &Extension,
    wasm: &WasmConfig,
) -> EnvironmentVariables {
    let mut key_values = BTreeMap::from([(VERSION.to_owned(), extension.resource_version.clone())]);
    if let Some(name) = extension.pull_secret() {
        let is_entitled = audience.secrets.identity().is_some()
            && is_for(ctx, &audience.plugins, &fronted(ctx, audience), extension);
        let cluster = &audience.secrets.cluster;
        let found =
            is_entitled.then(|| registry_password(ctx, cluster, &extension.namespace, &name)).flatten();
        let password = found.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
        key_values.insert(SECRET.to_owned(), password);
    }
    if wasm.image_pull_policy() != PullPolicy::UnspecifiedPolicy {
        key_values.insert(POLICY.to_owned(), wasm.image_pull_policy().as_str_name().to_owned());
    }
    let mut host_env_keys = Vec::new();
    for variable in wasm.vm_config.iter().flat_map(|machine| &machine.env) {
        match variable.value_from() {
            EnvValueSource::Inline => {
                key_values.insert(variable.name.clone(), variable.value.clone());
            }
            EnvValueSource::Host => host_env_keys.push(variable.name.clone()),
        }
    }
    EnvironmentVariables { host_env_keys, key_values }
}
