//! Pushing configuration to proxies.

super::metrics! {
    PUSH

    /// Proxies connected over xDS, by version.
    Gauge PILOT_XDS = "pilot_xds"["version"];

    /// Responses sent to proxies, and failures to build or send one, by type.
    Counter PILOT_XDS_PUSHES = "pilot_xds_pushes"["type"];

    /// Seconds taken to generate and send one type of configuration to a proxy.
    Histogram PILOT_XDS_PUSH_TIME = "pilot_xds_push_time"["type"]
        in [0.01, 0.1, 0.5, 1.0, 3.0, 5.0, 10.0, 20.0, 30.0];

    /// Seconds taken to hand a generated response to the connection.
    Histogram PILOT_XDS_SEND_TIME = "pilot_xds_send_time"[] in [0.01, 0.1, 1.0, 3.0, 5.0, 10.0, 20.0, 30.0];

    /// Seconds a proxy waits in the push queue.
    Histogram PILOT_PROXY_QUEUE_TIME = "pilot_proxy_queue_time"[] in [0.1, 0.5, 1.0, 3.0, 5.0, 10.0, 20.0, 30.0];

    /// Seconds from a change until a proxy has everything it needs of it.
    Histogram PILOT_PROXY_CONVERGENCE_TIME = "pilot_proxy_convergence_time"[]
        in [0.1, 0.5, 1.0, 3.0, 5.0, 10.0, 20.0, 30.0];

    /// Seconds from the first change of a batch until the batch is queued for push.
    Histogram PILOT_DEBOUNCE_TIME = "pilot_debounce_time"[]
        in [0.01, 0.1, 0.5, 1.0, 3.0, 5.0, 10.0, 20.0, 30.0];

    /// Seconds taken to apply a batch of changes to the model.
    Histogram PILOT_PUSHCONTEXT_INIT_SECONDS = "pilot_pushcontext_init_seconds"[]
        in [0.01, 0.1, 0.5, 1.0, 3.0, 5.0];

    /// Reasons for which pushes were started.
    Counter PILOT_PUSH_TRIGGERS = "pilot_push_triggers"["type"];

    /// Changes received from sources, by kind.
    Counter PILOT_INBOUND_UPDATES = "pilot_inbound_updates"["type"];

    /// Bytes of configuration in one response, by type URL.
    Histogram PILOT_XDS_CONFIG_SIZE_BYTES = "pilot_xds_config_size_bytes"["type"]
        in [1.0, 10000.0, 1000000.0, 4000000.0, 10000000.0, 40000000.0];

    /// Requests that answered an older response than the last one sent, by type.
    Counter PILOT_XDS_EXPIRED_NONCE = "pilot_xds_expired_nonce"["type"];

    /// Responses that could not be written in time.
    Counter PILOT_XDS_WRITE_TIMEOUT = "pilot_xds_write_timeout"[];

    /// Bytes of the largest request received.
    Gauge PILOT_XDS_RECV_MAX = "pilot_xds_recv_max"[];

    /// Responses a proxy rejected, by type.
    Counter PILOT_TOTAL_XDS_REJECTS = "pilot_total_xds_rejects"["type"];

    /// Clusters rejected, by proxy and error code; kept for old dashboards.
    Gauge PILOT_XDS_CDS_REJECT = "pilot_xds_cds_reject"["err", "node"];

    /// Endpoints rejected, by proxy and error code; kept for old dashboards.
    Gauge PILOT_XDS_EDS_REJECT = "pilot_xds_eds_reject"["err", "node"];

    /// Listeners rejected, by proxy and error code; kept for old dashboards.
    Gauge PILOT_XDS_LDS_REJECT = "pilot_xds_lds_reject"["err", "node"];

    /// Routes rejected, by proxy and error code; kept for old dashboards.
    Gauge PILOT_XDS_RDS_REJECT = "pilot_xds_rds_reject"["err", "node"];

    /// Streams ended by an error of the control plane itself.
    Counter PILOT_TOTAL_XDS_INTERNAL_ERRORS = "pilot_total_xds_internal_errors"[];

    /// Look-ups in the cache of generated resources, hit or miss.
    Counter XDS_CACHE_READS = "xds_cache_reads"["type"];

    /// Resources removed from the cache, by reason.
    Counter XDS_CACHE_EVICTIONS = "xds_cache_evictions"["type"];

    /// Resources in the cache.
    Gauge XDS_CACHE_SIZE = "xds_cache_size"[];

    /// Objects that cached resources depend on.
    Gauge XDS_CACHE_DEPENDENT_CONFIG_SIZE = "xds_cache_dependent_config_size"[];
}
