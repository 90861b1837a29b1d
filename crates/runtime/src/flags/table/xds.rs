//! What proxies are told: the shape of generated configuration.

super::flags! {
    Xds

    /// Whether an object whose effect proxies reject is held at the value they last accepted, while everything else flows.
    CANOPUS_QUARANTINE: Bool = "true";

    /// Whether mirrored requests keep their host name instead of getting the suffix `-shadow`.
    DISABLE_SHADOW_HOST_SUFFIX: Bool = "true";

    /// Whether circuit breakers go without gauges of what they have left.
    DISABLE_TRACK_REMAINING_CB_METRICS: Bool = "true";

    /// Whether a proxy passes `Expect: 100-continue` exchanges through unchanged.
    ENABLE_100_CONTINUE_HEADERS: Bool = "true";

    /// Whether destination rules for a host are merged only if they are exported to the same namespaces.
    ENABLE_ENHANCED_DESTINATIONRULE_MERGE: Bool = "true";

    /// Whether addresses listed in mesh networks count as internal to HTTP proxies.
    ENABLE_HCM_INTERNAL_NETWORKS: Bool = "false";

    /// Whether what a Sidecar selects is computed when a proxy first needs it.
    ENABLE_LAZY_SIDECAR_EVALUATION: Bool = "true";

    /// Whether clusters weight localities even where no destination rule asks for locality load balancing.
    ENABLE_LOCALITY_WEIGHTED_LB_CONFIG: Bool = "false";

    /// Whether TLS settings of Sidecar ingress listeners are honoured.
    ENABLE_TLS_ON_SIDECAR_INGRESS: Bool = "false";

    /// Whether protobuf messages are encoded by generated code rather than by reflection.
    ENABLE_VTPROTOBUF: Bool = "true";

    /// Whether dynamic-DNS service entries with wildcard hosts may carry TLS, trusting the name the client sends.
    ENABLE_WILDCARD_HOST_SERVICE_ENTRIES_FOR_TLS: Bool = "false";

    /// Whether the proxy's status port understands the PROXY protocol.
    ENVOY_STATUS_PORT_ENABLE_PROXY_PROTOCOL: Bool = "false";

    /// Whether proxies are served incremental xDS by default.
    ISTIO_DELTA_XDS: Bool = "true";

    /// Whether listeners and clusters serve both IP families.
    ISTIO_DUAL_STACK: Bool = "false";

    /// Whether IPv6-only proxies also get an IPv4 outbound listener, as nodes with a NAT address need.
    ISTIO_ENABLE_IPV4_OUTBOUND_LISTENER_FOR_IPV6_CLUSTERS: Bool = "false";

    /// Connections a listener accepts per wake-up; 0 accepts all there are.
    MAX_CONNECTIONS_PER_SOCKET_EVENT_LOOP: Int = "1";

    /// Host names the dynamic forward proxy remembers when unknown destinations are resolved on the fly.
    PILOT_ALLOW_ANY_DYNAMIC_DNS_MAX_HOSTS: Int = "1024";

    /// Whether a service port may have an inbound listener beside those of a Sidecar's ingress.
    PILOT_ALLOW_SIDECAR_SERVICE_INBOUND_LISTENER_MERGE: Bool = "false";

    /// Whether endpoints that are not ready are sent, marked as such, unless a minimum of healthy ones is configured.
    PILOT_AUTO_SEND_UNHEALTHY_ENDPOINTS: Bool = "true";

    /// Whether TLS handshakes leave out the ALPN name that announces metadata exchange.
    PILOT_DISABLE_MX_ALPN: Bool = "false";

    /// Queries a proxy's resolver sends from one UDP socket before it takes another; 0 never changes it.
    PILOT_DNS_CARES_UDP_MAX_QUERIES: Int = "100", within(0.0, 4294967295.0);

    /// Random delay added to each periodic name resolution of a proxy.
    PILOT_DNS_JITTER_DURATION: Duration = "100ms";

    /// Label whose presence on an endpoint sends it as draining; empty looks for none.
    PILOT_DRAINING_LABEL: Text = "istio.io/draining";

    /// Whether virtual hosts also match host names written with a final dot.
    PILOT_ENABLE_ABSOLUTE_FQDN_VHOST_DOMAIN: Bool = "true";

    /// Whether outbound HTTP proxies carry the filter that sets ALPN by protocol.
    PILOT_ENABLE_ALPN_FILTER: Bool = "true";

    /// Whether generated clusters are cached.
    PILOT_ENABLE_CDS_CACHE: Bool = "true";

    /// Whether headless services are load-balanced over endpoints sent by EDS.
    PILOT_ENABLE_EDS_FOR_HEADLESS_SERVICES: Bool = "false";

    /// Whether a headless TCP service gets one listener with a filter chain per pod instead of a listener per pod.
    PILOT_ENABLE_HEADLESS_FILTER_CHAIN_LISTENER: Bool = "false";

    /// Whether ports named mongo get the MongoDB filter.
    PILOT_ENABLE_MONGO_FILTER: Bool = "true";

    /// Whether ports named mysql get the MySQL filter.
    PILOT_ENABLE_MYSQL_FILTER: Bool = "false";

    /// Whether services labelled for it get sticky sessions.
    PILOT_ENABLE_PERSISTENT_SESSION_FILTER: Bool = "false";

    /// Whether generated routes are cached.
    PILOT_ENABLE_RDS_CACHE: Bool = "true";

    /// Whether ports named redis get the Redis filter.
    PILOT_ENABLE_REDIS_FILTER: Bool = "false";

    /// Whether virtual hosts with equal routes become one.
    PILOT_ENABLE_ROUTE_COLLAPSE_OPTIMIZATION: Bool = "true";

    /// Whether generated resources are cached at all.
    PILOT_ENABLE_XDS_CACHE: Bool = "true";

    /// Whether HTTP/1.0 requests are accepted.
    PILOT_HTTP10: Bool = "false";

    /// Label that names the header by which a service's sessions stick; empty looks for none.
    PILOT_PERSISTENT_SESSION_HEADER_LABEL: Text = "istio.io/persistent-session-header";

    /// Label that names the cookie by which a service's sessions stick; empty looks for none.
    PILOT_PERSISTENT_SESSION_LABEL: Text = "istio.io/persistent-session";

    /// Whether endpoints that are not ready are sent for every service, with panic routing off.
    PILOT_SEND_UNHEALTHY_ENDPOINTS: Bool = "false";

    /// Whether a host found in several namespaces resolves to a Kubernetes service first, then to the oldest.
    PILOT_SIDECAR_PICK_BEST_SERVICE_NAMESPACE: Bool = "true";

    /// Whether sidecars' outbound HTTP proxies take the client address from the connection.
    PILOT_SIDECAR_USE_REMOTE_ADDRESS: Bool = "false";

    /// Whether explicit and default Sidecar scopes are built by the same rules.
    PILOT_UNIFIED_SIDECAR_SCOPE: Bool = "true";

    /// Whether use of the resource cache is measured.
    PILOT_XDS_CACHE_STATS: Bool = "false";

    /// Whether TLS settings of destination rules win over endpoint metadata for external services.
    PREFER_DESTINATIONRULE_TLS_FOR_EXTERNAL_SERVICES: Bool = "true";
}
