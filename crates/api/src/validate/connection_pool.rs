//! Limits of connections to a host.

use canopus_proto::istio::networking::v1alpha3::ConnectionPoolSettings;
use canopus_proto::istio::networking::v1alpha3::connection_pool_settings::http_settings::{
    ConnectionKeepalive, H2UpgradePolicy,
};
use canopus_proto::istio::networking::v1alpha3::connection_pool_settings::{HttpSettings, TcpSettings};

use super::code::codes;
use super::duration;
use super::scope::Scope;

codes! {
    EMPTY: error "connection-pool-empty", "give http or tcp settings";
    NEGATIVE: error "connection-pool-limit-negative", "give a limit of 0 or more";
    UPGRADE_AND_CLIENT: error "connection-pool-upgrade-and-client-protocol",
        "use either h2UpgradePolicy UPGRADE or useClientProtocol";
    KEEPALIVE_INCOMPLETE: error "connection-pool-keepalive-incomplete", "give both interval and timeout";
}

/// Settings of one host, or of what comes in.
pub fn check(settings: &ConnectionPoolSettings, scope: Scope<'_>) {
    pool(settings, scope, |http, mut scope| {
        self::http(http, scope.again());
        scope.optional("http2KeepAlive", http.http2_keep_alive.as_ref(), keepalive);
    });
}

/// Settings of a whole mesh. Parity: Istio does not look at its keep-alives.
pub fn mesh_connection_pool(settings: &ConnectionPoolSettings, scope: Scope<'_>) {
    pool(settings, scope, http);
}

fn pool(
    settings: &ConnectionPoolSettings,
    mut scope: Scope<'_>,
    http: impl FnOnce(&HttpSettings, Scope<'_>),
) {
    if settings.http.is_none() && settings.tcp.is_none() {
        scope.add(EMPTY.says("connection pool must have at least one field"));
    }
    scope.optional("http", settings.http.as_ref(), http);
    scope.optional("tcp", settings.tcp.as_ref(), tcp);
}

fn not_negative(value: i32, words: &str, mut scope: Scope<'_>) {
    scope.add_if(value < 0, || NEGATIVE.says(format!("{words} must be non-negative")).with_value(value));
}

fn http(http: &HttpSettings, mut scope: Scope<'_>) {
    let limits = [
        ("http1MaxPendingRequests", http.http1_max_pending_requests, "http1 max pending requests"),
        ("http2MaxRequests", http.http2_max_requests, "http2 max requests"),
        ("maxRequestsPerConnection", http.max_requests_per_connection, "max requests per connection"),
        ("maxRetries", http.max_retries, "max retries"),
    ];
    for (field, value, words) in limits {
        not_negative(value, words, scope.field(field));
    }
    duration::optional(http.idle_timeout.as_ref(), scope.field("idleTimeout"));
    if http.h2_upgrade_policy() == H2UpgradePolicy::Upgrade && http.use_client_protocol {
        let message = "use client protocol must not be true when H2UpgradePolicy is UPGRADE";
        scope.field("useClientProtocol").add(UPGRADE_AND_CLIENT.says(message));
    }
    not_negative(http.max_concurrent_streams, "max concurrent streams", scope.field("maxConcurrentStreams"));
}

fn keepalive(keepalive: &ConnectionKeepalive, mut scope: Scope<'_>) {
    let fields = [("interval", &keepalive.interval), ("timeout", &keepalive.timeout)];
    for (field, value) in fields {
        let mut scope = scope.field(field);
        match value {
            Some(value) => scope.require(duration::positive(value)),
            None => {
                scope.add(KEEPALIVE_INCOMPLETE.says(format!("http2 keepalive {field} is required")));
            }
        }
    }
}

fn tcp(tcp: &TcpSettings, mut scope: Scope<'_>) {
    not_negative(tcp.max_connections, "max connections", scope.field("maxConnections"));
    duration::optional(tcp.connect_timeout.as_ref(), scope.field("connectTimeout"));
    duration::optional(tcp.max_connection_duration.as_ref(), scope.field("maxConnectionDuration"));
    // Parity: less than a millisecond counts as zero here, which switches the timeout off.
    let idle = tcp.idle_timeout.as_ref().filter(|idle| duration::to_std(idle).as_nanos() / 1_000_000 != 0);
    duration::optional(idle, scope.field("idleTimeout"));
    scope.optional("tcpKeepalive", tcp.tcp_keepalive.as_ref(), |keepalive, mut scope| {
        duration::optional(keepalive.time.as_ref(), scope.field("time"));
        duration::optional(keepalive.interval.as_ref(), scope.field("interval"));
    });
}
