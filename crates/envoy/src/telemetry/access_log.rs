//! Access logs of listeners, HTTP connection managers and TCP proxies.

mod file;
mod grpc;

use canopus_mesh::telemetry::logging;
use canopus_proto::envoy::config::accesslog::v3::access_log_filter::FilterSpecifier;
use canopus_proto::envoy::config::accesslog::v3::comparison_filter::Op;
use canopus_proto::envoy::config::accesslog::v3::{
    AccessLog, AccessLogFilter, AndFilter, ComparisonFilter, ExtensionFilter, ResponseFlagFilter,
    StatusCodeFilter, access_log::ConfigType, extension_filter,
};
use canopus_proto::envoy::config::core::v3::RuntimeUInt32;
use canopus_proto::envoy::extensions::access_loggers::filters::cel::v3::ExpressionFilter;
use canopus_proto::istio::mesh::v1alpha1::mesh_config::ExtensionProvider;
use canopus_proto::istio::mesh::v1alpha1::mesh_config::extension_provider::Provider;
use canopus_proto::{Any, Message, Name};

use crate::env::{Class, Env};

/// The provider that mesh configuration has from the start, whose format the mesh's own fields choose.
const BUILT_IN: &str = "envoy";

/// The logs of an HTTP connection manager.
pub(crate) fn http(env: &Env<'_>, class: Class) -> Vec<AccessLog> {
    chosen(env, class, None).unwrap_or_else(|| mesh_logs(env, grpc::http_of_bootstrap))
}

/// The logs of a TCP proxy.
pub(crate) fn tcp(env: &Env<'_>, class: Class) -> Vec<AccessLog> {
    chosen(env, class, None).unwrap_or_else(|| mesh_logs(env, grpc::tcp_of_bootstrap))
}

/// The logs of a listener, for connections that no filter chain takes and so nothing else logs.
pub(crate) fn listener(env: &Env<'_>, class: Class) -> Vec<AccessLog> {
    if env.mesh().disable_envoy_listener_log {
        return Vec::new();
    }
    let filter = flagged("NR");
    let mesh_logs = || filtered(mesh_logs(env, grpc::listener_of_bootstrap), &filter);
    chosen(env, class, Some(&filter)).unwrap_or_else(mesh_logs)
}

/// The logs of a tunnel that is opened: of those that cannot be. What goes through it is logged elsewhere.
pub(crate) fn tunnel(env: &Env<'_>, class: Class) -> Vec<AccessLog> {
    let filter = flagged("UF");
    let mesh_logs = || filtered(mesh_file_log(env).into_iter().collect(), &filter);
    chosen(env, class, Some(&filter)).unwrap_or_else(mesh_logs)
}

/// The logs of a tunnel that is passed on as it is.
pub(crate) fn passed_on(env: &Env<'_>, class: Class) -> Vec<AccessLog> {
    // Parity: what the mesh's own fields say is not narrowed to failures.
    chosen(env, class, Some(&flagged("UF"))).unwrap_or_else(|| mesh_logs(env, grpc::tcp_of_bootstrap))
}

/// The logs of a tunnel that ends here: of those that were refused.
pub(crate) fn tunnel_end(env: &Env<'_>, class: Class) -> Vec<AccessLog> {
    let filter = failed();
    let mesh_logs = || filtered(mesh_file_log(env).into_iter().collect(), &filter);
    chosen(env, class, Some(&filter)).unwrap_or_else(mesh_logs)
}

/// Logs to the providers in force, by name; `None` if there are none, which leaves it to the mesh's own fields.
fn chosen(env: &Env<'_>, class: Class, filter: Option<&AccessLogFilter>) -> Option<Vec<AccessLog>> {
    let defaults = env.mesh().default_providers.as_ref().map_or(&[][..], |defaults| &defaults.access_logging);
    let merged = logging::merge(&env.telemetry().logging, defaults, super::side(class));
    let mut found: Vec<_> =
        merged.iter().filter_map(|(name, log)| Some((super::provider(env, name)?, log))).collect();
    found.sort_by(|(a, _), (b, _)| a.name.cmp(&b.name));
    let known = found.into_iter().filter_map(|(provider, log)| Some((provider_log(env, provider)?, log)));
    let known: Vec<_> = known.collect();
    if known.is_empty() {
        return None;
    }
    // What is to be logged of what cannot be told is nothing: everything might be too much.
    let is_readable = |log: &logging::Log| {
        let filter = log.filter.as_ref();
        filter.is_none_or(|filter| super::expression::is_readable(env.ctx, &filter.expression))
    };
    let enabled = known.into_iter().filter(|(_, log)| !log.disabled && is_readable(log));
    let logs = enabled.map(|(log, wanted)| {
        let written = wanted.filter.as_ref().map(|filter| expression(&filter.expression));
        AccessLog { filter: all_of(filter.cloned().into_iter().chain(written).collect()), ..log }
    });
    Some(logs.collect())
}

