//! Limits and timeouts of connections, as `connectionSettings` of the proxy configuration says.

use canopus_api::node::NodeKind;
use canopus_proto::envoy::config::core::v3::http_protocol_options::HeadersWithUnderscoresAction as Underscores;
use canopus_proto::envoy::extensions::filters::network::http_connection_manager::v3::HttpConnectionManager;
use canopus_proto::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::PathWithEscapedSlashesAction as EscapedSlashes;
use canopus_proto::google::protobuf::{Duration, Int32Value, UInt32Value};
use canopus_proto::istio::mesh::v1alpha1::proxy_config::ConnectionSettings;
use canopus_proto::istio::mesh::v1alpha1::proxy_config::connection_settings::{
    HeadersWithUnderscoresAction, PathWithEscapedSlashesAction, Profile,
};

use crate::env::Env;

/// The settings in force; a gateway at the edge has safe ones unless told otherwise.
pub(crate) fn resolve(env: &Env<'_>) -> Option<ConnectionSettings> {
    let of_mesh = env.mesh().default_config.as_ref().and_then(|config| config.connection_settings);
    let settings = env.audience.config.connection_settings.or(of_mesh)?;
    let at_edge = env.audience.role.kind == NodeKind::Router && settings.profile() == Profile::Edge;
    Some(if at_edge { with_edge_defaults(settings) } else { settings })
}

fn with_edge_defaults(settings: ConnectionSettings) -> ConnectionSettings {
    let number = |value| Some(Int32Value { value });
    let seconds = |value| Some(Duration::from_secs(value));
    let underscores = match settings.http_headers_with_underscores_action() {
        HeadersWithUnderscoresAction::HeadersWithUnderscoresUnspecified => {
            HeadersWithUnderscoresAction::HeadersWithUnderscoresRejectRequest
        }
        said => said,
    };
    let slashes = match settings.http_path_with_escaped_slashes_action() {
        PathWithEscapedSlashesAction::PathWithEscapedSlashesUnspecified => {
            PathWithEscapedSlashesAction::UnescapeAndRedirect
        }
        said => said,
    };
    ConnectionSettings {
        listener_per_connection_buffer_limit_bytes: settings
            .listener_per_connection_buffer_limit_bytes
            .or_else(|| number(32 << 10)),
        http_idle_timeout: settings.http_idle_timeout.or_else(|| seconds(3600)),
        http_stream_idle_timeout: settings.http_stream_idle_timeout.or_else(|| seconds(300)),
        http_request_timeout: settings.http_request_timeout.or_else(|| seconds(300)),
        http_request_headers_timeout: settings.http_request_headers_timeout.or_else(|| seconds(60)),
        http_max_concurrent_streams: settings.http_max_concurrent_streams.or_else(|| number(100)),
        http2_initial_stream_window_size: settings
            .http2_initial_stream_window_size
            .or_else(|| number(64 << 10)),
        http2_initial_connection_window_size: settings
            .http2_initial_connection_window_size
            .or_else(|| number(1 << 20)),
        http_headers_with_underscores_action: underscores as i32,
        http_merge_slashes: settings.http_merge_slashes.or_else(|| Some(true.into())),
        http_path_with_escaped_slashes_action: slashes as i32,
        ..settings
    }
}

/// Sets what the settings say; what they leave open stays as it is.
pub(super) fn apply(env: &Env<'_>, manager: &mut HttpConnectionManager) {
    let Some(settings) = resolve(env) else { return };
    apply_timeouts(&settings, manager);
    apply_http2(&settings, manager);
    apply_normalisation(&settings, manager);
}

fn apply_timeouts(settings: &ConnectionSettings, manager: &mut HttpConnectionManager) {
    let common = [
        settings.http_idle_timeout,
        settings.http_max_connection_duration,
        settings.http_max_stream_duration,
    ];
    if common.iter().any(Option::is_some) {
        let options = manager.common_http_protocol_options.get_or_insert_default();
        set(&mut options.idle_timeout, settings.http_idle_timeout);
        set(&mut options.max_connection_duration, settings.http_max_connection_duration);
        set(&mut options.max_stream_duration, settings.http_max_stream_duration);
    }
    set(&mut manager.stream_idle_timeout, settings.http_stream_idle_timeout);
    set(&mut manager.request_timeout, settings.http_request_timeout);
    set(&mut manager.request_headers_timeout, settings.http_request_headers_timeout);
    set(&mut manager.drain_timeout, settings.http_drain_timeout);
}

fn apply_http2(settings: &ConnectionSettings, manager: &mut HttpConnectionManager) {
    let said = [
        settings.http_max_concurrent_streams,
        settings.http2_initial_stream_window_size,
        settings.http2_initial_connection_window_size,
    ];
    if said.iter().all(Option::is_none) {
        return;
    }
    let options = manager.http2_protocol_options.get_or_insert_default();
    let [streams, stream_window, connection_window] = said.map(unsigned);
    set(&mut options.max_concurrent_streams, streams);
    set(&mut options.initial_stream_window_size, stream_window);
    set(&mut options.initial_connection_window_size, connection_window);
}

fn apply_normalisation(settings: &ConnectionSettings, manager: &mut HttpConnectionManager) {
    let underscores = match settings.http_headers_with_underscores_action() {
        HeadersWithUnderscoresAction::HeadersWithUnderscoresUnspecified => None,
        HeadersWithUnderscoresAction::HeadersWithUnderscoresAllow => Some(Underscores::Allow),
        HeadersWithUnderscoresAction::HeadersWithUnderscoresRejectRequest => Some(Underscores::RejectRequest),
        HeadersWithUnderscoresAction::HeadersWithUnderscoresDropHeader => Some(Underscores::DropHeader),
    };
    if let Some(action) = underscores {
        let options = manager.common_http_protocol_options.get_or_insert_default();
        options.headers_with_underscores_action = action as i32;
    }
    if let Some(merge) = settings.http_merge_slashes {
        manager.merge_slashes = merge.value;
    }
    let slashes = match settings.http_path_with_escaped_slashes_action() {
        PathWithEscapedSlashesAction::PathWithEscapedSlashesUnspecified => return,
        PathWithEscapedSlashesAction::KeepUnchanged => EscapedSlashes::KeepUnchanged,
        PathWithEscapedSlashesAction::RejectRequest => EscapedSlashes::RejectRequest,
        PathWithEscapedSlashesAction::UnescapeAndRedirect => EscapedSlashes::UnescapeAndRedirect,
        PathWithEscapedSlashesAction::UnescapeAndForward => EscapedSlashes::UnescapeAndForward,
    };
    manager.path_with_escaped_slashes_action = slashes as i32;
}

fn set<T>(field: &mut Option<T>, value: Option<T>) {
    if value.is_some() {
        *field = value;
    }
}

/// Negative numbers count as not said.
fn unsigned(value: Option<Int32Value>) -> Option<UInt32Value> {
    u32::try_from(value?.value).ok().map(Into::into)
}
