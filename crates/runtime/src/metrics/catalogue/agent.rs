//! The agent beside a proxy; its registry puts `istio_agent_` before each name.

super::metrics! {
    AGENT

    /// Seconds from start until the proxy was ready.
    Gauge STARTUP_DURATION_SECONDS = "startup_duration_seconds"[];

    /// Scrapes served.
    Counter SCRAPES_TOTAL = "scrapes_total"[];

    /// Scrapes of the proxy, the application or the agent that failed.
    Counter SCRAPE_FAILURES_TOTAL = "scrape_failures_total"["type"];

    /// Connections to the control plane that could not be made.
    Counter ISTIOD_CONNECTION_FAILURES = "istiod_connection_failures"[];

    /// Connections to the control plane that ended, by manner.
    Counter ISTIOD_CONNECTION_TERMINATIONS = "istiod_connection_terminations"["type"];

    /// Connections from the proxy that ended, by manner.
    Counter ENVOY_CONNECTION_TERMINATIONS = "envoy_connection_terminations"["type"];

    /// Whether a control plane serves the proxy: 1, or 0 while it is away.
    Gauge CONTROL_PLANE_CONNECTED = "control_plane_connected"[];

    /// Streams of the proxy that were served from the last good state.
    Counter LAST_GOOD_STREAMS_TOTAL = "last_good_streams_total"[];

    /// Bytes of the last good state on disk.
    Gauge LAST_GOOD_BYTES = "last_good_bytes"[];

    /// Requests passed on from the proxy.
    Counter XDS_PROXY_REQUESTS = "xds_proxy_requests"[];

    /// Responses passed on to the proxy.
    Counter XDS_PROXY_RESPONSES = "xds_proxy_responses"[];

    /// Name look-ups received.
    Counter DNS_REQUESTS_TOTAL = "dns_requests_total"[];

    /// Name look-ups passed on to a name server.
    Counter DNS_UPSTREAM_REQUESTS_TOTAL = "dns_upstream_requests_total"[];

    /// Name look-ups that no name server answered.
    Counter DNS_UPSTREAM_FAILURES_TOTAL = "dns_upstream_failures_total"[];

    /// Seconds a name server takes to answer.
    Histogram DNS_UPSTREAM_REQUEST_DURATION_SECONDS = "dns_upstream_request_duration_seconds"[]
        in [0.001, 0.005, 0.01, 0.1, 1.0, 5.0];

    /// Requests to the certificate authority.
    Counter NUM_OUTGOING_REQUESTS = "num_outgoing_requests"["request_type"];

    /// Requests to the certificate authority that failed.
    Counter NUM_FAILED_OUTGOING_REQUESTS = "num_failed_outgoing_requests"["request_type"];

    /// Requests to the certificate authority that were repeated.
    Counter NUM_OUTGOING_RETRIES = "num_outgoing_retries"["request_type"];

    /// Milliseconds spent in requests to the certificate authority.
    Counter OUTGOING_LATENCY = "outgoing_latency"["request_type"];

    /// Certificate files that could not be watched.
    Counter NUM_FILE_WATCHER_FAILURES_TOTAL = "num_file_watcher_failures_total"[];

    /// Certificate files that could not be read.
    Counter NUM_FILE_SECRET_FAILURES_TOTAL = "num_file_secret_failures_total"[];

    /// Seconds until a certificate expires, negative once it has.
    Gauge CERT_EXPIRY_SECONDS = "cert_expiry_seconds"["resource_name"];

    /// Wasm modules in the cache.
    Gauge WASM_CACHE_ENTRIES = "wasm_cache_entries"[];

    /// Look-ups in the cache of Wasm modules.
    Counter WASM_CACHE_LOOKUP_COUNT = "wasm_cache_lookup_count"["hit"];

    /// Fetches of Wasm modules, by result.
    Counter WASM_REMOTE_FETCH_COUNT = "wasm_remote_fetch_count"["result"];

    /// Filters rewritten to use a local Wasm module, by result.
    Counter WASM_CONFIG_CONVERSION_COUNT = "wasm_config_conversion_count"["result"];

    /// Milliseconds taken to rewrite filters to local Wasm modules.
    Histogram WASM_CONFIG_CONVERSION_DURATION = "wasm_config_conversion_duration"[]
        in [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0];
}