fn filtered(mut logs: Vec<AccessLog>, filter: &AccessLogFilter) -> Vec<AccessLog> {
    for log in &mut logs {
        log.filter = Some(filter.clone());
    }
    logs
}

/// Filter that passes what all of `filters` pass.
fn all_of(mut filters: Vec<AccessLogFilter>) -> Option<AccessLogFilter> {
    if filters.len() < 2 {
        return filters.pop();
    }
    let filter_specifier = Some(FilterSpecifier::AndFilter(AndFilter { filters }));
    Some(AccessLogFilter { filter_specifier })
}

/// Filter that passes what a CEL expression is true of.
fn expression(expression: &str) -> AccessLogFilter {
    let config = ExpressionFilter { expression: expression.to_owned(), ..Default::default() };
    let extension = ExtensionFilter {
        name: "envoy.access_loggers.extension_filters.cel".into(),
        config_type: Some(extension_filter::ConfigType::TypedConfig(Any::pack(&config))),
    };
    AccessLogFilter { filter_specifier: Some(FilterSpecifier::ExtensionFilter(extension)) }
}

fn provider_log(env: &Env<'_>, provider: &ExtensionProvider) -> Option<AccessLog> {
    match provider.provider.as_ref()? {
        Provider::EnvoyFileAccessLog(log) => {
            let plain = log.log_format.is_none() && !log.omit_empty_values;
            Some(if provider.name == BUILT_IN && plain {
                file::mesh_log(env.mesh(), &log.path)
            } else {
                file::provider_log(log)
            })
        }
        Provider::EnvoyHttpAls(log) => grpc::http(env, log),
        Provider::EnvoyTcpAls(log) => grpc::tcp(env, log),
        Provider::EnvoyOtelAls(log) => grpc::open_telemetry(env, log),
        _ => None,
    }
}

/// What the mesh's own fields say: a file, and the log service of the bootstrap.
fn mesh_logs(env: &Env<'_>, service: impl Fn() -> AccessLog) -> Vec<AccessLog> {
    let service = env.mesh().enable_envoy_access_log_service.then(service);
    mesh_file_log(env).into_iter().chain(service).collect()
}

fn mesh_file_log(env: &Env<'_>) -> Option<AccessLog> {
    let mesh = env.mesh();
    (!mesh.access_log_file.is_empty()).then(|| file::mesh_log(mesh, &mesh.access_log_file))
}

/// Filter on a response flag: "NR" where no chain or route was found, "UF" where a connection failed.
fn flagged(flag: &str) -> AccessLogFilter {
    let flags = ResponseFlagFilter { flags: vec![flag.into()] };
    AccessLogFilter { filter_specifier: Some(FilterSpecifier::ResponseFlagFilter(flags)) }
}

/// Filter that passes answers whose status is an error of client or server.
fn failed() -> AccessLogFilter {
    let comparison = ComparisonFilter {
        op: Op::Ge as i32,
        // Envoy wants a key by which the number could be changed at run time.
        value: Some(RuntimeUInt32 { default_value: 400, runtime_key: "istio.io/unset".into() }),
    };
    let status = StatusCodeFilter { comparison: Some(comparison) };
    AccessLogFilter { filter_specifier: Some(FilterSpecifier::StatusCodeFilter(status)) }
}

/// A logger under its well-known name.
pub(super) fn log<M: Message + Name>(name: &str, config: &M) -> AccessLog {
    AccessLog {
        name: name.into(),
        config_type: Some(ConfigType::TypedConfig(Any::pack(config))),
        ..Default::default()
    }
}
