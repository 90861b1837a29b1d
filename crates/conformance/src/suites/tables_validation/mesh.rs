//! The configuration of the mesh, its providers and networks, and parts of policies and extensions.

use anyhow::Context;
use canopus_api::istio::EnvoyFilter;
use canopus_api::validate::{self, envoy_filter, extension_provider, mesh_config, mesh_networks, telemetry};
use canopus_base::tree::{Map, Node, Value};
use canopus_proto::istio::mesh::v1alpha1::mesh_config::{ExtensionProvider, ServiceSettings};
use canopus_proto::json::{self, Unknown};

use super::entry::Entry;
use super::shared::{leaf, optional};
use super::{Check, Got};

pub(super) fn check(function: &str) -> Option<Check> {
    Some(match function {
        "ValidateControlPlaneAuthPolicy" => {
            |row| leaf(mesh_config::auth_policy(i32::try_from(row.integer("policy")?)?))
        }
        "ValidateMeshConfigProxyConfig" => |row| Ok(optional(row.message("in")?, mesh_config::proxy_config)),
        "validateMeshConfigDefaultTrafficPolicy" => {
            |row| Ok(optional(row.message("dtp")?, mesh_config::default_traffic_policy))
        }
        "validateMeshConfigDefaultInboundHTTPRetryPolicy" => {
            |row| Ok(optional(row.message("retry")?, mesh_config::inbound_retries))
        }
        "validateConnectionSettings" => {
            |row| Ok(optional(row.message("cs")?, mesh_config::connection_settings))
        }
        "validateServiceSettings" => |row| {
            let settings = [ServiceSettings { hosts: row.texts("hosts")?, ..Default::default() }];
            Ok(validate::fragment(|scope| mesh_config::service_settings(&settings, scope)).into())
        },
        "ValidateMeshNetworks" => |row| Ok(optional(row.message("mn")?, mesh_networks::check)),
        "validateExtensionProviderService" => |row| {
            let service = row.text("service")?;
            Ok(validate::fragment(|scope| extension_provider::service(service, scope)).into())
        },
        "validateEnvoyFilter" => |row| {
            let spec = row.message("in")?.context("no filter")?;
            let filter = EnvoyFilter::new("bar", "foo", spec);
            Ok(validate::fragment(|scope| envoy_filter::without_notice(&filter, scope)).into())
        },
        "validateTelemetryFilter" => {
            |row| leaf(telemetry::filter(&row.message("filter")?.context("no filter")?))
        }
        _ => return provider(function),
    })
}

/// The check of one kind of provider, by the function that was about it.
fn provider(function: &str) -> Option<Check> {
    let (_, kind) = function.split_once("alidateExtensionProvider")?;
    Some(match kind {
        "EnvoyExtAuthzHTTP" => |row| provided(row, "envoyExtAuthzHttp"),
        "EnvoyExtAuthzGRPC" => |row| provided(row, "envoyExtAuthzGrpc"),
        "TracingZipkin" => |row| provided(row, "zipkin"),
        "TracingLightStep" => |row| provided(row, "lightstep"),
        "TracingDatadog" => |row| provided(row, "datadog"),
        "TracingOpenCensusAgent" => |row| provided(row, "opencensus"),
        "TracingSkyWalking" => |row| provided(row, "skywalking"),
        "TracingOpentelemetry" => |row| provided(row, "opentelemetry"),
        "MetricsPrometheus" => |row| provided(row, "prometheus"),
        "Stackdriver" => |row| provided(row, "stackdriver"),
        "EnvoyFileAccessLog" => |row| provided(row, "envoyFileAccessLog"),
        "EnvoyOtelAls" => |row| provided(row, "envoyOtelAls"),
        "EnvoyHTTPAls" => |row| provided(row, "envoyHttpAls"),
        "EnvoyTCPAls" => |row| provided(row, "envoyTcpAls"),
        _ => return None,
    })
}

/// Checks a provider that has the settings of a row under this name.
fn provided(row: &Entry, field: &str) -> anyhow::Result<Got> {
    let settings = row.get("config").or_else(|| row.get("provider")).cloned().unwrap_or_default();
    let mut provider = Map::new();
    provider.insert(field, settings);
    let provider = json::read::<ExtensionProvider>(&Node::from(Value::Map(provider)), Unknown::Reject)?.value;
    Ok(validate::fragment(|scope| extension_provider::check(&provider, scope)).into())
}
