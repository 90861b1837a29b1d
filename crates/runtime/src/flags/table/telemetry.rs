//! Metrics, traces and the metadata they are labelled with.

super::flags! {
    Telemetry

    /// Whether controllers' queues are measured.
    ISTIO_ENABLE_CONTROLLER_QUEUE_METRICS: Bool = "false";

    /// Whether metrics are served to the pod itself alone.
    METRICS_LOCALHOST_ACCESS_ONLY: Bool = "false";

    /// Whether the agent's metrics include the proxy's.
    PILOT_AGENT_MERGE_ENVOY_STATS: Bool = "true";

    /// Whether proxies exchange metadata about their workloads.
    PILOT_ENABLE_METADATA_EXCHANGE: Bool = "true";

    /// Whether clusters and endpoints carry the metadata that metrics need.
    PILOT_ENABLE_TELEMETRY_LABEL: Bool = "true";

    /// Whether endpoints carry that metadata.
    PILOT_ENDPOINT_TELEMETRY_LABEL: Bool = "true";

    /// Whether the effect of each envoy filter is measured.
    PILOT_ENVOY_FILTER_STATS: Bool = "false";

    /// Labels that are exchanged beside the standard ones.
    PILOT_MX_ADDITIONAL_LABELS: List = "";

    /// Requests that are traced, in percent.
    PILOT_TRACE_SAMPLING: Float = "1", within(0.0, 100.0);
}
