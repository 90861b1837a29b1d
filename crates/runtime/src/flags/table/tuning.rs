//! How much work is done at once, and how long it is put off.

super::flags! {
    Tuning

    /// Most bytes of the node with which an xDS client introduces itself; one with more is refused.
    CANOPUS_MAX_NODE_BYTES: Int = "262144";

    /// Upper bound on simultaneous streams of one gRPC connection.
    ISTIO_GPRC_MAXSTREAMS: Int = "100000";

    /// Largest gRPC message accepted, in bytes.
    ISTIO_GPRC_MAXRECVMSGSIZE: Int = "4194304";

    /// Share of lock contentions that are profiled, as one in this many; 0 profiles none.
    MUTEX_PROFILE_FRACTION: Int = "1000";

    /// Threads that prepare Sidecar scopes ahead of use; has no effect where scopes are computed on demand.
    PILOT_CONVERT_SIDECAR_SCOPE_CONCURRENCY: Int = "1";

    /// Quiet time after a change before it is pushed, so that changes arriving together become one push.
    PILOT_DEBOUNCE_AFTER: Duration = "100ms";

    /// Longest time a change may be held back while others keep arriving.
    PILOT_DEBOUNCE_MAX: Duration = "10s";

    /// Whether endpoint changes are gathered like others; if not, each is pushed as it comes.
    PILOT_ENABLE_EDS_DEBOUNCE: Bool = "true";

    /// New xDS streams accepted per second; 0 chooses by the number of processors.
    PILOT_MAX_REQUESTS_PER_SECOND: Float = "0";

    /// Proxies that are pushed to at the same time; 0 chooses by the number of processors.
    PILOT_PUSH_THROTTLE: Int = "0";

    /// Upper bound on concurrent writes of object status.
    PILOT_STATUS_MAX_WORKERS: Int = "100";

    /// How often stale entries of the resource cache's index are swept.
    PILOT_XDS_CACHE_INDEX_CLEAR_INTERVAL: Duration = "5s";

    /// Resources the cache holds before it evicts.
    PILOT_XDS_CACHE_SIZE: Int = "60000";
}
