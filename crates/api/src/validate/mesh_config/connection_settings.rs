//! Limits of the connections of a proxy.

use canopus_proto::google::protobuf::{Duration, Int32Value};
use canopus_proto::istio::mesh::v1alpha1::proxy_config::ConnectionSettings;

use crate::validate::code::codes;
use crate::validate::duration;
use crate::validate::scope::Scope;

codes! {
    NEGATIVE: error "connection-setting-negative", "give 0 or more";
    NOT_POSITIVE: error "connection-setting-not-positive", "give 1 or more";
    SMALL_WINDOW: error "connection-window-too-small", "give at least 65535";
}

const MIN_WINDOW: i32 = 65535;

/// Checks the limits of the connections of a proxy.
pub fn check(settings: &ConnectionSettings, mut scope: Scope<'_>) {
    let buffers = [
        (
            "listenerPerConnectionBufferLimitBytes",
            "listener_per_connection_buffer_limit_bytes",
            settings.listener_per_connection_buffer_limit_bytes,
        ),
        (
            "clusterPerConnectionBufferLimitBytes",
            "cluster_per_connection_buffer_limit_bytes",
            settings.cluster_per_connection_buffer_limit_bytes,
        ),
    ];
    for (field, name, bytes) in buffers {
        scope
            .field(field)
            .add_if(is_below(bytes, 0), || NEGATIVE.says(format!("{name} must be non-negative")));
    }
    for (field, name, timeout) in timeouts(settings) {
        let negative = timeout.is_some_and(|timeout| duration::to_std(&timeout).is_negative());
        scope.field(field).add_if(negative, || NEGATIVE.says(format!("{name} must be non-negative")));
    }
    let streams = settings.http_max_concurrent_streams;
    positive("httpMaxConcurrentStreams", "http_max_concurrent_streams", streams, scope.again());
    let windows = [
        (
            "http2InitialStreamWindowSize",
            "http2_initial_stream_window_size",
            settings.http2_initial_stream_window_size,
        ),
        (
            "http2InitialConnectionWindowSize",
            "http2_initial_connection_window_size",
            settings.http2_initial_connection_window_size,
        ),
    ];
    for (field, name, window) in windows {
        scope.field(field).add_if(is_below(window, MIN_WINDOW), || {
            SMALL_WINDOW.says(format!("{name} must be at least 65535"))
        });
    }
    let limit = settings.listener_connection_limit;
    positive("listenerConnectionLimit", "listener_connection_limit", limit, scope.again());
    let limit = settings.global_downstream_connection_limit;
    positive("globalDownstreamConnectionLimit", "global_downstream_connection_limit", limit, scope);
}

fn timeouts(settings: &ConnectionSettings) -> [(&'static str, &'static str, Option<Duration>); 7] {
    [
        ("httpIdleTimeout", "http_idle_timeout", settings.http_idle_timeout),
        ("httpMaxConnectionDuration", "http_max_connection_duration", settings.http_max_connection_duration),
        ("httpDrainTimeout", "http_drain_timeout", settings.http_drain_timeout),
        ("httpRequestTimeout", "http_request_timeout", settings.http_request_timeout),
        ("httpRequestHeadersTimeout", "http_request_headers_timeout", settings.http_request_headers_timeout),
        ("httpStreamIdleTimeout", "http_stream_idle_timeout", settings.http_stream_idle_timeout),
        ("httpMaxStreamDuration", "http_max_stream_duration", settings.http_max_stream_duration),
    ]
}

fn is_below(setting: Option<Int32Value>, minimum: i32) -> bool {
    setting.is_some_and(|setting| setting.value < minimum)
}

fn positive(field: &'static str, name: &str, setting: Option<Int32Value>, mut scope: Scope<'_>) {
    scope.field(field).add_if(is_below(setting, 1), || NOT_POSITIVE.says(format!("{name} must be positive")));
}
